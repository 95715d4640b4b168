"""How jobs under compress() end when something goes wrong, and when nothing does.

See ddp_test.py, which runs it, and forked_jobs.py, which says how. What a fault does where is
told by fault_matrix.py.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
import torch.distributed as dist
from ddp_training import loss_of, make_ddp, train
from forked_jobs import Job, run

import elastiquant

FAULTY, FAULT_STEP = 1, 5
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
def closing_within_a_step():
    """And the others catch what is raised, and end well."""
    model = model_that(lambda: model._elastiquant.close())
    try:
        train(model, range(50))
    except RuntimeError as e:
        print(f"{type(e).__name__}: {e}")


@case
def raising_within_a_with_statement():
    model = make_ddp()
    with elastiquant.compress(model, "dither:bits=2", timeout=2, switch=False):
        train(model, range(FAULT_STEP))
        if dist.get_rank() == FAULTY:
            raise ArithmeticError("of my own\nin two lines")
        train(model, range(50))


@case
def ending_within_a_with_statement():
    model = make_ddp()
    with elastiquant.compress(model, "dither:bits=2", switch=False):
        train(model, range(4))
        sys.exit()


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


if __name__ == "__main__":
    run([Job(name, FAULTY, CASES[name]) for name in sys.argv[1:] or CASES], at_once=2)
