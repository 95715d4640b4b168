"""Command line of the plot; `elastiquant theory --plot` runs it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

if not __package__:  # started by the folder's path, as `elastiquant theory` does
    sys.path[0] = str(Path(__file__).resolve().parent.parent)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="elastiquant_theory", description=__doc__)
    parser.add_argument("report", type=Path, help="the JSON that `theory --plot` wrote")
    parser.add_argument("--out", type=Path, required=True, help="picture without .png or .svg")
    options = parser.parse_args(arguments)
    try:
        from elastiquant_theory import plots  # needs matplotlib

        for path in plots.draw(json.loads(options.report.read_text()), options.out):
            print(path, file=sys.stderr)
    except (ImportError, OSError) as error:
        print(f"elastiquant theory: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
