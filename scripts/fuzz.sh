#!/usr/bin/env bash
# Builds the fuzz targets, which are part of build/asan, and runs each for some seconds, one a
# core: scripts/fuzz.sh [SECONDS]
# The corpus is kept in build/asan/corpus; an input that breaks a target stays in build/asan.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}

# Fuzzes bin/NAME; called in build/asan.
fuzz() {
  local name=$1 corpus=corpus/$1 dictionary=../../fuzz/${1%_fuzz}.dict seeds=()
  local options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1)
  mkdir -p "$corpus"
  if [ -f "$dictionary" ]; then options+=(-dict="$dictionary"); fi
  case $name in
    frame_fuzz) seeds=(../../testdata/golden seeds/frames) ;;
    round_trip_fuzz | targets_fuzz) seeds=(seeds/codecs) ;;
  esac
  if ! "bin/$name" "${options[@]}" "$corpus" "${seeds[@]}" >"$name.log" 2>&1; then
    tail -n 40 "$name.log" >&2
    echo "fuzz: $name found an input that breaks it; see build/asan and $name.log there" >&2
    return 1
  fi
  sed -n "s/^stat::number_of_executed_units: */fuzz: $name, executions: /p" "$name.log"
}
export -f fuzz
export seconds

scripts/build.sh asan fuzzers
python3 fuzz/seeds.py build/asan/seeds
cd build/asan
echo "fuzz: $seconds s for each of" bin/*_fuzz
find bin -name '*_fuzz' -printf '%f\n' | sort | xargs -P "$(nproc)" -I{} bash -euc 'fuzz {}'
