"""The metric in which gradients are compressed: that of the optimiser which will use them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from elastiquant import _core

_log = logging.getLogger("elastiquant")

EXACT_STEPS: int = _core._EXACT_STEPS
# After so many synchronised steps beyond these nobody waits for an optimiser without state.
_PATIENCE = 20

MetricOf = Callable[[str, torch.Tensor], "torch.Tensor | None"]

# PyTorch's optimisers that move a weight by g / sqrt(v), by where their state has v.
_SECOND_MOMENTS = {
    "Adam": "exp_avg_sq",
    "AdamW": "exp_avg_sq",
    "NAdam": "exp_avg_sq",
    "RAdam": "exp_avg_sq",
    "RMSprop": "square_avg",
    "Adagrad": "sum",
}
# Optimisers of others that do the same name it as Adam does. Whether one does is seen in its
# state after its first step; until then it is taken for one that does.
_USUAL_NAME = "exp_avg_sq"


def optimizers_of(optimizer: Any) -> tuple[torch.optim.Optimizer, ...]:
    """One optimiser or several, or what a function returns, as a tuple. One that only holds
    others, as `optimizers`, stands for them. Raises ValueError for anything else."""
    if callable(optimizer):
        optimizer = optimizer()
    if optimizer is None:
        return ()
    found: list[torch.optim.Optimizer] = []
    for one in optimizer if isinstance(optimizer, list | tuple) else (optimizer,):
        if not hasattr(one, "param_groups") or not hasattr(one, "state"):
            raise ValueError(f"optimizer is a {type(one).__name__}, not one of torch.optim")
        held = getattr(one, "optimizers", None)
        found += optimizers_of(held) if held and isinstance(held, list | tuple) else [one]
    return tuple(found)


def groups_of(
    optimizers: Iterable[torch.optim.Optimizer],
) -> dict[torch.Tensor, dict[str, Any]]:
    """The parameter group that each parameter is in."""
    return {p: group for o in optimizers for group in o.param_groups for p in group["params"]}


class Metric:
    """Gives the engine the second moments by which gradients are compressed.

    `metric` is 'auto' (those of the optimisers), 'plain' (none), or a function of a parameter's
    name and the parameter, which returns a tensor like it that stands for v, or None.
    """

    def __init__(
        self,
        names: Sequence[str],
        parameters: Sequence[torch.nn.Parameter],
        optimizers: Sequence[torch.optim.Optimizer],
        metric: str | MetricOf,
        exact_steps: int = EXACT_STEPS,
    ):
        if metric not in ("auto", "plain") and not callable(metric):
            raise ValueError(f"metric must be 'auto', 'plain' or a function, not {metric!r}")
        is_number = isinstance(exact_steps, int) and not isinstance(exact_steps, bool)
        if not is_number or exact_steps < 0:
            raise ValueError(f"exact_steps must be a number from 0 on, not {exact_steps!r}")
        if metric == "auto":
            _refuse_shards(optimizers)
        self._names = names
        self._parameters = parameters
        self._known = set(parameters)
        self._metric = metric
        self._optimizers = optimizers
        # Of so few steps the moments say little. Afterwards it is 0.
        self._exact_steps = exact_steps if metric == "auto" else 0
        self._given: list[torch.Tensor | None] = []
        self._young = False
        self._steps = 0  # that were synchronised since this was made
        self._given_up: set[int] = set()  # ids of optimisers that nobody waits for any more
        self._unknown = [o for o in optimizers if metric == "auto" and _is_open(o)]

    @property
    def name(self) -> str:
        """'plain', or 'adam' for one by second moments."""
        if isinstance(self._metric, str):
            by_moments = self._metric == "auto" and any(map(self._moves, self._optimizers))
            return "adam" if by_moments else "plain"
        return "adam"

    def _moves(self, optimizer: torch.optim.Optimizer) -> bool:
        """Whether it moves any of the parameters, and by second moments."""
        if id(optimizer) in self._given_up and not optimizer.state:
            return False
        return _has_moments(optimizer) and not self._known.isdisjoint(groups_of([optimizer]))

    def describe(self) -> str:
        """What is done, for the log."""
        if not isinstance(self._metric, str):
            return "gradients are compressed in the metric that a function gives"
        if self.name == "plain":
            others = ", ".join(sorted({type(o).__name__ for o in self._optimizers}))
            no_moments = self._metric == "auto" and others
            why = f": {others} keeps no second moments of them" if no_moments else ""
            return f"gradients are compressed as they are{why}"
        owners = self._owners()
        moved = sum(_has_moments(owners[p][0]) for p in self._parameters if p in owners)
        unknown = ", ".join(
            sorted({type(o).__name__ for o in filter(_is_open, self._optimizers)})
        )
        if_any = f", if {unknown} keeps them as {_USUAL_NAME}" if unknown else ""
        return (
            f"gradients of {moved} of {len(self._parameters)} parameters are compressed "
            f"relative to the second moments of their optimizer{if_any}"
        )

    def doubt(self) -> str:
        """In words, if an optimiser's second moments are of no use; else ""."""
        for optimizer in self._optimizers if self._metric == "auto" else ():
            if _has_moments(optimizer) and not self._moves(optimizer):
                return (
                    f"the {type(optimizer).__name__} that compress() was given moves no "
                    "parameter of the model, as one of copies in fp32 does not: gradients are "
                    "not compressed in its metric. Give compress(..., metric=...) a function "
                    "that returns the second moments of each parameter's copy, or 'plain'"
                )
        return ""

    def _look_at_unknown(self) -> None:
        """Warns of optimisers that might have had second moments, once their state has none."""
        for optimizer in [o for o in self._unknown if not _is_open(o)]:
            self._unknown.remove(optimizer)
            if not _has_moments(optimizer):
                _log.warning(
                    "the state of %s has no %s: what it moves is compressed as it is. If it "
                    "has second moments by another name, give compress(..., metric=...) a "
                    "function that returns them, and otherwise metric='plain'",
                    type(optimizer).__name__,
                    _USUAL_NAME,
                )

    def _give_up_idle(self) -> None:
        """Uncompressed steps end even if some optimiser never shows that it makes any."""
        if self._exact_steps == 0 or self._steps <= self._exact_steps + _PATIENCE:
            return
        for optimizer in self._optimizers:
            if optimizer.state or id(optimizer) in self._given_up or not self._moves(optimizer):
                continue
            self._given_up.add(id(optimizer))
            _log.warning(
                "%s has no state after %d steps: what it moves is compressed as it is until "
                "there is some. If it has second moments elsewhere, give compress(..., "
                "metric=...) a function that returns them, and otherwise metric='plain'",
                type(optimizer).__name__,
                self._steps - 1,
            )

    def _owners(self) -> dict[torch.Tensor, tuple[torch.optim.Optimizer, str]]:
        """By parameter: its optimiser, and where that has v. Groups may be added later."""
        return {
            p: (o, source)
            for o, source in ((o, _source_of(o) or _USUAL_NAME) for o in self._optimizers)
            for group in o.param_groups
            for p in group["params"]
        }

    def give(self, engine: _core._DdpEngine) -> None:
        """Before each step: tells the engine where the second moments are, if that is new."""
        if self._metric == "plain" or not (self._optimizers or callable(self._metric)):
            return
        self._steps += 1
        self._look_at_unknown()
        self._give_up_idle()
        owners = self._owners()
        moments = [
            self._moments(name, p, owners)
            for name, p in zip(self._names, self._parameters, strict=True)
        ]
        same = len(moments) == len(self._given) and all(
            a is b for a, b in zip(moments, self._given, strict=True)
        )
        were_young, self._young = self._young, self._are_young()
        if not same or self._young != were_young:
            engine.set_metric(moments, uncompressed=self._young)
            self._given = moments

    def _are_young(self) -> bool:
        """Whether the moments are of fewer than exact_steps steps."""
        if self._exact_steps == 0 or self.name == "plain":
            return False
        counts = [
            _steps_of(optimizer) for optimizer in self._optimizers if self._moves(optimizer)
        ]
        if all(count is None or count >= self._exact_steps for count in counts):
            self._exact_steps = 0  # no need to look again, for which a GPU might have to wait
        return self._exact_steps > 0

    def _moments(
        self,
        name: str,
        parameter: torch.nn.Parameter,
        owners: Mapping[torch.Tensor, tuple[torch.optim.Optimizer, str]],
    ) -> torch.Tensor | None:
        if not isinstance(self._metric, str):
            moments = self._metric(name, parameter)
        elif parameter in owners:
            optimizer, source = owners[parameter]
            moments = _moments_in(optimizer.state.get(parameter, {}), source)
        else:
            moments = None
        if moments is None:
            return None
        if moments.shape != parameter.shape:
            raise ValueError(
                f"the second moments of {name!r} have the shape {tuple(moments.shape)}, the "
                f"parameter {tuple(parameter.shape)}: give compress(..., metric='plain')"
            )
        if moments.stride() == parameter.stride():
            return moments
        # The engine reads values in the order in which they lie in memory.
        return torch.empty_like(parameter, dtype=moments.dtype).copy_(moments)


