#!/usr/bin/env python3
"""Checks that each folder of elastiquant/ includes only the floors it may stand on, and that no
family of codecs includes another.

The rule is the table in docs/architecture.md, written here once more as ALLOWED. Tests are held
to it as well: a test that needs a higher floor belongs on that floor.
"""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE = {"base", "kernels", "coding", "codec"}
ALLOWED: dict[str, set[str]] = {
    "base": set(),
    "kernels": {"base"},
    "coding": {"base", "kernels"},
    "codec": {"base", "kernels", "coding"},
    "graph": {"base", "codec"},
    "theory": {"base", "coding", "codec", "graph"},
    "policy": {"base", "coding", "codec", "theory"},
    "stream": CORE,
    "protocol": CORE | {"graph", "stream"},
    "rates": CORE | {"graph", "theory", "stream", "protocol"},
    "net": {"base"},
    "exchange": CORE | {"stream", "net"},
    "layers": CORE | {"graph", "theory", "stream", "protocol", "net", "exchange"},
    "c10d": {"base", "net"},
    "ddp": CORE | {"graph", "theory", "stream", "protocol", "net", "exchange", "layers"},
    "data": {"base"},
    "models": {"base"},
    "runs": {"base", "net", "c10d"},
    "train": CORE
    | {"theory", "stream", "protocol", "net", "exchange", "layers", "c10d", "data", "models"}
    | {"graph", "policy", "runs"},
    "cli": CORE
    | {
        "graph",
        "theory",
        "policy",
        "stream",
        "protocol",
        "rates",
        "net",
        "exchange",
        "layers",
        "c10d",
        "data",
        "models",
        "runs",
        "train",
    },
}
# What a floor may take from outside: only these see libtorch.
TORCH_FLOORS = {"c10d", "ddp", "data", "models", "runs", "train", "cli"}

# Folders within a floor are families: one may include itself and what lies at the floor's root,
# and the root may include no family. These may stand on others, too.
FAMILIES = {
    ("kernels", "dither"): {"rans"},  # dithered symbols are coded with rANS
    ("train", "runners"): {"codecs"},  # which a worker chooses for itself
}

INCLUDE = re.compile(
    r'^\s*#\s*include\s*(?:"(elastiquant/)(\w+)/(?:(\w+)/)?|[<"](torch|ATen|c10)/)'
)


def is_for_tests(path: pathlib.Path) -> bool:
    return bool(re.search(r"_test\.cc$|_testing\.(h|cc)$|^golden", path.name))


def violations(path: pathlib.Path, floor: str) -> list[str]:
    found = []
    within = path.relative_to(ROOT / "elastiquant" / floor)
    family = within.parts[0] if len(within.parts) > 1 else None
    may = {None, family} | FAMILIES.get((floor, family), set())
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        where = f"{path.relative_to(ROOT)}:{number}"
        other, other_family, torch = match[2], match[3], match[4]
        if other and other != floor and other not in ALLOWED[floor]:
            floors = ", ".join(sorted(ALLOWED[floor])) or "nothing"
            found.append(f"{where}: {floor} includes {other}, but may include only {floors}")
        if other == floor and other_family not in may and not is_for_tests(path):
            own = f"family {family}" if family else f"the root of {floor}"
            found.append(f"{where}: {own} includes family {other_family}: share it at the root")
        if torch and floor not in TORCH_FLOORS:
            found.append(f"{where}: {floor} includes libtorch; the core must build without it")
    return found


def main() -> None:
    found = []
    for folder in sorted((ROOT / "elastiquant").iterdir()):
        if not folder.is_dir():
            continue
        if folder.name not in ALLOWED:
            found.append(f"elastiquant/{folder.name}: a floor that docs/architecture.md lacks")
            continue
        for path in sorted(folder.rglob("*")):
            if path.suffix in {".h", ".cc", ".c"}:
                found += violations(path, folder.name)
    if found:
        sys.exit("\n".join(found))


if __name__ == "__main__":
    main()
