#!/usr/bin/env bash
# Configures and builds a CMake preset: scripts/build.sh [release|core|asan|tsan] [TARGET...]
# Without a target it builds all there is; `product` is all but tests and benchmarks, and
# `elastiquant_cli` the program alone.
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
# Ninja's progress: steps done, of how many, and the seconds so far.
export NINJA_STATUS=${NINJA_STATUS:-[%f/%t, %e s] }
cmake --build "build/$preset" ${1:+--target "$@"}
