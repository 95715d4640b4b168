"""Starts scripts, under torchrun or by themselves, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT = 150  # seconds, on a busy machine


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def torchrun(workers: int, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={workers}", str(script), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, env=environment()
    )


def forked_jobs(
    script: Path, *cases: str, limit: float = LIMIT
) -> dict[str, list[dict[str, Any]]]:
    """How the workers of each case of a script of forked_jobs.py have ended, by rank."""
    done = subprocess.run(
        [sys.executable, str(script), *cases],
        capture_output=True,
        text=True,
        timeout=limit,
        env=environment(),
    )
    if done.returncode:
        raise AssertionError(done.stderr)
    workers: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, done.stdout.splitlines()):
        workers.setdefault(line["case"], []).append(line)
    return workers
