#!/usr/bin/env bash
# Brings what ElastiQuant needs: Debian packages, and a virtual environment .venv in the tree.
# Safe to run again: what is there already is left alone. See --help.
set -euo pipefail
cd "$(dirname "$0")/.."

readonly packages_file=scripts/debian-packages.txt
readonly requirements=scripts/requirements.txt
readonly venv=.venv

usage() {
  cat <<'HELP'
usage: scripts/setup.sh [--help]      (or: make setup)

Installs the Debian packages of scripts/debian-packages.txt that are missing (as root, or
with sudo) and the Python packages of scripts/requirements.txt into .venv. On a system
without apt it says which packages to bring and goes on if the tools are there.

Variables:
  TORCH_INDEX_URL  where pip takes torch from, if not from its usual index. The usual wheel
                   brings gigabytes of CUDA; for a machine without an NVIDIA GPU give the
                   CPU index that pytorch.org's install page names for "Pip, CPU".
  PYTHON           the Python (3.11 or newer) that .venv is made with; default: python3
HELP
}

say() { printf 'setup: %s\n' "$*"; }
die() {
  printf 'setup: %s\n' "$1" >&2
  shift
  for line in "$@"; do printf '       %s\n' "$line" >&2; done
  exit 1
}

# "package<TAB>why" for each package in the list.
listed_packages() { sed -E -e '/^#/d' -e '/^$/d' -e 's/ +/\t/' "$packages_file"; }

missing_packages() {
  listed_packages | while IFS=$'\t' read -r package why; do
    # shellcheck disable=SC2016  # dpkg-query fills in ${db:Status-Status}
    status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null || true)
    if [ "$status" != installed ]; then printf '%s\t%s\n' "$package" "$why"; fi
  done
}

print_packages() {
  while IFS=$'\t' read -r package why; do printf '         %-21s %s\n' "$package" "$why"; done
}

apt() {
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then as_root=(sudo); fi
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@"
}

install_packages() {
  local missing names
  missing=$(missing_packages)
  if [ -z "$missing" ]; then
    say "Debian packages: all $(listed_packages | wc -l) are there"
    return
  fi
  say "Debian packages to install with apt-get, which takes a minute or two:"
  print_packages <<<"$missing"
  if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null; then
    die "installing Debian packages needs root, and there is no sudo." \
      "Run this once as root, or ask for the packages above to be installed."
  fi
  mapfile -t names < <(cut -f1 <<<"$missing")
  # The package lists are fetched only if the ones here do not lead to every package.
  if ! apt install -y --no-install-recommends "${names[@]}" >/dev/null 2>&1; then
    say "fetching the package lists first (apt-get update)"
    apt update || die "apt-get update failed: is there internet, and is the mirror up?"
    apt install -y --no-install-recommends "${names[@]}" ||
      die "apt-get could not install: ${names[*]}" \
        "The names are Debian 12's; on another release find their like, install them, and" \
        "run this again. Otherwise see apt-get's message above; is there internet?"
  fi
  say "installed ${#names[@]} Debian packages"
}

# Without apt nothing can be installed for the user: name the packages, then look for the tools.
check_tools() {
  say "this system has no apt-get. Please bring these packages (Debian's names):"
  listed_packages | print_packages
  local absent=() tool
  for tool in c++ cmake ninja git "$python"; do
    command -v "$tool" >/dev/null || absent+=("$tool")
  done
  if [ ${#absent[@]} -gt 0 ]; then die "not found on PATH: ${absent[*]}"; fi
  say "the build tools are on PATH, going on"
}

# Prints each requirement that .venv lacks or has in another version.
missing_requirements() {
  "$venv/bin/python" - "$requirements" <<'PY'
import importlib.metadata
import pathlib
import sys

for line in pathlib.Path(sys.argv[1]).read_text().splitlines():
    requirement = line.partition("#")[0].strip()
    if not requirement:
        continue
    name, _, wanted = requirement.partition("==")
    try:
        # "2.13.0+cpu" is 2.13.0, built for the CPU.
        found = importlib.metadata.version(name).partition("+")[0]
    except importlib.metadata.PackageNotFoundError:
        found = None
    if found != wanted:
        print(requirement)
PY
}

# At a terminal pip shows what it downloads, which may be gigabytes.
pip_install() {
  local quiet=(--quiet)
  if [ -t 1 ]; then quiet=(); fi
  "$venv/bin/python" -m pip install "${quiet[@]}" --disable-pip-version-check "$@" ||
    die "pip could not install: ${!#}" \
      "See pip's message above. Is there internet? If torch was not found, does the index" \
      "${TORCH_INDEX_URL:-(the usual one, as TORCH_INDEX_URL is not set)} have it?"
}

make_venv() {
  "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$python is $("$python" --version 2>&1), and 3.11 or newer is needed." \
      "Name another with PYTHON=/path/to/python3 make setup"
  if ! "$venv/bin/python" -c '' 2>/dev/null; then
    say "making the virtual environment $venv"
    "$python" -m venv --clear "$venv" || die "$python -m venv failed; see its message above"
  fi
  local missing torch
  missing=$(missing_requirements)
  if [ -z "$missing" ]; then
    say "Python packages: all are in $venv"
    return
  fi
  say "Python packages to install into $venv: $(tr '\n' ' ' <<<"$missing")and what they need."
  say "This takes a minute or two, and longer if torch comes with CUDA."
  torch=$(grep '^torch==' <<<"$missing" || true)
  if [ -n "$torch" ] && [ -n "${TORCH_INDEX_URL:-}" ]; then
    say "torch itself from TORCH_INDEX_URL=$TORCH_INDEX_URL"
    pip_install --no-deps --index-url "$TORCH_INDEX_URL" "$torch"
  fi
  # Everything in one go, so that pip can never settle on another torch than the pinned one.
  pip_install --requirement "$requirements"
  missing=$(missing_requirements)
  if [ -n "$missing" ]; then die "pip ended well, yet .venv lacks: $missing"; fi
}

case "${1:-}" in
  "") ;;
  -h | --help) usage && exit 0 ;;
  *) usage >&2 && exit 2 ;;
esac
# Two set-ups at once would write into the same .venv and leave it broken.
if command -v flock >/dev/null; then
  exec 9<"scripts/setup.sh"
  flock --nonblock 9 || { say "waiting for another set-up of this tree" && flock 9; }
fi
python=${PYTHON:-python3}
if command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; then
  install_packages
else
  check_tools
fi
make_venv
say "done. Next: make build, make demo or make test"
