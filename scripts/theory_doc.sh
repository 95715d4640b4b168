#!/usr/bin/env bash
# Draws the figures of docs/theory.md: scripts/theory_doc.sh [PROGRAM]
set -euo pipefail
cd "$(dirname "$0")/.."

program=${1:-build/release/bin/elastiquant}
for norm in l2 linf; do
  "$program" theory --bits 4 --bucket 512 --norm "$norm" --python .venv/bin/python \
    --plot "docs/theory/$norm.png"
  rm "docs/theory/$norm.json"
done
