"""Starts scripts under torchrun, for tests."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

LIMIT = 150  # seconds, on a busy machine


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1"}


def torchrun(workers: int, script: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += [f"--nproc-per-node={workers}", str(script), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=LIMIT, env=environment()
    )
