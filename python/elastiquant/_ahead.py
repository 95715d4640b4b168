"""What an eager worker has beside the anchor."""

from __future__ import annotations

import copy
from typing import Any

import torch

from elastiquant._outer import Outer


class Ahead:
    """A model of the worker's own, moved as soon as it has sent, by its own part of the round's
    mean and the others' part of the mean before (Kale, Douillard and Donchev, "Eager updates
    for overlapped communication in DiLoCo", 2025)."""

    def __init__(self, anchor: list[torch.Tensor], share: float):
        """share: what the worker counts for in a mean, in (0, 1]."""
        self._share = share
        self.own = [a.clone() for a in anchor]
        # Of the last round: what this worker has sent, and its mean, once that has arrived.
        self.last_sent = [torch.zeros_like(a) for a in anchor]
        self.last_mean = [torch.zeros_like(a) for a in anchor]
        self.state: dict[Any, Any] = {}  # of the outer optimiser, as it moves `own`

    def go(self, deltas: list[torch.Tensor], outer: Outer) -> None:
        """Moves `own` on, of what this worker sends now: own - local, for each parameter."""
        updates = []
        for i, delta in enumerate(deltas):
            # The others are told of a NaN by what is sent; here it would stay for good.
            sent = delta if bool(delta.isfinite().all()) else torch.zeros_like(delta)
            updates.append(self._share * (sent - self.last_sent[i]) + self.last_mean[i])
            self.last_sent[i] = sent
            self.last_mean[i] = torch.zeros_like(delta)
        with outer.having(self.state):
            outer.move(self.own, range(len(deltas)), updates)

    def settle(self, anchor: list[torch.Tensor], outer: Outer) -> None:
        """Nothing is under way any more: goes back to the anchor, as every worker does."""
        torch._foreach_copy_(self.own, anchor)
        torch._foreach_zero_(self.last_sent)
        torch._foreach_zero_(self.last_mean)
        # By parameter: these are not to be copied.
        self.state = {p: copy.deepcopy(of_it) for p, of_it in outer.optimizer.state.items()}

    def tensors(self) -> dict[str, list[torch.Tensor]]:
        """By name in a checkpoint."""
        return {"own": self.own, "last_sent": self.last_sent, "last_mean": self.last_mean}
