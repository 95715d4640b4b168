#!/usr/bin/env bash
# Checks the tracked files: layout, folders' floors, Python, shell, and clang-tidy on the core.
# libtorch's translation units are left out of clang-tidy: its headers take half a minute each.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

failed=()
stage() {
  local name=$1
  shift
  echo "lint: $name"
  "$@" || failed+=("$name")
}

clang_format() {
  git ls-files -z '*.h' '*.cc' '*.c' | xargs -0 clang-format --dry-run -Werror 2>&1 |
    sed -n 's/: error: code should be clang-formatted.*/ is not laid out as .clang-format says/p' |
    sed 's/:[0-9]*:[0-9]* / /' | sort | uniq -c | sed 's/^ *\([0-9]*\) /  \1 places: /'
  return "${PIPESTATUS[1]}"
}

python() { .venv/bin/ruff check --quiet . && .venv/bin/ruff format --quiet --check .; }

shell() {
  git ls-files -z '*.sh' .ci/run | xargs -0 shellcheck
}

# Tests and the command line are left to the compiler's warnings: the headers of GoogleTest, CLI11
# and JSON cost clang-tidy more than the code, and C has names of its own. Kernels are read for one
# SIMD target: their source is the same for all. libstdc++ 12 calls a function of its own that the
# linter's newer clang calls deprecated. Most of a file's time would go into its headers, so files are
# read sixteen at a time, as in a unity build, whose units may include sources.
clang_tidy() {
  cmake --preset core -B build/lint -DCMAKE_UNITY_BUILD=ON >/dev/null || return
  local log status
  log=$(mktemp)
  .venv/bin/run-clang-tidy.py -clang-tidy-binary .venv/bin/clang-tidy -quiet -p build/lint \
    -checks=-bugprone-suspicious-include -j "$(nproc)" \
    -extra-arg=-DHWY_COMPILE_ONLY_STATIC -extra-arg=-Wno-deprecated-declarations \
    '/elastiquant/(?!cli/|.*(_test\.cc?|_test\.dir/.*|_pch\.hxx\.cxx)$)' \
    >"$log" 2>/dev/null
  status=$?
  if [ $status -ne 0 ]; then sed -e '/\/clang-tidy /d' -e 's/\x1b\[[0-9;]*m//g' "$log"; fi
  rm -f "$log"
  return $status
}

stage "clang-format" clang_format
stage "who includes whom" python3 scripts/check_includes.py
stage "ruff" python
stage "shellcheck" shell
stage "clang-tidy on the core" clang_tidy
if [ ${#failed[@]} -gt 0 ]; then
  printf 'lint: FAILED: %s\n' "${failed[@]}" >&2
  echo "lint: make format mends the layout" >&2
  exit 1
fi
echo "lint: clean"
