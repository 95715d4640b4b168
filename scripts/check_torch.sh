#!/usr/bin/env bash
# Builds and tests the Python package with a PyTorch of your choice; see --help.
set -euo pipefail
cd "$(dirname "$0")/.."

usage() {
  cat <<'HELP'
usage: scripts/check_torch.sh VERSION       e.g. 2.15.0, 2.4.1, or newest

Installs torch VERSION into an environment of its own (build/torch-VERSION), builds the package
against it as a user would (pip install --no-build-isolation), and runs python/tests/package
there. .venv is left alone. Needs what make setup brings, and for a torch with CUDA, which is
what pip usually gives, about 6 GB of disk. A second run with the same version skips the torch.

Variables: PYTHON (default: python3) and TORCH_INDEX_URL, as in scripts/setup.sh --help.
HELP
}

case "${1:-}" in
  -h | --help) usage && exit 0 ;;
  newest) requirement=torch ;;
  [0-9]*) requirement="torch==$1" ;;
  *) usage >&2 && exit 2 ;;
esac

root=$PWD
work=$root/build/torch-$1
bin=$work/venv/bin
say() { printf 'check_torch: %s\n' "$*"; }
install() { "$bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }

# pip keeps to the pins of requirements.txt, for all but torch.
pins() { grep -E '^(numpy|matplotlib|scikit-build-core)==' scripts/requirements.txt; }

mkdir -p "$work"
[ -x "$bin/python" ] || "${PYTHON:-python3}" -m venv "$work/venv"
say "installing $requirement (a CUDA build takes minutes)"
if [ -n "${TORCH_INDEX_URL:-}" ]; then
  install --upgrade --no-deps --index-url "$TORCH_INDEX_URL" "$requirement"
fi
pins >"$work/pins.txt"
install --upgrade "$requirement" --requirement "$work/pins.txt"

say "building the package against $("$bin/python" -c 'import torch; print(torch.__version__)')"
# With the release build's compiler (pip takes the one that Python was built with) and flags, so that
# ccache has what does not depend on torch; in a folder that stays, so that a second run compiles
# only what has changed.
CXX=${CXX:-c++} SKBUILD_CMAKE_DEFINE="ELASTIQUANT_WHEEL=ON;ELASTIQUANT_WERROR=ON" SKBUILD_BUILD_DIR="$work" \
  install --no-build-isolation --no-deps --force-reinstall .

cd "$work" # so that it is the installed package that is imported
failed=()
for test in "$root"/python/tests/package/*_test.py; do
  say "${test##*/}"
  "$bin/python" -B "$test" || failed+=("${test##*/}")
done
"$bin/python" - <<'PY'
import platform

import elastiquant
import torch

print(
    f"check_torch: elastiquant {elastiquant.__version__}, torch {torch.__version__},",
    f"Python {platform.python_version()}, GPU: {torch.cuda.is_available()}",
)
PY
if [ ${#failed[@]} -gt 0 ]; then say "FAILED: ${failed[*]}" >&2 && exit 1; fi
say "all passed"
