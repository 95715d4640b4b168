"""Runs of `elastiquant train`, whose result is in the files that they write."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from collections.abc import Callable, Iterable

ROOT = pathlib.Path(__file__).resolve().parent.parent
if str(ROOT / "python") not in sys.path:
    sys.path.insert(0, str(ROOT / "python"))

from elastiquant_testbed.training import GAVE_UP  # noqa: E402

SUMMARY, FAILED = "summary.json", "failed.txt"
ENDED = (SUMMARY, FAILED)  # a run's folder has one of these


def summary_of(words: Iterable[object], out: pathlib.Path, table_only: bool) -> dict | None:
    """What result_of returns of the run that a command makes in a folder. Where a training
    fails, and did not give up, the script ends."""
    command = [*words, "--out", out, "--overwrite", "--quiet"]
    return result_of(out, table_only, lambda: train(command, may_give_up=True))


def result_of(out: pathlib.Path, table_only: bool, train: Callable[[], str]) -> dict | None:
    """The summary of the run in a folder, or {"failed": why} of a training that gave up, as its
    steps were not finite: that is a result, and it is not tried again. If there is neither,
    None under `table_only`; else `train` makes the run, and returns why it gave up, or nothing.
    """
    if (out / FAILED).exists():
        return {"failed": (out / FAILED).read_text()}
    if not (out / SUMMARY).exists():
        if table_only:
            return None
        if why := train():
            out.mkdir(parents=True, exist_ok=True)
            (out / FAILED).write_text(why)
            return {"failed": why}
    return json.loads((out / SUMMARY).read_text())


def train(words: Iterable[object], may_give_up: bool = False) -> str:
    """Runs the command, and shows what it says of itself. Where it fails the script ends,
    unless it `may_give_up` and does so: then what it said is returned. Else that is empty."""
    command = [str(word) for word in words]
    script = pathlib.Path(sys.argv[0]).stem
    try:
        done = subprocess.run(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
    except FileNotFoundError:
        sys.exit(f"{script}: {command[0]} is missing: run make build")
    print(done.stderr, end="", file=sys.stderr)
    if done.returncode == 0:
        return ""
    if may_give_up and GAVE_UP.search(done.stderr):
        return done.stderr
    sys.exit(f"{script}: a training has failed, with exit code {done.returncode}")
