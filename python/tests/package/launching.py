"""Starts scripts, under torchrun, on forked workers or by themselves, for tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

LIMIT = 300  # seconds, on a very busy machine
# PyTorch's store asks the name server about each address that connects, even 127.0.0.1, and
# warns if there is no answer. Whether there is one must not matter to tests.
NO_NAME = "[c10d] The hostname of the client socket cannot be retrieved"


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def run(*words: str, limit: float = LIMIT) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *words],
        capture_output=True,
        text=True,
        timeout=limit,
        env=environment(),
    )
    done.stderr = without_name_warnings(done.stderr)
    return done


def without_name_warnings(output: str) -> str:
    return "".join(line for line in output.splitlines(keepends=True) if NO_NAME not in line)


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
        line["output"] = without_name_warnings(line["output"])
        workers.setdefault(line["case"], []).append(line)
    return workers
