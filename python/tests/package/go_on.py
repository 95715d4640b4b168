"""Workers of Gossip and DiLoCo that go on without one that is lost.

usage: go_on.py [CASE ...], as FAULT/KIND/MOMENT; all of them if none is given

The last worker is the one that is lost. One that has come to the end says who was lost and what
its weights are. See go_on_test.py, which runs it, and forked_jobs.py for the output.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diloco_faults
import diloco_training
import gossip_training
import torch
import torch.distributed as dist
from forked_jobs import WORKERS, Job, run

import elastiquant

TIMEOUT = 10.0  # on a busy machine a heart may not beat for a while
STEPS = 16
LAST = WORKERS - 1
# After how many steps: in the midst of them, or where the models of the others become one.
MOMENTS = {"in-training": 5, "at-the-end": STEPS}


def freezes() -> None:
    """Stands still for longer than the others wait, and wakes up."""
    frozen = os.getpid()
    if os.fork() == 0:
        time.sleep(3 * TIMEOUT)
        os.kill(frozen, signal.SIGCONT)
        os._exit(0)
    os.kill(frozen, signal.SIGSTOP)


FAULTS = diloco_faults.FAULTS | {"freezes": freezes}


class Training:
    """steps: trains from one step to another; session: what goes on."""

    steps: Callable[[int, int], None]
    weights: Callable[[], torch.Tensor]
    session: Any


class Gossip(Training):
    def __init__(self, **options):
        job = gossip_training.Job(timeout=TIMEOUT, on_loss="go-on", **options)
        self.steps, self.weights, self.session = job.steps, job.weights, job.gossip


def on_a_path() -> Training:
    """With the one that is lost in the middle, so that the others reach nobody any more."""
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder)
        path = Path(folder[0], "path.txt")
        if dist.get_rank() == 0:
            path.write_text("".join(f"{worker} {LAST}\n" for worker in range(LAST)))
        dist.barrier()
        return Gossip(algorithm="choco", graph=str(path), codec="fp32")


class Rounds(Training):
    def __init__(self, **options):
        options |= {"timeout": TIMEOUT, "on_loss": "go-on", "weight": 1.0 + dist.get_rank()}
        model, inner, self.session = diloco_training.start(**options)
        self.weights = lambda: diloco_training.weights(model)
        self.steps = lambda first, last: diloco_training.train(model, inner, range(first, last))


KINDS: dict[str, Callable[[], Training]] = {
    "choco": lambda: Gossip(algorithm="choco", graph="ring", codec="dither:bits=2"),
    "sgp": lambda: Gossip(algorithm="sgp", graph="exponential", codec="fp32"),
    "ad-psgd": lambda: Gossip(algorithm="ad-psgd", graph="star", codec="fp32"),
    "on-a-path": on_a_path,
    "diloco": lambda: Rounds(every=3),
    "fragments": lambda: Rounds(every=2, fragments=2, codec="topk:ratio=0.1|ef"),
    "local-sgd": lambda: Rounds(kind=elastiquant.LocalSGD, every=5, codec="fp32"),
}


# Whose workers try to go back to a state that they had together with the one that is lost.
GOES_BACK = ("choco", "ad-psgd")


def refuses(session: elastiquant.Gossip, state: dict[str, torch.Tensor]) -> None:
    try:
        session.load_state_dict(state)
    except ValueError as error:
        assert "workers have been lost, and a state is of all" in str(error), error
    else:
        raise AssertionError("it goes back to a state of all workers")


def train(fault: str, kind: str, moment: str) -> None:
    training = KINDS[kind]()
    training.steps(0, MOMENTS[moment])
    goes_back = kind in GOES_BACK and moment == "in-training"
    before = training.session.state_dict() if goes_back else {}
    if dist.get_rank() == LAST:
        FAULTS[fault]()
    training.steps(MOMENTS[moment], STEPS)
    session = training.session
    if goes_back:
        refuses(session, before)
    if isinstance(session, elastiquant.Gossip):
        session.check_replicas()
    session.finish()
    weights = hashlib.sha256(training.weights().numpy().tobytes()).hexdigest()
    session.close()  # which forgets nothing of what is told
    end = {"weights": weights, "lost": session.lost, "rounds": session.rounds}
    if isinstance(session, elastiquant.Gossip):
        end["parts"] = session.parts
    print(json.dumps(end))


def job(case: str) -> Job:
    return Job(case, LAST, lambda: train(*case.split("/")))


def all_cases() -> list[str]:
    """Every kind with a killed worker, and two of them with all other faults."""
    cases = [*itertools.product(["is_killed"], KINDS, MOMENTS)]
    for kind in ("choco", "diloco"):
        cases += itertools.product(["raises", "ends"], [kind], MOMENTS)
        cases.append(("freezes", kind, "in-training"))
    return ["/".join(case) for case in cases]


if __name__ == "__main__":
    run(map(job, sys.argv[1:] or all_cases()), at_once=max(2, os.cpu_count() or 2))
