"""What the engine must hear between steps, for codecs that remember: in which units a gradient
is, and whether what was sent of it has been applied."""

from __future__ import annotations

import gc
import logging
import weakref
from collections.abc import Sequence

import torch
from torch.nn.parallel import DistributedDataParallel

from elastiquant import _core, _metric

_log = logging.getLogger("elastiquant")

# Forwards, or steps, at which a GradScaler that nobody has told of is looked for. By the first,
# DDP has settled; by the second, so has the script.
LOOK_AT = (3, 100)


class BetweenSteps:
    """Called before each forward, and before the state is saved."""

    def __init__(
        self,
        engine: _core._DdpEngine,
        model: DistributedDataParallel,
        parameters: Sequence[torch.nn.Parameter],
        specs: Sequence[str],
        grad_scaler: torch.amp.GradScaler | None,
        optimizers: Sequence[torch.optim.Optimizer],
    ):
        self._engine = engine
        # A model that has a hook of comm_hook() keeps this, in a way that gc does not see: its
        # reducer must not be kept in turn, or both would never end.
        self._model = weakref.ref(model)
        self._parameters = parameters
        self._has_rate = [_core.Codec(spec)._has_learning_rate for spec in specs]
        self._grad_scaler = grad_scaler
        self._optimizers = optimizers
        self._units: list[float] = []
        self._forwards = 0

    def begin(self) -> None:
        """A forward begins, whose gradients may be sent."""
        self.settle()
        units = self._units_now()
        if units != self._units:
            self._engine.set_units(units)
            self._units = units
        self._forwards += 1
        if self._grad_scaler is None and self._forwards in LOOK_AT and scaler_in_use():
            self._forwards = LOOK_AT[-1]  # said once
            _log.warning(
                "a GradScaler is in use, and compress() was not told of it: what codecs "
                "remember is sent in the units of another loss scale whenever that changes. "
                "Give compress(..., grad_scaler=scaler)"
            )

    def settle(self) -> None:
        """Takes back what DDP has discarded of the last step, unless that has been done."""
        model = self._model()
        if model is not None:  # or all gradients are gone with it
            self._engine.restore_discarded(model.reducer)

    def _units_now(self) -> list[float]:
        scale = self._grad_scaler.get_scale() if self._grad_scaler is not None else 1.0
        if not any(self._has_rate):
            return [1 / scale] * len(self._parameters)
        groups = _metric.groups_of(self._optimizers)
        return [
            (float(groups[p]["lr"]) if has_rate else 1.0) / scale
            for p, has_rate in zip(self._parameters, self._has_rate, strict=True)
        ]


def may_discard(model: DistributedDataParallel) -> bool:
    """Whether DDP does not use what comes of parameters that no worker has used."""
    return model.find_unused_parameters and not model.static_graph


def check(
    names: Sequence[str],
    parameters: Sequence[torch.nn.Parameter],
    specs: Sequence[str],
    optimizers: Sequence[torch.optim.Optimizer],
) -> None:
    """Raises ValueError where the codecs need an optimiser that was not given."""
    groups = _metric.groups_of(optimizers)
    for name, parameter, spec in zip(names, parameters, specs, strict=True):
        codec = _core.Codec(spec)
        if codec._has_learning_rate and parameter not in groups:
            raise ValueError(
                f"codec '{spec}' has the learning rate in its memory, as published: give "
                f"compress(..., optimizer=...) the optimizer that trains {name!r}, or name the "
                "codec '...|ef:lr=outside' for error feedback of the gradient itself"
            )
        momentum = groups.get(parameter, {}).get("momentum", 0)
        if codec._momentum is not None and momentum:
            raise ValueError(
                f"codec '{spec}' sends velocities, and the optimizer has momentum {momentum} "
                f"for {name!r}: give that parameter's group momentum=0"
            )


def scaler_in_use() -> bool:
    """Whether the process has a GradScaler that has scaled a loss, and that gc.freeze() has not
    hidden."""
    return any(
        issubclass(type(o), torch.amp.GradScaler)
        and o.is_enabled()
        and getattr(o, "_scale", None) is not None
        for o in gc.get_objects()
    )