def _source_of(optimizer: torch.optim.Optimizer) -> str | None:
    """Where one of PyTorch's optimisers, or what is derived from it, has v in its state. Those
    of others that have the same names may have it elsewhere."""
    wrapped = getattr(optimizer, "optimizer", optimizer)  # by Accelerate, for example
    kinds = (c.__name__ for c in type(wrapped).__mro__ if c.__module__.startswith("torch."))
    return next((_SECOND_MOMENTS[kind] for kind in kinds if kind in _SECOND_MOMENTS), None)


def _moments_in(state: Mapping[str, Any], source: str) -> torch.Tensor | None:
    return state.get("max_" + source, state.get(source))  # AMSGrad divides by the largest


def _has_moments(optimizer: torch.optim.Optimizer) -> bool:
    """Whether an optimiser has v, or may have it after its first step."""
    if _source_of(optimizer) is not None or _is_open(optimizer):
        return True
    states = optimizer.state.values()
    return any(_moments_in(state, _USUAL_NAME) is not None for state in states)


def _is_open(optimizer: torch.optim.Optimizer) -> bool:
    """Whether nothing tells yet if an optimiser has v: it is none of PyTorch's classes, and has
    made no step."""
    kinds = set(type(getattr(optimizer, "optimizer", optimizer)).__mro__)
    modules = (kind.__module__ for kind in kinds - {torch.optim.Optimizer})
    return not any(m.startswith("torch.") for m in modules) and not optimizer.state


def _steps_of(optimizer: torch.optim.Optimizer) -> int | None:
    """How many steps an optimiser has made, or None if it has moments but does not count."""
    states = list(optimizer.state.values())
    counts = [int(state["step"]) for state in states if "step" in state]
    if counts:
        return max(counts)
    return None if states else 0


def _refuse_shards(optimizers: Iterable[torch.optim.Optimizer]) -> None:
    for optimizer in optimizers:
        if any(cls.__name__ == "ZeroRedundancyOptimizer" for cls in type(optimizer).__mro__):
            raise ValueError(
                "a ZeroRedundancyOptimizer keeps the second moments of each parameter on one "
                "worker only, and compressing by them needs them on all: give compress(..., "
                "metric='plain'), or use the optimizer without shards"
            )
