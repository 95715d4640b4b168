"""What the runs of an experiment have come to: a file with a line of JSON for each.

A line has the run's name as "run". The file is little enough to be kept in the tree, so that
what was run on one machine need not be run again on another.
"""

from __future__ import annotations

import json
import os
from pathlib import Path


def path_of(experiment: str, folder: Path) -> Path:
    return folder / f"{experiment}.runs.jsonl"


def read(path: Path) -> dict[str, dict]:
    """By the name of the run. Nothing, if there is no such file."""
    if not path.exists():
        return {}
    lines = map(json.loads, path.read_text().splitlines())
    return {line.pop("run"): line for line in lines}


def write(path: Path, told: dict[str, dict]) -> None:
    """Replaces the file in one move, so that who is killed leaves the old one or the new."""
    lines = [json.dumps({"run": name, **outcome}) + "\n" for name, outcome in told.items()]
    new = path.with_name(path.name + ".new")
    new.write_text("".join(lines))
    os.replace(new, path)


def add(target: Path, told: dict[str, dict]) -> None:
    """Adds outcomes to those of a file, in place of those of the same runs."""
    write(target, {**read(target), **told})


def merge(source: Path, target: Path) -> None:
    """Adds the outcomes of one file to another. Where both have a run, the source's outcome is
    kept."""
    if source.exists():
        add(target, read(source))
