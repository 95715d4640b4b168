"""Runs jobs of several workers that end in all kinds of ways, for tests.

Imports torch once and forks the workers of each job. A script calls run() with what its workers
do, and says as a line of JSON for each of them how it ended: {"case", "rank", "code" (negative
for a signal), "output"}. Workers that hang are killed, and their code is -9.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import IO

import torch
import torch._dynamo  # which optimisers import
import torch.distributed as dist

WORKERS = 3
LIMIT = 240  # seconds, on a very busy machine, after which a job hangs


@dataclass
class Job:
    """name: of the case. faulty: the rank that may hang, with `grace` seconds to end when all
    others have."""

    name: str
    faulty: int
    body: Callable[[], None]
    grace: float = LIMIT
    pids: list[int] = field(default_factory=list)
    outputs: list[IO[bytes]] = field(default_factory=list)
    codes: dict[int, int] = field(default_factory=dict)  # by rank
    begun: float = 0.0
    others_ended: float = float("inf")

    def look(self) -> bool:
        """Whether all have ended; kills whoever does not."""
        for rank, pid in enumerate(self.pids):
            if rank not in self.codes and (found := os.waitpid(pid, os.WNOHANG))[0]:
                self.codes[rank] = os.waitstatus_to_exitcode(found[1])
        now = time.monotonic()
        if self.codes.keys() | {self.faulty} == set(range(WORKERS)):
            self.others_ended = min(self.others_ended, now)
        if now > self.begun + LIMIT or now > self.others_ended + self.grace:
            for rank, pid in enumerate(self.pids):
                if rank not in self.codes:
                    os.kill(pid, signal.SIGKILL)
        return len(self.codes) == WORKERS

    def report(self) -> None:
        for rank, output in enumerate(self.outputs):
            output.seek(0)
            words = output.read().decode(errors="replace")
            line = {"case": self.name, "rank": rank, "code": self.codes[rank], "output": words}
            print(json.dumps(line), flush=True)


def run(jobs: Iterable[Job], at_once: int) -> None:
    """Returns in the parent when all have ended, and in each worker when its body has: the
    interpreter then ends as any does."""
    prepare()
    waiting, running = list(jobs), []
    while waiting or running:
        while waiting and len(running) < at_once:
            job = waiting.pop(0)
            if not _start(job):
                return
            running.append(job)
        for job in [j for j in running if j.look()]:
            job.report()
            running.remove(job)
        time.sleep(0.02)


def prepare() -> None:
    """Must be called before this process forks. Keeps the garbage collector away from all that
    has been imported. In each worker it would search that when the interpreter ends, which
    takes more than a second of a core."""
    torch.set_num_threads(1)
    gc.freeze()


def _start(job: Job) -> bool:
    """False in a worker, which has done its work."""
    port = free_port()
    job.begun = time.monotonic()
    for rank in range(WORKERS):
        job.outputs.append(tempfile.TemporaryFile())  # noqa: SIM115  read when all have ended
        sys.stdout.flush()
        job.pids.append(os.fork())
        if job.pids[-1] == 0:
            os.dup2(job.outputs[-1].fileno(), 1)
            os.dup2(job.outputs[-1].fileno(), 2)
            store = dist.TCPStore("127.0.0.1", port, WORKERS, is_master=rank == 0)
            dist.init_process_group(
                "gloo",
                store=store,
                rank=rank,
                world_size=WORKERS,
                timeout=timedelta(seconds=LIMIT),
            )
            job.body()
            return False
    return True


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]
