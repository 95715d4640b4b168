#!/usr/bin/env bash
# Measures every codec, and the steps inside the elastic one, as ratios to memcpy of the same
# buffer in the same run: one thread, 100 MB of fp32. What follows goes to `elastiquant bench`:
#   scripts/bench.sh --input gradient.npy --elements 25000000
set -euo pipefail
cd "$(dirname "$0")/.."

build/release/bin/elastiquant bench --all "$@"
echo
build/release/bin/kernel_bench
