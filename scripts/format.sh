#!/usr/bin/env bash
# Lays out the tracked C++ and Python files in place, as scripts/lint.sh checks them.
set -euo pipefail
cd "$(dirname "$0")/.."

git ls-files -z '*.h' '*.cc' '*.c' | xargs -0 --no-run-if-empty clang-format -i
.venv/bin/ruff format --quiet .
.venv/bin/ruff check --quiet --fix .
