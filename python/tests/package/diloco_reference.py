"""DiLoCo in plain PyTorch, all workers in one process: what elastiquant.DiLoCo must equal.

Written from the papers: Douillard et al., "DiLoCo" (2023) and "Streaming DiLoCo with
overlapping communication" (2025), and Kale, Douillard and Donchev, "Eager updates for
overlapped communication in DiLoCo" (2025).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from diloco_training import loss_of, make_inner, make_model
from torch import nn

# By the number of fragments, the parameters of each: a weight and a bias of each of the four
# layers of make_model(), which have 630, 248, 54 and 35 values. They become smaller, so that
# a fragment has some that follow each other.
MEMBERS = {
    1: [range(8)],
    2: [range(2), range(2, 8)],
    3: [range(2), range(2, 4), range(4, 8)],
    4: [range(2), range(2, 4), range(4, 6), range(6, 8)],
}


@dataclass
class Outer:
    """SGD with Nesterov's momentum (plain SGD without one), on single tensors."""

    rate: float
    momentum: float
    velocity: dict[int, torch.Tensor] = field(default_factory=dict)  # by parameter

    def step(self, value: torch.Tensor, number: int, gradient: torch.Tensor) -> torch.Tensor:
        if self.momentum == 0:
            return value - self.rate * gradient
        before = self.velocity.get(number, torch.zeros_like(value))
        self.velocity[number] = self.momentum * before + gradient
        return value - self.rate * (gradient + self.momentum * self.velocity[number])


class Reference:
    def __init__(
        self,
        workers: Sequence[Sequence[int]],
        every: int,
        *,
        rate: float = 0.7,
        momentum: float = 0.9,
        fragments: int = 1,
        delay: int = 0,
        mix: float = 0.0,
        eager: bool = False,
        counts: Sequence[float] | None = None,
    ):
        """workers: by worker the ranks whose batches it learns from, several of an island;
        counts: what each of them counts for."""
        self.workers, self.every, self.fragments = workers, every, fragments
        self.delay, self.mix, self.eager = (every if eager else delay), mix, eager
        counts = counts or [1.0] * len(workers)
        self.shares = [count / sum(counts) for count in counts]
        self.models = [make_model() for _ in workers]
        self.inner = [make_inner(model) for model in self.models]
        self.anchor = values(make_model())
        self.outer = Outer(rate, momentum)
        self.own = [values(make_model()) for _ in workers]
        self.own_outer = [Outer(rate, momentum) for _ in workers]
        # Of the last round, by worker and parameter: what was sent; by parameter: the mean.
        self.sent: list[list[torch.Tensor]] = []
        self.mean: list[torch.Tensor] = []
        # By fragment under way: the step at which it is due, and its mean by parameter.
        self.under_way: dict[int, tuple[int, dict[int, torch.Tensor]]] = {}
        self.steps = 0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            for model, inner, ranks in zip(self.models, self.inner, self.workers, strict=True):
                inner.zero_grad()
                losses = [loss_of(model, self.steps, rank) for rank in ranks]
                torch.stack(losses).mean().backward()
                inner.step()
            self.steps += 1
            self.meet()

    @torch.no_grad()
    def meet(self) -> None:
        due = [f for f, (step, _) in self.under_way.items() if step == self.steps]
        for fragment in due:
            self.apply(fragment)
        for fragment in range(self.fragments):
            if self.is_sent(fragment):
                self.send(fragment)
                if self.delay == 0:
                    self.apply(fragment)

    def is_sent(self, fragment: int) -> bool:
        first = (fragment + 1) * self.every // self.fragments
        return self.steps >= first and (self.steps - first) % self.every == 0

    @torch.no_grad()
    def finish(self) -> None:
        for fragment in list(self.under_way):
            self.apply(fragment)
        for fragment in range(self.fragments):
            if not (self.delay == 0 and self.is_sent(fragment)):
                self.send(fragment)
                self.apply(fragment)
        for model in self.models:
            for p, a in zip(model.parameters(), self.anchor, strict=True):
                p.copy_(a)

    def members(self, fragment: int) -> range:
        return MEMBERS[self.fragments][fragment]

    def send(self, fragment: int) -> None:
        starts = self.own if self.eager else [self.anchor] * len(self.workers)
        deltas = [
            [s - v for s, v in zip(start, values(model), strict=True)]
            for start, model in zip(starts, self.models, strict=True)
        ]
        mean = {
            i: sum(share * own[i] for share, own in zip(self.shares, deltas, strict=True))
            for i in self.members(fragment)
        }
        self.under_way[fragment] = (self.steps + self.delay, mean)
        if self.eager:
            self.go_ahead(deltas)

    def go_ahead(self, deltas: list[list[torch.Tensor]]) -> None:
        """Each worker's own part of this mean, and the others' part of the one before."""
        for w, share in enumerate(self.shares):
            for i, p in enumerate(self.models[w].parameters()):
                update = share * deltas[w][i]
                if self.sent:
                    update = update + self.mean[i] - share * self.sent[w][i]
                self.own[w][i] = self.own_outer[w].step(self.own[w][i], i, update)
                p.copy_(self.own[w][i])
        self.sent = deltas

    def apply(self, fragment: int) -> None:
        _, mean = self.under_way.pop(fragment)
        for i, gradient in mean.items():
            self.anchor[i] = self.outer.step(self.anchor[i], i, gradient)
        if self.eager:
            self.mean = [mean[i] for i in self.members(0)]
            return
        for model in self.models:
            parameters = list(model.parameters())
            for i in mean:
                kept = self.mix * parameters[i] + (1 - self.mix) * self.anchor[i]
                parameters[i].copy_(kept)


def values(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]
