"""What scripts of checks share, one of which all workers of a job run: see ddp_test.py."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import elastiquant

CHECKS: dict[str, Callable[[], None]] = {}


def check(function: Callable[[], None]) -> Callable[[], None]:
    CHECKS[function.__name__] = function
    return function


def raises(kind: type[Exception], words: str) -> contextlib.AbstractContextManager:
    """Expects an error whose text matches."""

    @contextlib.contextmanager
    def expecting():
        try:
            yield
        except kind as e:
            assert re.search(words, str(e)), f"{words!r} is not in: {e}"
        else:
            raise AssertionError(f"no {kind.__name__}: {words}")

    return expecting()


@contextlib.contextmanager
def logged(level: int = logging.WARNING):
    """What elastiquant says in its log meanwhile, a list of lines."""
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())
    log = logging.getLogger("elastiquant")
    level_before = log.level
    log.setLevel(level)
    log.addHandler(handler)
    log.propagate = False
    try:
        yield lines
    finally:
        log.removeHandler(handler)
        log.propagate = True
        log.setLevel(level_before)


def check_scaler_is_warned_of(train: Callable[[], None]) -> None:
    """Checks that workers which must all make the same number of steps warn of a GradScaler
    while there is one. `train` makes such workers, has them train, and closes them."""
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    for in_use in (True, False):
        with logged() as lines:
            train()
        assert len(lines) == in_use, lines
        assert all("GradScaler is in use, which skips steps on single" in s for s in lines)
        scaler = None


def compress(model: DistributedDataParallel, codec: str = "dither:bits=2", **options):
    """Always compressing: whether that pays is a matter of time."""
    return elastiquant.compress(model, codec, switch=False, **options)


def main() -> None:
    """Runs the checks that the arguments name, or all: says "ok NAME RANK" for each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=30))
    for name in sys.argv[1:] or CHECKS:
        CHECKS[name]()
        # One write each, as all workers have the same output.
        sys.stdout.write(f"ok {name} {dist.get_rank()}\n")
        sys.stdout.flush()
    dist.destroy_process_group()
    # A group of PyTorch's outlives this where an optimiser has been made, and its threads need
    # the GIL to let go of the last collective's tensors. One that asks for it while Python ends
    # aborts the process ("terminate called without an active exception", torch 2.13).
    time.sleep(0.5)
