"""How jobs under compress() end when something goes wrong, and when nothing does.

Imports torch once and forks the workers of each case: see ddp_test.py. Says, as a line of JSON
for each case, how each worker ended: {"case", "rank", "code", "seconds" (after the fault),
"output"}.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta

import torch
import torch._dynamo  # which optimizers would import after the fork, in each worker
import torch.distributed as dist
from ddp_training import loss_of, make_ddp, train

import elastiquant

WORKERS, FAULTY, FAULT_STEP = 3, 1, 5
CASES: dict[str, Callable[[], None]] = {}


def case(function: Callable[[], None]) -> Callable[[], None]:
    CASES[function.__name__] = function
    return function


def model_that(fault: Callable[[], None] | None = None):
    """Compressed; the faulty worker meets the fault within a backward, late in it."""
    model = make_ddp()
    elastiquant.compress(model, "dither:bits=2", timeout=2, switch=False)
    backwards = 0

    def count(_: torch.Tensor) -> None:
        nonlocal backwards
        backwards += 1
        if fault and backwards == FAULT_STEP and dist.get_rank() == FAULTY:
            fault()

    # Of the first layer: by then the gradients of the others are on their way.
    model.module[0].weight.register_hook(count)
    return model


@case
def killed_within_a_step():
    train(model_that(lambda: os.kill(os.getpid(), signal.SIGKILL)), range(50))


@case
def stopped_within_a_step():
    train(model_that(lambda: os.kill(os.getpid(), signal.SIGSTOP)), range(50))


@case
def raising_within_a_step():
    def fail() -> None:
        raise ArithmeticError("of my own")

    train(model_that(fail), range(50))


@case
def raising_between_steps():
    model = model_that()
    train(model, range(FAULT_STEP))
    if dist.get_rank() == FAULTY:
        raise ArithmeticError("of my own")
    train(model, range(50))


@case
def closing_within_a_step():
    """And the others catch what is raised, and end well."""
    model = model_that(lambda: model._elastiquant.close())
    try:
        train(model, range(50))
    except RuntimeError as e:
        print(f"{type(e).__name__}: {e}")


@case
def ending_without_closing_anything():
    train(model_that(), range(4))


@case
def ending_after_destroying_the_group():
    train(model_that(), range(4))
    dist.destroy_process_group()


@case
def ending_before_the_first_step():
    model_that()


@case
def ending_with_the_model_dropped():
    for _ in range(3):
        model = model_that()
        loss_of(model, 0).backward()
        del model


@case
def ending_after_collectives():
    for destroy in (False, True):
        pair = dist.new_group([0, 2])  # whose connections end with it
        if dist.get_rank() != FAULTY:
            elastiquant.all_reduce(torch.ones(100), "dither:bits=4", group=pair)
        elastiquant.all_reduce(torch.ones(100), "dither:bits=4")
        if destroy:
            dist.destroy_process_group()


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def work(name: str, rank: int, port: int, output: int) -> None:
    """The worker's whole life; returns where the interpreter ends as any does."""
    os.dup2(output, 1)
    os.dup2(output, 2)
    store = dist.TCPStore("127.0.0.1", port, WORKERS, is_master=rank == 0)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=WORKERS, timeout=timedelta(seconds=20)
    )
    CASES[name]()


def await_workers(pids: list[int]) -> list[tuple[int, float]]:
    """Exit code, negative for a signal, and the time of each; hanging ones are killed."""
    ended: dict[int, tuple[int, float]] = {}
    begun = time.monotonic()
    others = [pid for rank, pid in enumerate(pids) if rank != FAULTY]
    while len(ended) < len(pids):
        for pid in pids:
            if pid not in ended and (found := os.waitpid(pid, os.WNOHANG))[0]:
                code = os.waitstatus_to_exitcode(found[1])
                ended[pid] = (code, time.monotonic())
        late = time.monotonic() > begun + 30
        # The faulty worker may be a stopped one.
        if late or all(pid in ended for pid in others):
            grace = 0 if late else 3
            if late or time.monotonic() > max(ended[p][1] for p in others) + grace:
                for pid in pids:
                    if pid not in ended:
                        os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)
    return [ended[pid] for pid in pids]


def main() -> None:
    torch.set_num_threads(1)
    for name in sys.argv[1:] or CASES:
        port, pids, outputs = free_port(), [], []
        begun = time.monotonic()
        for rank in range(WORKERS):
            outputs.append(tempfile.TemporaryFile())  # noqa: SIM115  read when all have ended
            pids.append(os.fork())
            if pids[-1] == 0:
                work(name, rank, port, outputs[-1].fileno())
                return
        for rank, (code, at) in enumerate(await_workers(pids)):
            outputs[rank].seek(0)
            line = {"case": name, "rank": rank, "code": code, "seconds": at - begun}
            line["output"] = outputs[rank].read().decode(errors="replace")
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
