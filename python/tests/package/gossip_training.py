"""A small training by elastiquant.Gossip, for gossip_test.py and go_on_test.py."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn

import elastiquant


def model_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


class Job:
    """A worker that trains on data of its own; all see other classes."""

    def __init__(self, rate: float = 0.05, compiled: bool = False, **options):
        self.rank = dist.get_rank()
        self.model = model_of(self.rank)  # which are made alike
        if compiled:
            self.model = torch.compile(self.model, backend="eager", fullgraph=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)
        options = {"timeout": 30.0} | options
        self.gossip = elastiquant.Gossip(self.optimizer, self.model, **options)

    def loss(self, number: int) -> torch.Tensor:
        random = torch.Generator().manual_seed(1000 * number + self.rank)
        inputs = torch.randn(16, 8, generator=random)
        targets = (inputs[:, : 1 + self.rank % 4].sum(1) > 0).long() + self.rank % 2
        return nn.functional.cross_entropy(self.model(inputs), targets)

    def step(self, number: int) -> float:
        loss = self.loss(number)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def steps(self, first: int, last: int) -> None:
        for number in range(first, last):
            self.step(number)

    def weights(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def everyones(values: torch.Tensor) -> list[torch.Tensor]:
    found = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(found, values)
    return found


CASES = (
    {"algorithm": "dpsgd", "codec": "fp32", "graph": "ring"},
    {"algorithm": "choco", "codec": "dither:bits=2", "graph": "one-peer-exponential"},
    {"algorithm": "choco", "codec": "dither:bits=2", "graph": "ring", "delay": 1},
    {"algorithm": "gradient-tracking", "codec": "fp32", "graph": "complete"},
    {"algorithm": "noloco", "codec": "fp32", "graph": "random-pairs", "every": 4},
    {"algorithm": "ad-psgd", "codec": "fp32", "graph": "star"},
)
