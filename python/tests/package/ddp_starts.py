"""Checks of workers under compress() that go on from different states, as torchrun starts them:
see ddp_test.py. Arguments and output are those of ddp_checks.py.

All of them end with errors, of which PyTorch's store may have something to say, too.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from checking import check, compress, main, raises
from ddp_training import make_ddp, train
from torch.nn.parallel import DistributedDataParallel


def state_after(steps: int) -> dict[str, Any]:
    model = make_ddp()
    with compress(model, "topk:ratio=0.1|ef") as compression:
        train(model, range(steps))
        return compression.state_dict()


def check_all_are_told(model: DistributedDataParallel, words: str) -> None:
    """Every worker gets an error, be it its own or another's that it is told of."""
    with raises(RuntimeError, words):
        train(model, range(4))
    model._elastiquant.close()
    dist.barrier()


@check
def workers_that_load_states_of_different_steps_are_told():
    first = dist.get_rank() == 0
    states = {steps: state_after(steps) for steps in (4, 6)}
    model = make_ddp()
    compression = compress(model, "topk:ratio=0.1|ef")
    compression.load_state_dict(states[4 if first else 6])
    words = "different steps, worker 0 from step 4, workers 1, 2 from step 6: load on each"
    check_all_are_told(model, words)
    model = make_ddp()
    compression = compress(model, "topk:ratio=0.1|ef")
    if first:
        compression.load_state_dict(states[4])
    check_all_are_told(model, "worker 0 from step 4, workers 1, 2 from step 0: load on each")


@check
def a_worker_that_alone_loads_between_two_steps_is_told():
    model = make_ddp()
    compression = compress(model, "topk:ratio=0.1|ef")
    train(model, range(2))
    saved = compression.state_dict()
    compression.load_state_dict(saved)  # together they may
    train(model, range(2, 5))
    if dist.get_rank() == 1:
        compression.load_state_dict(saved)
    words = "workers 0, 2 loaded no state when the others did, which go on from step 2"
    check_all_are_told(model, words)


@check
def it_is_told_where_statistics_begin_anew_after_each_step():
    model = make_ddp()
    compression = compress(model, "topk:ratio=0.1|ef")
    train(model, range(2))
    compression.reset_stats()
    saved = compression.state_dict()
    if dist.get_rank() == 1:
        compression.load_state_dict(saved)
    words = "workers 0, 2 loaded no state when the others did, which go on from step 2"
    with raises(RuntimeError, words):
        for step in range(2, 6):
            train(model, [step])
            compression.reset_stats()
    compression.close()
    dist.barrier()


if __name__ == "__main__":
    main()
