"""A small training job for the workers of the tests of DiLoCo and LocalSGD."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import nn

import elastiquant

# The parts of a schedule that tests go through: one after the other, streaming, eager.
STREAMING = {"fragments": 2, "delay": 1, "mix": 0.5}
SCHEDULES = ({}, STREAMING, {"eager": True})


def make_model() -> nn.Module:
    """The same on every worker."""
    torch.manual_seed(1)
    first, more = nn.Linear(20, 30), (nn.Linear(8, 6), nn.Linear(6, 5))
    return nn.Sequential(first, nn.Tanh(), nn.Linear(30, 8), *more)


def make_inner(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def loss_of(model: nn.Module, number: int, rank: int) -> torch.Tensor:
    """Another batch for each step and worker."""
    random = torch.Generator().manual_seed(100 * number + rank)
    return model(torch.randn(8, 20, generator=random)).square().mean()


def start(kind: type = elastiquant.DiLoCo, **options):
    model = make_model()
    inner = make_inner(model)
    return model, inner, kind(model, inner, **options)


def train(model: nn.Module, inner: torch.optim.Optimizer, numbers: Iterable[int]) -> None:
    for number in numbers:
        inner.zero_grad()
        loss_of(model, number, dist.get_rank()).backward()
        inner.step()


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def anchor_of(rounds: elastiquant.DiLoCo) -> torch.Tensor:
    return torch.cat([a.flatten() for a in rounds.anchor().values()])


def check_same_everywhere(values: torch.Tensor, group: dist.ProcessGroup | None = None) -> None:
    said = [torch.empty_like(values) for _ in range(dist.get_world_size(group))]
    dist.all_gather(said, values, group=group)
    assert all(torch.equal(values, theirs) for theirs in said)
