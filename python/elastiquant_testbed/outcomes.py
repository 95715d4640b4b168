"""What the runs of an experiment have come to: a file with a line of JSON for each.

A line has the run's name as "run". The file is little enough to be kept in the tree, so that
what was run on one machine need not be run again on another.
"""

from __future__ import annotations

import json
from pathlib import Path

from elastiquant_testbed import files
from elastiquant_testbed.testbed import TestbedError


def path_of(experiment: str, folder: Path) -> Path:
    return folder / f"{experiment}.runs.jsonl"


def read(path: Path) -> dict[str, dict]:
    """By the name of the run. Nothing, if there is no such file. Raises TestbedError if a line
    is damaged."""
    if not path.exists():
        return {}
    lines = enumerate(path.read_bytes().splitlines(), 1)
    return dict(_outcome(line, f"{path}, line {number}") for number, line in lines)


def _outcome(line: bytes, where: str) -> tuple[str, dict]:
    try:
        told = json.loads(line)
        return told.pop("run"), told
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise TestbedError(
            f"{where} is not the outcome of a run: delete it, and the run is made again"
        ) from error


def write(path: Path, told: dict[str, dict]) -> None:
    lines = [json.dumps({"run": name, **outcome}) + "\n" for name, outcome in told.items()]
    files.replace(path, "".join(lines))


def add(target: Path, told: dict[str, dict]) -> None:
    """Adds outcomes to those of a file, in place of those of the same runs."""
    write(target, {**read(target), **told})


def merge(source: Path, target: Path) -> None:
    """Adds the outcomes of one file to another. Where both have a run, the source's outcome is
    kept."""
    if source.exists():
        add(target, read(source))
