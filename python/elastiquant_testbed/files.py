"""Files that are whole at any moment, and folders that one command at a time writes to."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path

from elastiquant_testbed.testbed import TestbedError


def replace(path: Path, text: str) -> None:
    """Writes a file in one move: a process that is killed leaves the old file or the new."""
    new = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        new.write_text(text)
        os.replace(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def write_json(path: Path, told: dict) -> None:
    replace(path, json.dumps(told, indent=1) + "\n")


def read_json(path: Path) -> dict:
    """Raises TestbedError if what is there is no JSON object."""
    try:
        told = json.loads(path.read_text())
    except ValueError as error:
        raise TestbedError(
            f"{path} is damaged: {error}; make it again, or restore it"
        ) from error
    if isinstance(told, dict):
        return told
    raise TestbedError(f"{path} is no JSON object; make it again, or restore it")


@contextlib.contextmanager
def alone(folder: Path, name: str) -> Iterator[None]:
    """While this is held, no other command works on the experiment in the folder. Raises
    TestbedError if one does. The lock goes with the process, however that ends."""
    with open(folder / f".{name}.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TestbedError(
                f"another `testbed run {name}` writes to {folder}: wait for it, or give "
                "another --out"
            ) from error
        yield
