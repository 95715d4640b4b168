"""Starts a script as torchrun does, on workers forked from one process that has imported torch.

usage: forked_ranks.py WORKERS SCRIPT [ARGUMENT...]

To import torch takes torchrun and each of its workers seconds of a core; here forked_jobs.py
imports it once. The workers' output is this script's. The first worker that fails ends the
others, and its exit status is this script's, too.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys

from forked_jobs import free_port, prepare


def main() -> int:
    workers, words = int(sys.argv[1]), sys.argv[2:]
    prepare()
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    pids = set()
    for rank in range(workers):
        pid = os.fork()
        if pid == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            os.environ |= {"WORLD_SIZE": str(workers), "LOCAL_WORLD_SIZE": str(workers)}
            sys.argv = words
            runpy.run_path(words[0], run_name="__main__")
            return 0  # the interpreter ends as any does
        pids.add(pid)
    return first_failure(pids)


def first_failure(pids: set[int]) -> int:
    """Waits for all of them: 0, or the exit status of the first that failed."""
    status = 0
    while pids:
        pid, waited = os.wait()
        pids.remove(pid)
        code = os.waitstatus_to_exitcode(waited)
        if code and not status:
            status = code if code > 0 else 128 - code
            for other in pids:
                os.kill(other, signal.SIGTERM)
    return status


if __name__ == "__main__":
    sys.exit(main())
