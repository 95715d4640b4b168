"""What DiLoCo and LocalSGD refuse before they begin."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping

import torch

from elastiquant import _core, _fragments, _model, _options


def check(
    o: types.SimpleNamespace,
    parameters: Mapping[str, torch.nn.Parameter],
    kind: str,
) -> None:
    """Raises TypeError for parameters that are no dense fp32 and options of another type, and
    ValueError for options that cannot be.

    o: the options of DiLoCo, with the delay of its schedule; parameters: those to train, by
    name; kind: the class, for messages.
    """
    _model.check_parameters(list(parameters.items()), kind)
    _options.check_types(o, int, "every fragments delay")
    _options.check_types(o, float, "mix weight")
    _options.check_types(o, str, "codec exact exchange")
    _options.check_types(o, str, "down link", or_none=True)
    _options.check_types(o, bool, "eager")
    _options.check_numbers(o)
    _options.check_codec_of_work(o.codec, kind)
    if o.down is not None:
        _options.check_codec_of_work(o.down, kind)
    _options.specs_of(list(parameters), list(parameters.values()), o.codec, o.exact, None)
    _options.check_on_loss(o.on_loss)
    if o.on_loss == "go-on":
        _check_going_on(o)
    if o.link is not None:
        _core._check_link(o.link)
    if not parameters:
        raise ValueError("the model has no parameters to train")
    _options.check_trains(o.inner, parameters.values(), "inner")
    if not 0 <= o.mix < 1:
        raise ValueError(f"mix is {o.mix}; it must be in [0, 1)")
    if not (o.weight > 0 and math.isfinite(o.weight)):
        raise ValueError(f"weight is {o.weight}; it must be above 0 and finite")
    most = min(64, len(_fragments.layers(list(parameters.items()))))
    if not 1 <= o.fragments <= most:
        raise ValueError(
            f"fragments is {o.fragments}; with this model it can be from 1 to {most}, because "
            "the parameters of a module stay together"
        )
    if o.eager and (o.fragments != 1 or o.mix != 0 or o.delay != o.every):
        raise ValueError("eager needs fragments=1, mix=0 and delay=every, or no delay")
    if not o.eager and o.mix == 0 and 0 < o.delay == o.every:
        raise ValueError(
            "with delay=every a mean comes when the next round is to be sent, and with mix=0 "
            "it overwrites all that this round has learnt: use eager=True, a mix or a shorter "
            "delay"
        )
    if not o.eager and o.delay > o.every // o.fragments:
        raise ValueError(
            f"delay is {o.delay}; it can be at most every / fragments, {o.every // o.fragments}"
        )


def _check_going_on(o: types.SimpleNamespace) -> None:
    if o.eager or o.delay > 0:
        raise ValueError(
            "on_loss='go-on' needs delay=0 and no eager: what travels while workers train "
            "would be lost with a worker"
        )
    if _model.is_ddp(o.model):
        raise ValueError(
            "on_loss='go-on' needs a model that is not within DistributedDataParallel: after a "
            "loss each worker of an island would decide for itself which workers a mean is of, "
            "and if they decide differently their models differ for good, which DDP does not "
            "notice. Use on_loss='stop' and start again from a checkpoint, or train without "
            "islands"
        )


def check_outer(
    outer: torch.optim.Optimizer,
    inner: torch.optim.Optimizer,
    parameters: list[torch.nn.Parameter],
) -> None:
    """Raises ValueError unless the outer optimiser is one of its own over the parameters, and
    TypeError unless it is one."""
    if not isinstance(outer, torch.optim.Optimizer):
        raise TypeError(
            f"outer is a {type(outer).__name__}; it must be a torch.optim.Optimizer, or None"
        )
    if outer is inner:
        raise ValueError("outer must be another optimiser than inner")
    theirs = [p for group in outer.param_groups for p in group["params"]]
    if {id(p) for p in theirs} != {id(p) for p in parameters}:
        raise ValueError(
            "outer must have exactly the trained parameters of the model: "
            "torch.optim.SGD(model.parameters(), ...)"
        )
