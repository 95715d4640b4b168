"""An all-reduce of gradients at each step."""

from __future__ import annotations

import argparse

import torch

import elastiquant
from elastiquant_testbed.on_device.one_process import OneProcess


class AllReduce(OneProcess):
    """All workers share one network, which their turns see alike."""

    def __init__(self, o: argparse.Namespace):
        super().__init__(o, o.measure_every)
        self.optimizer = torch.optim.SGD(self._groups(), lr=o.lr, weight_decay=o.weight_decay)
        self.turns = self.make_turns(
            [self.network] * o.workers, self.workers.elements, self.workers.views
        )
        self.mean = torch.zeros(self.workers.elements, device=self.device)
        views = self.workers.views(self.mean)
        for parameter, view in zip(self.network.parameters(), views, strict=True):
            parameter.grad = view

    def make_step(self) -> None:
        """Moves the weights by the mean of what the workers send."""
        mean = self.average(self.turns.gradients)
        if mean is not None:
            self.mean.copy_(mean)
            self.move(self.optimizer)

    def set_epoch(self, epoch: int) -> None:
        self.workers.set_epoch(epoch)

    def _groups(self) -> list[dict]:
        """By momentum. What a codec with a momentum of its own leaves exact has that in the
        optimiser."""
        own = elastiquant.Codec(self.o.codec)._momentum
        by: dict[tuple[float, bool], list[torch.nn.Parameter]] = {}
        named = dict(self.network.named_parameters())
        for name, spec in self.workers.codecs.items():
            is_left = own is not None and spec == "fp32"
            by.setdefault(own if is_left else (self.o.momentum, False), []).append(named[name])
        return [
            {"params": parameters, "momentum": momentum, "nesterov": nesterov}
            for (momentum, nesterov), parameters in by.items()
        ]
