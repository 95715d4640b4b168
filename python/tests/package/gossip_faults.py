"""What a worker of Gossip that dies does to the others.

usage: gossip_faults.py [CASE ...], as FAULT/ALGORITHM/RANK; all of them if none is given

See gossip_test.py, which runs it, and forked_jobs.py for the output.
"""

from __future__ import annotations

import itertools
import os
import sys

from diloco_faults import FAULTS, TIMEOUT
from forked_jobs import WORKERS, Job, run
from gossip_training import Job as Trained

# On graphs of any size. Of AD-PSGD one side asks and the other answers.
ALGORITHMS = {"choco": "ring", "ad-psgd": "star"}
RANKS = (0, WORKERS - 1)


def rounds(fault: str, algorithm: str, strikes: bool) -> None:
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
    return ["/".join(map(str, c)) for c in itertools.product(FAULTS, ALGORITHMS, RANKS)]


if __name__ == "__main__":
    run(map(job, sys.argv[1:] or all_cases()), at_once=max(2, os.cpu_count() or 2))
