#!/usr/bin/env bash
# What ElastiQuant is for, in a few minutes: the same training over the same slow link, at full
# precision, with 4 bits, and with 2 bits.
set -euo pipefail
cd "$(dirname "$0")/.."

steps=200 link=20mbit,10ms workers=4 batch=16 out=runs/demo
program=build/release/bin/elastiquant

usage() {
  cat <<END
scripts/demo.sh [--steps N] [--link RATE,DELAY] [--workers N] [--out DIR]
Trains ResNet-20 on $workers local workers over an emulated link ($link) for $steps steps with
each of three codecs, and compares them. Takes 5 minutes or so on two cores. Writes into $out.
Example: scripts/demo.sh --steps 50 --link 100mbit,5ms
END
}

while [ $# -gt 0 ]; do
  case $1 in
    --help | -h) usage; exit 0 ;;
    --steps | --link | --workers | --out)
      [ $# -ge 2 ] || { echo "demo: $1 needs a value" >&2; exit 2; }
      printf -v "${1#--}" '%s' "$2"
      shift 2 ;;
    *) echo "demo: unknown option $1" >&2; usage >&2; exit 2 ;;
  esac
done
[ -x "$program" ] || { echo "demo: $program is missing: run make build" >&2; exit 1; }

# So short a run is chaotic under SGD: accuracies differ by ten points from seed to seed, at full
# precision too. Under AdamW they differ by a few.
codecs=(fp32 elastic:bits=4 dither:bits=2)
names=(fp32 elastic4 dither2)
echo "ResNet-20 on $workers workers, batch $batch each, $steps steps over a link of $link"
for i in "${!codecs[@]}"; do
  echo
  echo "[$((i + 1))/${#codecs[@]}] ${codecs[i]}"
  "$program" train --model resnet20 --data generated --codec "${codecs[i]}" \
    --optimizer adamw --lr 0.002 --warmup 20 --workers "$workers" --batch "$batch" --steps "$steps" --link "$link" --seed 1 \
    --out "$out/${names[i]}" --overwrite
done
echo
"$program" report "${names[@]/#/$out/}" --out "$out/report" --title "Demonstration"
