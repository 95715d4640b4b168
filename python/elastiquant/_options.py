"""Options that compress(), DiLoCo and Gossip have alike: their ranges, and codecs by name."""

from __future__ import annotations

import fnmatch
import math
import numbers
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from elastiquant import _core

Policy = Mapping[str, str] | Callable[[str, torch.Tensor], "str | None"]


def check_on_loss(on_loss: str) -> None:
    if on_loss not in ("stop", "go-on"):
        raise ValueError(f"on_loss is {on_loss!r}; valid are: 'stop', 'go-on'")


def check_types(
    o: types.SimpleNamespace, kind: type, names: str, or_none: bool = False
) -> None:
    """Raises TypeError unless the options of these names, parted by blanks, are of a kind: int,
    float (which takes whole numbers, too), str or bool. numpy's numbers are numbers."""
    takes: dict[type, tuple[type, str]] = {
        int: (numbers.Integral, "a whole number"),
        float: (numbers.Real, "a number"),
        str: (str, "a string"),
        bool: (bool, "True or False"),
    }
    taken, words = takes[kind]
    for name in names.split():
        value = getattr(o, name)
        if value is None and or_none:
            continue
        if not isinstance(value, taken) or (isinstance(value, bool) and kind is not bool):
            raise TypeError(
                f"{name} is {value!r}; it must be {words}{', or None' if or_none else ''}"
            )


def followed(optimizer: Any) -> Any:
    """The optimiser whose step calls hooks: what is given or, if a framework has wrapped one in
    a class whose step does not (Accelerate's), the `optimizer` within."""
    hooks = "_optimizer_step_post_hooks"
    while not hasattr(optimizer, hooks) and hasattr(optimizer, "optimizer"):
        optimizer = optimizer.optimizer
    return optimizer


def check_followed(model: Any, optimizer: Any, name: str, call: str) -> None:
    """Raises TypeError unless these are a model, and an optimiser whose steps can be followed.

    name: of the optimiser among the arguments of `call`, which is the call as it should be.
    """
    if isinstance(model, torch.optim.Optimizer) and isinstance(optimizer, torch.nn.Module):
        raise TypeError(f"the model and the optimizer have changed places: call {call}")
    if not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"model is a {type(model).__name__}; it must be a torch.nn.Module: call {call}"
        )
    # Frameworks wrap optimisers in classes of their own, which need not derive from PyTorch's.
    if not all(hasattr(optimizer, a) for a in ("register_step_post_hook", "param_groups")):
        raise TypeError(
            f"{name} is a {type(optimizer).__name__}; it must be a torch.optim.Optimizer: "
            f"call {call}"
        )


def check_trains(
    optimizer: torch.optim.Optimizer, parameters: Iterable[torch.nn.Parameter], name: str
) -> None:
    """Raises ValueError unless the optimiser has any of the parameters, as one has not that was
    made for an earlier model. name: of the optimiser among the arguments."""
    theirs = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if theirs.isdisjoint(map(id, parameters)):
        raise ValueError(
            f"{name} trains no parameter of the model: make it of this model's parameters()"
        )


def check_codec_of_work(spec: str, kind: str) -> None:
    """Raises ValueError for a codec that cannot send what optimisers have made of gradients, as
    `elastiquant train` does (train/algorithm_validation.cc). kind: the class, for messages."""
    codec = _core.Codec(spec)
    bad = f"codec '{codec.spec}'"
    if codec._momentum is not None:
        raise ValueError(
            f"{bad} has momentum of its own, and {kind} sends what an optimiser has made of "
            "gradients, which may have momentum already: take another codec"
        )
    if codec._has_learning_rate:
        raise ValueError(
            f"{bad} has the learning rate in its memory, and {kind} does not tell it: give it "
            "lr=outside, as in '...|ef:lr=outside'"
        )
    if codec._is_adaptive:
        raise ValueError(
            f"{bad} fits its levels as training goes on, and {kind} does not let it: take "
            "another codec"
        )


def check_down(down: str | None) -> None:
    """Raises ValueError for a codec that means cannot travel back under, in compress()."""
    if down is not None and _core.Codec(down)._is_adaptive:
        raise ValueError(
            f"down is {down!r}, which fits its levels to gradients, but means travel back: "
            "take another codec for them"
        )


def check_numbers(o: types.SimpleNamespace) -> None:
    """Raises TypeError for what is no number, and ValueError for one out of its range."""
    check_types(o, int, "measure_every threads seed")
    check_types(o, float, "timeout")
    check_types(o, int, "bucket_kib", or_none=True)
    check_types(o, float, "stall_timeout", or_none=True)
    if o.bucket_kib is not None and o.bucket_kib < 1:
        raise ValueError("bucket_kib must be at least 1")
    if o.measure_every < 0 or o.threads < 1 or not 0 <= o.seed < 2**64:
        raise ValueError("measure_every and seed must not be negative, threads at least 1")
    if not 1 <= o.timeout < math.inf:
        raise ValueError("timeout must be at least 1 s, and finite")
    if o.stall_timeout and not 1 <= o.stall_timeout < math.inf:
        raise ValueError("stall_timeout must be at least 1 s and finite, or None")


def specs_of(
    names: list[str],
    parameters: list[torch.nn.Parameter],
    codec: str,
    exact: str,
    policy: Policy | None,
) -> list[str]:
    """The canonical spec of each parameter. Raises ValueError for a bad pattern or spec, and
    TypeError for a policy of another type, or that gives something else than specs."""
    chosen = list(_by_policy(names, parameters, policy))
    for name, spec in zip(names, chosen, strict=True):
        if spec is not None and not isinstance(spec, str):
            raise TypeError(
                f"policy gives {spec!r} for {name!r}; it must give a codec's spec, a string, "
                "or None"
            )
    kept = _exact(names, parameters, exact)
    specs = [c or ("fp32" if e else codec) for c, e in zip(chosen, kept, strict=True)]
    canonical = {spec: _core.Codec(spec).spec for spec in {codec, *specs}}
    return [canonical[spec] for spec in specs]


def _by_policy(
    names: list[str], parameters: list[torch.nn.Parameter], policy: Policy | None
) -> Iterator[str | None]:
    if policy is None:
        yield from (None for _ in names)
    elif callable(policy):
        yield from (policy(name, p) for name, p in zip(names, parameters, strict=True))
    elif not isinstance(policy, Mapping) or not all(isinstance(p, str) for p in policy):
        raise TypeError(
            f"policy is {policy!r}; it must be of patterns and specs, {{pattern: spec}}, or a "
            "function of (name, parameter)"
        )
    else:
        for pattern in policy:
            _check_pattern(pattern, names)
        for name in names:
            yield next((s for p, s in policy.items() if fnmatch.fnmatchcase(name, p)), None)


def _exact(names: list[str], parameters: list[torch.nn.Parameter], exact: str) -> list[bool]:
    if exact == "none":
        return [False] * len(names)
    kept = [False] * len(names)
    for pattern in exact.split(","):
        if pattern != "1d":
            _check_pattern(pattern, names)
        for i, (name, parameter) in enumerate(zip(names, parameters, strict=True)):
            matches = parameter.dim() <= 1 if pattern == "1d" else None
            kept[i] |= fnmatch.fnmatchcase(name, pattern) if matches is None else matches
    return kept


def _check_pattern(pattern: str, names: list[str]) -> None:
    if not fnmatch.filter(names, pattern):
        examples = ", ".join(repr(n) for n in (names[:1] + names[-1:]))
        raise ValueError(
            f"no parameter's name matches {pattern!r}; names are such as {examples}"
        )
