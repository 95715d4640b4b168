"""Runs of `elastiquant train`, whose result is in the files that they write."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from collections.abc import Iterable


def train(words: Iterable[object]) -> None:
    """Runs the command, which shows what it says of itself. Where it fails the script ends."""
    command = [str(word) for word in words]
    script = pathlib.Path(sys.argv[0]).stem
    try:
        code = subprocess.run(command, stdout=subprocess.DEVNULL).returncode
    except FileNotFoundError:
        sys.exit(f"{script}: {command[0]} is missing: run make build")
    if code != 0:
        sys.exit(f"{script}: a training has failed, with exit code {code}")
