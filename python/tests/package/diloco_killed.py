"""Workers of DiLoCo and LocalSGD that go on from what each has saved, after one was killed.

usage: diloco_killed.py FOLDER CASE ..., as whole/KIND, killed/KIND/MOMENT/RANK, and then
resumed/KIND/MOMENT/RANK of the same folder, in which workers save

A worker that has come to the end says what its own model was, and what all end with. See
diloco_killed_test.py, which runs it, and forked_jobs.py for the output.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from diloco_training import STREAMING, train
from forked_jobs import WORKERS, Job, run
from torch import nn

import elastiquant

STEPS = 14
# After how many steps, of rounds of four. In a stream a mean is under way after the eighth, and
# of an eager worker always. One that is killed while it saves has an older state than others.
MOMENTS = {"between-steps": 8, "while-saving": 9}
RANKS = (0, WORKERS - 1)
KINDS = {
    "diloco": (elastiquant.DiLoCo, {}),
    "streaming": (elastiquant.DiLoCo, STREAMING),
    "eager": (elastiquant.DiLoCo, {"eager": True}),
    "local-sgd": (elastiquant.LocalSGD, {}),
}


class Training:
    def __init__(self, kind: str):
        torch.manual_seed(1)
        self.model = nn.Sequential(
            nn.Linear(20, 30), nn.BatchNorm1d(30), nn.Tanh(), nn.Linear(30, 5)
        )
        self.inner = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        rounds, options = KINDS[kind]
        options = options | {"every": 4, "codec": "elastic:bits=2|ef", "timeout": 10.0}
        self.rounds = rounds(self.model, self.inner, **options)

    @property
    def parts(self) -> dict:
        return {"model": self.model, "inner": self.inner, "rounds": self.rounds}

    def save(self, path: Path, before_it_counts=lambda: None) -> None:
        new = path.with_suffix(".new")
        torch.save({name: part.state_dict() for name, part in self.parts.items()}, new)
        before_it_counts()
        os.replace(new, path)

    def load(self, path: Path) -> None:
        saved = torch.load(path)
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])

    def digest(self) -> str:
        values = [t.numpy().tobytes() for t in self.model.state_dict().values()]
        return hashlib.sha256(b"".join(values)).hexdigest()

    def end(self) -> None:
        own = self.digest()
        self.rounds.finish()
        said = {"own": own, "shared": self.digest(), "rounds": self.rounds.rounds}
        print(json.dumps(said))
        self.rounds.close()


def whole(kind: str) -> None:
    training = Training(kind)
    train(training.model, training.inner, range(STEPS))
    training.end()


def path_of(folder: Path, step: int | str) -> Path:
    return folder / f"worker{dist.get_rank()}-step{step}.pt"


def is_killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def killed(folder: Path, kind: str, moment: str, rank: int) -> None:
    training = Training(kind)
    for step in range(1, STEPS + 1):
        train(training.model, training.inner, [step - 1])
        now = step == MOMENTS[moment] and dist.get_rank() == rank
        dies_saving = now and moment == "while-saving"
        training.save(path_of(folder, step), is_killed if dies_saving else lambda: None)
        if now:
            is_killed()


def resumed(folder: Path, kind: str) -> None:
    """From the newest state that all workers have."""
    own = folder.glob(path_of(folder, "*").name)
    newest = torch.tensor(max(int(path.stem.partition("-step")[2]) for path in own))
    dist.all_reduce(newest, dist.ReduceOp.MIN)
    training = Training(kind)
    training.load(path_of(folder, int(newest)))
    train(training.model, training.inner, range(int(newest), STEPS))
    training.end()


def job(folder: Path, case: str) -> Job:
    phase, kind, *more = case.split("/")
    if phase == "whole":
        return Job(case, WORKERS - 1, lambda: whole(kind))
    moment, rank = more
    own = folder / "-".join((kind, moment, rank))
    own.mkdir(exist_ok=True)
    bodies = {
        "killed": lambda: killed(own, kind, moment, int(rank)),
        "resumed": lambda: resumed(own, kind),
    }
    return Job(case, int(rank), bodies[phase])


def all_cases(phase: str) -> list[str]:
    """Each kind is killed at each moment, in one of two ranks."""
    if phase == "whole":
        return [f"whole/{kind}" for kind in KINDS]
    pairs = itertools.product(enumerate(KINDS), enumerate(MOMENTS))
    return [f"{phase}/{kind}/{moment}/{RANKS[(k + m) % 2]}" for (k, kind), (m, moment) in pairs]


if __name__ == "__main__":
    place = Path(sys.argv[1])
    run((job(place, case) for case in sys.argv[2:]), at_once=max(2, os.cpu_count() or 2))
