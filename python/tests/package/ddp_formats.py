"""Models in other memory formats under compress(): see ddp_checks.py."""

from __future__ import annotations

import json
from typing import Any

import torch
import torch.distributed as dist
from checking import check, compress, raises
from ddp_training import check_same_everywhere, weights
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import elastiquant
from elastiquant import _model

FORMATS = (torch.contiguous_format, torch.channels_last)


def start(memory_format: torch.memory_format, codec: str = "topk:ratio=0.1|ef"):
    torch.manual_seed(5)
    convolutions = nn.Conv2d(4, 6, 3), nn.Conv2d(6, 4, 1)
    model = nn.Sequential(*convolutions).to(memory_format=memory_format)
    ddp = DistributedDataParallel(model)
    return ddp, compress(ddp, codec)


def train(model: DistributedDataParallel, steps: int) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(steps):
        random = torch.Generator().manual_seed(100 * step + dist.get_rank())
        optimizer.zero_grad()
        model(torch.randn(2, 4, 6, 6, generator=random)).square().mean().backward()
        optimizer.step()


def state_in(memory_format: torch.memory_format, codec: str = "topk:ratio=0.1|ef"):
    model, compression = start(memory_format, codec)
    train(model, 3)
    return compression.state_dict()


def without_orders(state: dict[str, Any]) -> dict[str, Any]:
    """As earlier versions saved it."""
    key = f"rank{dist.get_rank()}/identity"
    identity = json.loads(state[key])
    for of_parameter in identity["parameters"].values():
        of_parameter.pop("order", None)
    return state | {key: json.dumps(identity)}


@check
def a_state_of_another_memory_format_is_refused():
    for had, has in (FORMATS, FORMATS[::-1]):
        state = state_in(had)
        model, compression = start(has)
        words = "dimensions of '0.weight' lay in memory in the order 0 .*: bring the model into"
        with raises(elastiquant.CorruptFrameError, words):
            compression.load_state_dict(state)
        compression.load_state_dict(without_orders(state))
        model, compression = start(had)
        compression.load_state_dict(state)
        train(model, 2)
        check_same_everywhere(weights(model))


@check
def where_nothing_is_remembered_any_memory_format_goes():
    for had, has in (FORMATS, FORMATS[::-1]):
        state = state_in(had, "dither:bits=2")
        start(has, "dither:bits=2")[1].load_state_dict(state)


@check
def an_order_in_memory_has_the_dimensions_that_count():
    wide = torch.zeros(6, 4, 3, 3)
    for tensor, order in (
        (wide, "0 1 2 3"),
        (wide.to(memory_format=torch.channels_last), "0 2 3 1"),
        (torch.zeros(6, 4, 1, 1).to(memory_format=torch.channels_last), "0 1"),
        (torch.zeros(4, 6).t(), "1 0"),
        (torch.zeros(5), "0"),
        (torch.zeros(()), ""),
    ):
        assert _model.order_in_memory(tensor) == order, (order, tensor.stride())
