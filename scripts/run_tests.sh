#!/usr/bin/env bash
# Runs a build's tests in parallel and closes with one plain line: N passed, N failed, N skipped.
#   scripts/run_tests.sh release            every test of build/release
#   scripts/run_tests.sh asan -R codec      what follows goes to ctest
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

preset=${1:-release}
shift || true
results=$(pwd)/build/$preset/tests.xml
# Not build/$preset/tests, where CMake has what ctest is to run of the folder tests.
rm -rf "$results" "build/$preset/test_results"
# PyTorch's store asks the name server about each address that connects to it, even 127.0.0.1. When
# an answer is lost, the C library asks again after 5 s and waits as long again, and tests make
# hundreds of connections. They need no name.
export RES_OPTIONS="${RES_OPTIONS:-timeout:1 attempts:1}"
# Two more than there are cores, because many tests wait for time-outs and processes that end.
ctest --preset "$preset" --parallel "$(($(nproc) + 2))" --no-tests=error --output-junit "$results" "$@"
status=$?
if [ ! -s "$results" ]; then
  echo "ctest wrote no results for build/$preset: has it been built (make build)?" >&2
  exit 1
fi
python3 scripts/count_tests.py "$results" "build/$preset/test_results"
exit $status
