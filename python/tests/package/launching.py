"""Starts scripts, under torchrun, on forked workers or by themselves, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT = 300  # seconds, on a very busy machine


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def run(*words: str, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=limit,
        env=environment(),
    )


def torchrun(workers: int, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    job = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={workers}"]
    return run(*job, str(script), *arguments)


def forked_ranks(
    workers: int, script: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """As under torchrun, with torch imported once for all workers: see forked_ranks.py."""
    launcher = Path(__file__).with_name("forked_ranks.py")
    return run(str(launcher), str(workers), str(script), *arguments)


def forked_jobs(
    script: Path, *cases: str, limit: float = LIMIT
) -> dict[str, list[dict[str, Any]]]:
    """How the workers of each case of a script of forked_jobs.py have ended, by rank."""
    done = run(str(script), *cases, limit=limit)
    if done.returncode:
        raise AssertionError(done.stderr)
    workers: dict[str, list[dict[str, Any]]] = {}
    for line in map(json.loads, done.stdout.splitlines()):
        workers.setdefault(line["case"], []).append(line)
    return workers
