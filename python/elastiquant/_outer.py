"""The outer optimiser of DiLoCo: it moves an anchor by means as if they were gradients."""

from __future__ import annotations

import collections
import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

# What optimisers keep in the shape of a parameter.
_OF_ITS_SHAPE = {"momentum_buffer", "exp_avg", "exp_avg_sq"}


class Outer:
    """An optimiser over a model's parameters that steps from elsewhere than where these are."""

    def __init__(self, parameters: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer):
        self._parameters = parameters
        self.optimizer = optimizer

    def settings(self) -> tuple[str, list[dict[str, Any]]]:
        """Its class, and by what it moves each group of parameters, to be compared with those
        of other workers."""
        groups = [
            {k: plain for k, v in group.items() if (plain := _plain(v)) is not None}
            for group in self.optimizer.param_groups
        ]
        return type(self.optimizer).__name__, groups

    def move(
        self, anchor: list[torch.Tensor], members: Sequence[int], means: Sequence[torch.Tensor]
    ) -> None:
        """Steps from the anchor, which it changes; parameters and their gradients stay.

        anchor: a tensor for each parameter; members: the numbers of those to move; means: of
        these, in the shape of the parameter.
        """
        gradients = [p.grad for p in self._parameters]
        local = [self._parameters[i].detach().clone() for i in members]
        for p in self._parameters:
            p.grad = None  # optimisers pass over these
        for i, mean in zip(members, means, strict=True):
            self._parameters[i].copy_(anchor[i])
            self._parameters[i].grad = mean
        try:
            self.optimizer.step()
        finally:
            for p, gradient in zip(self._parameters, gradients, strict=True):
                p.grad = gradient
        for i, values in zip(members, local, strict=True):
            anchor[i].copy_(self._parameters[i])
            self._parameters[i].copy_(values)

    @contextlib.contextmanager
    def having(self, state: dict[Any, Any]) -> Iterator[None]:
        """Meanwhile the optimiser has another state, which is changed as it steps."""
        shared = self.optimizer.state
        self.optimizer.state = collections.defaultdict(dict, state)
        try:
            yield
        finally:
            state.clear()
            state.update(self.optimizer.state)
            self.optimizer.state = shared

    def load(self, saved: Mapping[str, Any]) -> None:
        """Takes a copy of a state that fits. What only this optimiser's groups have stays, such
        as what a scheduler has noted in them."""
        taken = copy.deepcopy(dict(saved))
        ours = self.optimizer.state_dict()["param_groups"]
        groups = zip(ours, taken["param_groups"], strict=True)
        taken["param_groups"] = [mine | theirs for mine, theirs in groups]
        self.optimizer.load_state_dict(taken)

    def mismatch(self, saved: Any) -> str:
        """Why something is no state_dict() of such an optimiser, in words; "" if it is one."""
        if not isinstance(saved, Mapping) or not {"state", "param_groups"} <= saved.keys():
            return "it is no state of an optimiser"
        ours, theirs = self.optimizer.state_dict()["param_groups"], saved["param_groups"]
        if [len(g["params"]) for g in theirs] != [len(g["params"]) for g in ours]:
            return "it has other groups of parameters"
        # Beyond these, schedulers add keys, in one run before and in another after it loads.
        kept = set(self.optimizer.defaults)
        if lacking := sorted(kept - set.intersection(*(set(g) for g in theirs))):
            kind = type(self.optimizer).__name__
            return f"it has no {', '.join(lacking)}, which {kind} has"
        parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
        for number, fields in saved["state"].items():
            if number not in range(len(parameters)):
                return f"it knows of a parameter {number}"
            for name in _OF_ITS_SHAPE & fields.keys():
                if fields[name] is not None and fields[name].shape != parameters[number].shape:
                    return (
                        f"its {name} of parameter {number} has the shape "
                        f"{tuple(fields[name].shape)} in place of "
                        f"{tuple(parameters[number].shape)}"
                    )
        return ""


def fields_in(saved: Mapping[str, Any]) -> dict[str, int]:
    """By what an optimiser keeps of parameters, in a state_dict() of it: of how many."""
    states = saved["state"].values()
    kept = (str(k) for of_one in states for k, v in of_one.items() if v is not None)
    return dict(collections.Counter(kept))


def _plain(value: Any) -> Any:
    """Numbers, words and tuples of them, wherever they lie; None for what has no equal on
    another worker."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value if isinstance(value, int | float | str) else None
