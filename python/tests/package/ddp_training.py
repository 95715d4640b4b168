"""A small training job for the workers of the tests of compress()."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import elastiquant
from elastiquant import _compress

INPUTS, CLASSES = 24, 5


def make_model(dtype: torch.dtype = torch.float32) -> nn.Module:
    """The same on every worker."""
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Linear(INPUTS, 48),
        nn.Tanh(),
        nn.Linear(48, 48),
        nn.LayerNorm(48),
        nn.Tanh(),
        nn.Linear(48, CLASSES),
    ).to(dtype)


class Branches(nn.Module):
    """Parameters of which a step uses some."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(24, 24), nn.Linear(24, 24)
        self.never, self.last = nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, inputs: torch.Tensor, second: bool) -> torch.Tensor:
        return self.last(self.second(inputs) if second else self.first(inputs))


def make_ddp(model: nn.Module | None = None, **options) -> DistributedDataParallel:
    """In several of DDP's buckets, after the first step."""
    options.setdefault("bucket_cap_mb", 0.005)
    return DistributedDataParallel(make_model() if model is None else model, **options)


def batch(step: int, rank: int | None = None, size: int = 8) -> tuple[torch.Tensor, ...]:
    """Inputs and classes, another batch for each step and worker."""
    rank = dist.get_rank() if rank is None else rank
    generator = torch.Generator().manual_seed(1000 * step + rank)
    inputs = torch.randn(size, INPUTS, generator=generator)
    return inputs, inputs[:, :CLASSES].argmax(1)


def loss_of(model: nn.Module, step: int, **of_batch) -> torch.Tensor:
    inputs, classes = batch(step, **of_batch)
    dtype = next(model.parameters()).dtype
    return nn.functional.cross_entropy(model(inputs.to(dtype)).float(), classes)


def train(
    model: nn.Module, steps: Iterable[int], optimizer: torch.optim.Optimizer | None = None
) -> None:
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.05)
    for step in steps:
        optimizer.zero_grad()
        loss_of(model, step).backward()
        optimizer.step()


def flat(tensors: Iterable[torch.Tensor | None]) -> torch.Tensor:
    return torch.cat([t.detach().flatten().float() for t in tensors if t is not None])


def weights(model: nn.Module) -> torch.Tensor:
    return flat(model.parameters())


def gradients(model: nn.Module) -> torch.Tensor:
    return flat(p.grad for p in model.parameters())


def gradients_after(model: nn.Module, step: int) -> torch.Tensor:
    model.zero_grad()
    loss_of(model, step).backward()
    return gradients(model)


def gather(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Every worker's."""
    all_of_them = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(all_of_them, tensor)
    return all_of_them


def check_same_everywhere(tensor: torch.Tensor) -> None:
    first, *others = (t.view(torch.int32) for t in gather(tensor))
    assert all(torch.equal(first, other) for other in others), "replicas differ"


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found - expected).norm() / expected.norm()).item()


def make_uncompressed(**options: Any) -> DistributedDataParallel:
    """A model that is trained already, for which compress() has found that it does not pay."""
    logging.getLogger("elastiquant").setLevel(logging.ERROR)  # it tells so
    _compress.STEP_SECONDS = lambda fp32: 0.1 if fp32 else 0.2
    model = make_ddp()
    compression = elastiquant.compress(model, "dither:bits=2", **options)
    train(model, range(20))
    assert compression.stats().fp32_steps == 6
    return model
