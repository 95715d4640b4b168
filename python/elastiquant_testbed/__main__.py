"""Command line of the testbed; `elastiquant testbed` runs it."""

from __future__ import annotations

import argparse
import math
import os
import sys
import tempfile
from pathlib import Path

if not __package__:  # started by the folder's path, as `elastiquant testbed` does
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from elastiquant_testbed import files, precisions, provenance, stopping, testbed
from elastiquant_testbed.experiments import EXPERIMENTS, require_plots
from elastiquant_testbed.training import GENERATED, Choice

EXIT_FAILURE, EXIT_USAGE = 1, 2  # as elastiquant/cli/command.h has them


def minutes(text: str) -> float:
    if not (math.isfinite(given := float(text)) and given >= 0):
        raise argparse.ArgumentTypeError(f"{text} is not a number of minutes, 0 or more")
    return given


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="elastiquant testbed", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="run an experiment, or what is missing of it")
    run.add_argument("experiment", choices=EXPERIMENTS)
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--quick", action="store_true")
    run.add_argument(
        "--data", default=GENERATED, help="images that train: a folder with CIFAR-10"
    )
    run.add_argument(
        "--minutes",
        type=minutes,
        help="begin no run after that, and show what is there (without: make all)",
    )
    run.add_argument(
        "--known",
        type=Path,
        help="a folder whose NAME.runs.jsonl has runs made before, which are not made again",
    )
    run.add_argument(
        "--precision",
        default=precisions.FP32,
        choices=[precisions.FP32, precisions.BF16, precisions.EITHER],
        help="what matrices are multiplied in where an experiment trains; either: what a run "
        "was made in before, or else what this machine is faster in",
    )
    run.add_argument(
        "--device", default="cpu", choices=["cpu", "cuda"], help="where models are trained"
    )
    run.add_argument("--jobs", type=int, default=1, help="runs at a time")
    run.add_argument(
        "--testbed", type=Path, help="a TOML file, for table3 (without: that of the sources)"
    )
    run.add_argument("--program", help="the `elastiquant` to run")
    return parser.parse_args(arguments)


def make_folder(out: Path) -> None:
    """Raises TestbedError if results cannot be written there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=out).close()
    except OSError as error:
        no_folder = isinstance(error, (FileExistsError, NotADirectoryError))
        raise testbed.TestbedError(
            f"--out {out}: {'a file is in the way' if no_folder else error.strerror}; give a "
            "folder that can be written to, or one that is not there yet"
        ) from error


def main(arguments: list[str] | None = None) -> int:
    options = parse(arguments)
    stopping.on_signals()
    if options.program:
        os.environ["ELASTIQUANT_PROGRAM"] = options.program
    name = options.experiment
    try:
        require_plots()
        make_folder(options.out)
        described = testbed.load(options.testbed) if options.testbed else None
        make, show = EXPERIMENTS[name]
        choice = Choice(
            quick=options.quick,
            data=options.data,
            minutes=options.minutes,
            known=options.known,
            precision=options.precision,
            device=options.device,
            jobs=max(1, options.jobs),
        )
        with files.alone(options.out, name):
            result = make(described, options.out, choice).run()
            result |= provenance.of(name, result)
            files.write_json(options.out / f"{name}.json", result)
            text = show.text(result)
            files.replace(options.out / f"{name}.md", text)
            print(text, end="")
            show.draw(result, options.out / name)
    except (testbed.TestbedError, OSError) as error:
        print(f"elastiquant testbed: {error}", file=sys.stderr)
        return EXIT_USAGE if isinstance(error, testbed.UsageError) else EXIT_FAILURE
    except KeyboardInterrupt:
        print("elastiquant testbed: stopped; what was measured is kept", file=sys.stderr)
        return EXIT_FAILURE
    return 0


if __name__ == "__main__":
    sys.exit(main())
