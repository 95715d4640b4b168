"""Command line of the plot; `elastiquant analyze --plot` runs it."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

if not __package__:  # started by the folder's path, as `elastiquant analyze` does
    sys.path[0] = str(Path(__file__).resolve().parent.parent)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="elastiquant_rates", description=__doc__)
    parser.add_argument("analysis", type=Path, help="what `elastiquant analyze --json` printed")
    parser.add_argument("--out", type=Path, required=True, help="pictures without .png or .svg")
    options = parser.parse_args(arguments)
    try:
        from elastiquant_rates import plots  # needs matplotlib

        report = json.loads(options.analysis.read_text())
        for path in plots.draw(report, options.out):
            print(path, file=sys.stderr)
    except ImportError as error:
        print(f"elastiquant analyze: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"elastiquant analyze: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
