"""What a worker of Gossip that dies does to the others.

usage: gossip_faults.py [CASE ...], as FAULT/ALGORITHM/RANK; all of them if none is given

See gossip_test.py, which runs it, and forked_jobs.py for the output.
"""

from __future__ import annotations

import itertools
import os
import sys
from unittest import mock

from diloco_faults import FAULTS, TIMEOUT, is_killed
from forked_jobs import WORKERS, Job, run
from gossip_training import Job as Trained

from elastiquant import _gossip

AT_THE_START = "is_killed_at_the_start"
# On graphs of any size. Of AD-PSGD one side asks and the other answers.
ALGORITHMS = {"choco": "ring", "ad-psgd": "star"}
RANKS = (0, WORKERS - 1)


def is_killed_there(*_: object) -> None:
    """In place of SameRound: all workers are connected, and this one dies before it has come
    to the store."""
    is_killed()


def rounds(fault: str, algorithm: str, strikes: bool) -> None:
    at_the_store = strikes and fault == AT_THE_START
    come = is_killed_there if at_the_store else _gossip.SameRound
    with mock.patch.object(_gossip, "SameRound", come):
        trained = Trained(algorithm=algorithm, graph=ALGORITHMS[algorithm], timeout=TIMEOUT)
    trained.steps(0, 5)
    if strikes:
        FAULTS[fault]()
    trained.steps(5, 12)
    trained.gossip.finish()
    trained.gossip.close()


def job(case: str) -> Job:
    fault, algorithm, rank = case.split("/")

    def train() -> None:
        import torch.distributed as dist

        rounds(fault, algorithm, dist.get_rank() == int(rank))

    return Job(case, int(rank), train)


def all_cases() -> list[str]:
    faults = (AT_THE_START, *FAULTS)
    return ["/".join(map(str, c)) for c in itertools.product(faults, ALGORITHMS, RANKS)]


if __name__ == "__main__":
    run(map(job, sys.argv[1:] or all_cases()), at_once=max(2, os.cpu_count() or 2))
