#!/usr/bin/env python3
"""Checks that each folder of elastiquant/ includes only the floors it may stand on.

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
    "theory": {"base", "coding", "codec"},
    "net": {"base"},
    "exchange": CORE | {"net"},
    "layers": CORE | {"theory", "net", "exchange"},
    "c10d": {"base", "net"},
    "ddp": CORE | {"theory", "net", "exchange", "layers"},
    "train": CORE | {"theory", "net", "exchange", "layers", "c10d"},
    "cli": CORE | {"theory", "net", "exchange", "layers", "c10d", "train"},
}
# What a floor may take from outside: only these see libtorch.
TORCH_FLOORS = {"c10d", "ddp", "train", "cli"}

INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"(elastiquant/)(\w+)/|[<"](torch|ATen|c10)/)')


def violations(path: pathlib.Path, floor: str) -> list[str]:
    found = []
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        match = INCLUDE.match(line)
        if not match:
            continue
        where = f"{path.relative_to(ROOT)}:{number}"
        other, torch = match[2], match[3]
        if other and other != floor and other not in ALLOWED[floor]:
            may = ", ".join(sorted(ALLOWED[floor])) or "nothing"
            found.append(f"{where}: {floor} includes {other}, but may include only {may}")
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
