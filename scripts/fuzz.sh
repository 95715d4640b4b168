#!/usr/bin/env bash
# Builds the fuzz targets and runs each for some seconds: scripts/fuzz.sh [SECONDS]
# The corpus is kept in build/fuzz/corpus; an input that breaks a target stays in build/fuzz.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
cmake --preset fuzz >/dev/null
cmake --build --preset fuzz
python3 fuzz/seeds.py build/fuzz/seeds
cd build/fuzz
for target in bin/*_fuzz; do
  name=$(basename "$target")
  corpus=corpus/$name
  mkdir -p "$corpus"
  options=(-max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1)
  dictionary=../../fuzz/${name%_fuzz}.dict
  if [ -f "$dictionary" ]; then options+=(-dict="$dictionary"); fi
  case $name in
    frame_fuzz) seeds=(../../testdata/golden) ;;
    round_trip_fuzz | targets_fuzz) seeds=(seeds) ;;
    *) seeds=() ;;
  esac
  echo "fuzz: $name for $seconds s"
  if ! "$target" "${options[@]}" "$corpus" "${seeds[@]}" >"$name.log" 2>&1; then
    tail -n 40 "$name.log" >&2
    echo "fuzz: $name found an input that breaks it; see build/fuzz and $name.log there" >&2
    exit 1
  fi
  sed -n 's/^stat::number_of_executed_units: */fuzz: executions: /p' "$name.log"
done
