"""An all-reduce of gradients at each step."""

from __future__ import annotations

import argparse

import torch

import elastiquant
from elastiquant_testbed.on_device.training import Training

# As `train` has it.
BUCKET_KIB = 256


class AllReduce(Training):
    """All workers share one network, which their turns see alike."""

    def __init__(self, o: argparse.Namespace):
        super().__init__(o)
        self.workers = virtual_workers(self.network, o, o.measure_every)
        self.optimizer = torch.optim.SGD(self._groups(), lr=o.lr, weight_decay=o.weight_decay)
        self.turns = self.make_turns(
            [self.network] * o.workers, self.workers.elements, self.workers.views
        )
        self.rows = self.workers.zeros()
        self.mean = torch.zeros(self.workers.elements, device=self.device)
        views = self.workers.views(self.mean)
        for parameter, view in zip(self.network.parameters(), views, strict=True):
            parameter.grad = view
        self.skipped = 0

    def make_step(self) -> None:
        """Moves the weights by the mean of what the workers send."""
        self.rows.copy_(self.turns.gradients)  # waits for the device
        self.workers.all_reduce(self.rows)
        stats = self.workers.stats()
        is_skipped = stats.skipped > self.skipped
        self.skipped = stats.skipped
        self.count_skipped(is_skipped, stats.skip_reason)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(self.step)
        if not is_skipped:
            self.mean.copy_(self.rows[0])
            self.optimizer.step()

    def set_epoch(self, epoch: int) -> None:
        self.workers.set_epoch(epoch)

    def stats(self) -> dict:
        stats = self.workers.stats()
        return {
            "nmse": stats.nmse,
            "skipped_steps": stats.skipped,
            "bytes_up": stats.bytes_up,
        }

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


def virtual_workers(
    network: torch.nn.Module, o: argparse.Namespace, measure_every: int
) -> elastiquant.VirtualWorkers:
    return elastiquant.VirtualWorkers(
        network,
        o.workers,
        o.codec,
        exact=o.exact,
        exchange=o.exchange,
        seed=o.seed,
        bucket_kib=BUCKET_KIB,
        measure_every=measure_every,
    )
