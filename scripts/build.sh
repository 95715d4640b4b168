#!/usr/bin/env bash
# Configures and builds a CMake preset: scripts/build.sh [release|core|asan|tsan] [TARGET...]
set -euo pipefail
cd "$(dirname "$0")/.."

preset=${1:-release}
shift || true
for tool in cmake ninja c++; do
  command -v "$tool" >/dev/null || { echo "$tool is not on PATH: run make setup" >&2; exit 1; }
done

# Configuring again takes seconds and says much, so its words are kept for when it fails.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cmake --preset "$preset" >"$log" 2>&1; then
  cat "$log" >&2
  echo "Configuring build/$preset failed; if something was not found, run make setup." >&2
  exit 1
fi
cmake --build "build/$preset" ${1:+--target "$@"}
