"""Workers of Gossip that go on without one that is lost.

usage: gossip_go_on.py [CASE ...], as FAULT/ALGORITHM/MOMENT/RANK; all of them if none is given

A worker that has come to the end says who is lost and what its weights are. See gossip_test.py,
which runs it, and forked_jobs.py for the output.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import sys
import time

import diloco_faults
from forked_jobs import WORKERS, Job, run
from gossip_checks import Job as Trained

TIMEOUT = 3.0
STEPS = 16
LAST = WORKERS - 1


def freezes() -> None:
    """Stands still for longer than the others wait, and wakes up."""
    frozen = os.getpid()
    if os.fork() == 0:
        time.sleep(4 * TIMEOUT)
        os.kill(frozen, signal.SIGCONT)
        os._exit(0)
    os.kill(frozen, signal.SIGSTOP)


FAULTS = diloco_faults.FAULTS | {"freezes": freezes}
ALGORITHMS = {
    "choco": {"graph": "ring", "codec": "dither:bits=2"},
    "sgp": {"graph": "exponential", "codec": "fp32"},
    "ad-psgd": {"graph": "star", "codec": "fp32"},
}
# After how many steps: in the midst of them, or where the others are to average their models.
MOMENTS = {"in-training": 5, "at-the-end": STEPS}


def rounds(fault: str, algorithm: str, moment: str, strikes: bool) -> None:
    options = ALGORITHMS[algorithm] | {"timeout": TIMEOUT, "on_loss": "go-on"}
    trained = Trained(algorithm=algorithm, **options)
    trained.steps(0, MOMENTS[moment])
    if strikes:
        FAULTS[fault]()
    trained.steps(MOMENTS[moment], STEPS)
    trained.gossip.finish()
    weights = hashlib.sha256(trained.weights().numpy().tobytes()).hexdigest()
    lost, neighbours = trained.gossip.lost, trained.gossip.neighbours
    print(json.dumps({"weights": weights, "lost": lost, "neighbours": neighbours}))
    trained.gossip.close()


def job(case: str) -> Job:
    fault, algorithm, moment, rank = case.split("/")

    def train() -> None:
        import torch.distributed as dist

        rounds(fault, algorithm, moment, dist.get_rank() == int(rank))

    return Job(case, int(rank), train)


def all_cases() -> list[str]:
    # Who freezes is given up only after a while, so one of these is enough.
    faults = [f for f in FAULTS if f != "freezes"]
    cases = ["/".join(c) for c in itertools.product(faults, ALGORITHMS, MOMENTS, [str(LAST)])]
    return [*cases, f"freezes/choco/in-training/{LAST}"]


if __name__ == "__main__":
    run(map(job, sys.argv[1:] or all_cases()), at_once=max(2, os.cpu_count() or 2))
