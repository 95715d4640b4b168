"""What a fault of one worker does to the others, wherever it strikes.

usage: fault_matrix.py [CASE ...], as API/FAULT/MOMENT/RANK; all of them if none is given

See fault_test.py, which runs it, and forked_jobs.py for the output.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from ddp_training import loss_of, make_ddp, make_model, make_uncompressed, train
from forked_jobs import WORKERS, Job, run
from torch.nn.parallel import DistributedDataParallel

import elastiquant
from elastiquant import _collectives

TIMEOUT = 5.0  # of which a busy machine may take a good part before a heart beats
FAULT_STEP, STEPS = 5, 12


def raises() -> None:
    raise ArithmeticError("of my own")


def ends() -> None:
    sys.exit(0)


def exits() -> None:
    os._exit(0)


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def is_stopped() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


FAULTS = {f.__name__: f for f in (raises, ends, exits, is_killed, is_stopped)}
MOMENTS = ("between_steps", "within_a_step", "in_evaluation", "while_others_leave")
RANKS = (0, WORKERS - 1)


@dataclass
class Fault:
    act: Callable[[], None]
    moment: str
    rank: int

    def is_due(self, moment: str, step: int = FAULT_STEP) -> bool:
        return (moment, step, dist.get_rank()) == (self.moment, FAULT_STEP, self.rank)

    def strike(self, moment: str, step: int = FAULT_STEP) -> None:
        if self.is_due(moment, step):
            self.act()


def compress(fault: Fault) -> None:
    model = make_ddp()
    elastiquant.compress(model, "dither:bits=2", timeout=TIMEOUT, switch=False)
    train_with(fault, model)


def uncompressed(fault: Fault) -> None:
    """In steps that compress() leaves to the model's own process group."""
    train_with(fault, make_uncompressed(timeout=TIMEOUT))


def train_with(fault: Fault, model: DistributedDataParallel) -> None:
    backwards = itertools.count()
    # Of the first layer: by then the gradients of the others are on their way.
    model.module[0].weight.register_hook(
        lambda _: fault.strike("within_a_step", next(backwards))
    )
    for step in range(STEPS):
        fault.strike("between_steps", step)
        train(model, [step])
        if step == FAULT_STEP:
            evaluate(model.module, fault)
    leave(fault)


def all_reduce(fault: Fault) -> None:
    _collectives._TIMEOUT = TIMEOUT
    tensor = torch.arange(100_000.0)
    for step in range(STEPS):
        fault.strike("between_steps", step)
        work = elastiquant.all_reduce(tensor, "dither:bits=4", async_op=True)
        fault.strike("within_a_step", step)
        work.wait()
        if step == FAULT_STEP:
            evaluate(make_model(), fault)
    leave(fault)


APIS = {f.__name__: f for f in (compress, uncompressed, all_reduce)}


def evaluate(module: torch.nn.Module, fault: Fault) -> None:
    """Takes a worker longer the higher its rank, so that some wait and some do not."""
    fault.strike("in_evaluation")
    with torch.no_grad():
        for step in range(2 + 4 * dist.get_rank()):
            loss_of(module, step)
            time.sleep(0.05)


def leave(fault: Fault) -> None:
    if fault.is_due("while_others_leave"):
        time.sleep(0.1)  # the others are on their way
    fault.strike("while_others_leave")


def job(case: str) -> Job:
    api, act, moment, rank = case.split("/")
    fault = Fault(FAULTS[act], moment, int(rank))
    grace = {"grace": 1.0} if fault.act is is_stopped else {}
    return Job(case, fault.rank, lambda: APIS[api](fault), **grace)


def all_cases() -> list[str]:
    return ["/".join(map(str, c)) for c in itertools.product(APIS, FAULTS, MOMENTS, RANKS)]


if __name__ == "__main__":
    run(map(job, sys.argv[1:] or all_cases()), at_once=max(2, os.cpu_count() or 2))
