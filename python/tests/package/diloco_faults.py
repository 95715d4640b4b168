"""What a worker of DiLoCo that dies does to the others, wherever it does.

usage: diloco_faults.py [CASE ...], as FAULT/MOMENT/RANK; all of them if none is given

See diloco_test.py, which runs it, and forked_jobs.py for the output.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
from collections.abc import Callable

import torch.distributed as dist
from diloco_training import start, train
from forked_jobs import WORKERS, Job, run

TIMEOUT = 5.0  # of which a busy machine may take a good part before a heart beats
# Rounds of four steps, whose means are applied two steps after they were sent.
EVERY, DELAY, STEPS = 4, 2, 16
# After how many steps. A mean is under way from the eighth to the tenth. Before the first one
# is sent, the others ask a store, which a lost worker 0 takes with it, whether all start alike.
MOMENTS = {
    "before_the_first_round": 3,
    "while_training_alone": 7,
    "while_a_mean_travels": 9,
    "at_the_end": STEPS,
}
RANKS = (0, WORKERS - 1)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raises() -> None:
    raise ArithmeticError("of my own")


def ends() -> None:
    sys.exit(0)


FAULTS = {f.__name__: f for f in (is_killed, raises, ends)}


def rounds(act: Callable[[], None], after: int, rank: int) -> None:
    model, inner, diloco = start(every=EVERY, delay=DELAY, timeout=TIMEOUT)
    train(model, inner, range(after))
    if dist.get_rank() == rank:
        act()
    train(model, inner, range(after, STEPS))
    diloco.finish()
    diloco.close()


def job(case: str) -> Job:
    act, moment, rank = case.split("/")
    return Job(case, int(rank), lambda: rounds(FAULTS[act], MOMENTS[moment], int(rank)))


def all_cases() -> list[str]:
    return ["/".join(map(str, c)) for c in itertools.product(FAULTS, MOMENTS, RANKS)]


if __name__ == "__main__":
    run(map(job, sys.argv[1:] or all_cases()), at_once=max(2, os.cpu_count() or 2))
