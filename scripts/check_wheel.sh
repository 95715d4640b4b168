#!/usr/bin/env bash
# Builds the wheel, installs it into an environment of its own that sees .venv's torch and has the
# frameworks of scripts/frameworks.txt, and tests it there, recipes for these frameworks included.
# Also that a build says so if there is no torch to build against.
set -euo pipefail
cd "$(dirname "$0")/.."

root=$PWD
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

.venv/bin/python -m venv --without-pip "$work/bare"
if cmake -S . -B "$work/no-torch" -G Ninja -DELASTIQUANT_WHEEL=ON \
  -DPython_EXECUTABLE="$work/bare/bin/python" >"$work/log" 2>&1; then
  echo "without torch the build should have failed" >&2
  exit 1
fi
grep -q 'Install torch >= 2.4 first' "$work/log" || { cat "$work/log" >&2; exit 1; }

# With the release build's compiler (pip takes the one that Python was built with), and in a folder
# as deep as build/release is, so that ccache knows what that build has compiled.
export CXX=${CXX:-c++}
rm -rf build/check_wheel
SKBUILD_BUILD_DIR=build/check_wheel \
  SKBUILD_CMAKE_DEFINE="ELASTIQUANT_WHEEL=ON;ELASTIQUANT_WERROR=ON;CMAKE_UNITY_BUILD=ON" \
  scripts/wheel.sh "$work"
rm -rf build/check_wheel
.venv/bin/python -m venv "$work/venv"
python=$work/venv/bin/python
site=$("$python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' >"$site/torch.pth"
pip=("$python" -m pip install --quiet --disable-pip-version-check)
"${pip[@]}" --no-index --no-deps "$work"/elastiquant-*.whl
"${pip[@]}" -r scripts/frameworks.txt
cd "$work"
"$python" -c 'import elastiquant, sys; assert elastiquant.__file__.startswith(sys.prefix)'
for test in codec frame stats frameworks; do
  "$python" -B "$root/python/tests/package/${test}_test.py"
done
