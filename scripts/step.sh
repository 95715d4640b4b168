#!/usr/bin/env bash
# Runs one step of a longer job, saying what it is before and how long it took after:
#   scripts/step.sh 2/3 "build the program" COMMAND...
set -uo pipefail
[ $# -ge 3 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
number=$1 name=$2
shift 2

took() {
  local seconds=$SECONDS
  if [ "$seconds" -ge 60 ]; then printf '%d min %d s' $((seconds / 60)) $((seconds % 60)); else printf '%d s' "$seconds"; fi
}

printf '== %s: %s\n' "$number" "$name"
"$@"
status=$?
if [ $status -eq 0 ]; then
  printf '== %s took %s\n' "$number" "$(took)"
else
  printf '== %s FAILED after %s; its command was: %s\n' "$number" "$(took)" "$*" >&2
fi
exit $status
