"""Local SGD and DiLoCo: workers train alone for some steps, then average how far they moved."""

from __future__ import annotations

import argparse
import copy

import torch

from elastiquant_testbed.on_device.one_process import OneProcess


class LocalRounds(OneProcess):
    """Each worker has weights of its own, which are a row of one tensor.

    A round ends every `--every` steps and after the last one. What the workers have moved since
    the anchor, which all share, is averaged under the codec. The anchor moves by the mean as if
    it were a gradient, with DiLoCo's outer momentum (Nesterov's) and rate, and all go on from
    there. Local SGD has a rate of 1 and no momentum. The inner optimiser's momentum stays the
    worker's own.
    """

    averaged = "rounds"

    def __init__(self, o: argparse.Namespace):
        if o.every < 1:
            raise ValueError(f"--every {o.every} is less than 1")
        super().__init__(o, measure_every=1)
        elements = self.workers.elements
        self.anchor = torch.empty(elements, device=self.device)
        with torch.no_grad():
            views = self.workers.views(self.anchor)
            torch._foreach_copy_(views, list(self.network.parameters()))
        self.weights = self.anchor.repeat(o.workers, 1)
        self._momentum = torch.zeros_like(self.weights)
        self._outer = torch.zeros_like(self.anchor)
        self._rate = torch.tensor(self.rate(0), device=self.device)
        self.networks = [self._network_at(row) for row in self.weights]
        self.turns = self.make_turns(
            self.networks,
            elements,
            self.workers.views,
            then=self._move,
            state=(self.weights, self._momentum),
        )

    def _network_at(self, row: torch.Tensor) -> torch.nn.Module:
        """A network of its own, whose weights are those of the row."""
        network = copy.deepcopy(self.network)
        views = self.workers.views(row)
        for parameter, view in zip(network.parameters(), views, strict=True):
            parameter.data = view
        return network

    def _move(self, worker: int, gradient: torch.Tensor) -> None:
        """SGD's step of one worker: a part of its turn, so that a graph has it too."""
        weights = self.weights[worker]
        gradient.add_(weights, alpha=self.o.weight_decay)
        self._momentum[worker].mul_(self.o.momentum).add_(gradient)
        weights.sub_(self._momentum[worker] * self._rate)

    def make_step(self) -> None:
        done = self.step + 1
        if done < self.total_steps:
            if done % self.o.every == 0:
                self._end_round()
            self._rate.fill_(self.rate(done))  # of the next turns

    def finish(self) -> None:
        self._end_round()

    def _end_round(self) -> None:
        mean = self.average(self.anchor - self.weights)
        if mean is not None:  # otherwise the work of the round is lost
            outer, mean = self.o.algorithm, mean.to(self.device)
            self._outer.mul_(outer.momentum).add_(mean)
            self.anchor.sub_(mean + outer.momentum * self._outer, alpha=outer.lr)
        self.weights.copy_(self.anchor.expand_as(self.weights))

    @torch.no_grad()
    def evaluated(self) -> torch.nn.Module:
        """The anchor, with the running statistics of all workers' data (as `train` has them
        for an evaluation)."""
        torch._foreach_copy_(list(self.network.parameters()), self.workers.views(self.anchor))
        for name, buffer in self.network.named_buffers():
            if name.endswith("running_mean"):
                beside = name.removesuffix("mean") + "var"
                means, variances = self._of_all(name), self._of_all(beside)
                buffer.copy_(means.mean(0))
                squares = (variances + means**2).mean(0)
                self.network.get_buffer(beside).copy_(squares - buffer**2)
        return self.network

    def _of_all(self, name: str) -> torch.Tensor:
        return torch.stack([network.get_buffer(name) for network in self.networks])

    def stats(self) -> dict:
        # What is skipped are rounds, and no steps.
        return {**super().stats(), "rounds": self.workers.stats().steps, "skipped_steps": 0}
