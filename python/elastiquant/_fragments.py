"""How a model's parameters are divided into fragments, which are sent at different steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import torch

_Named = Sequence[tuple[str, torch.nn.Parameter]]


def layers(named: _Named) -> list[list[int]]:
    """The numbers of the parameters that are sent together, in the order of the model.

    These are the parameters of one module. A module without a matrix, such as a norm, joins the
    module before it, or the next one if it is the first.
    """

    def has_matrix(members: list[int]) -> bool:
        return any(named[i][1].dim() > 1 for i in members)

    modules: dict[str, list[int]] = {}
    for i, (name, _) in enumerate(named):
        modules.setdefault(_module_of(name), []).append(i)
    found: list[list[int]] = []
    for members in modules.values():
        if found and not (has_matrix(found[-1]) and has_matrix(members)):
            found[-1] += members
        else:
            found.append(members)
    return found


def deal(named: _Named, fragments: int) -> list[list[int]]:
    """By fragment, the numbers of its parameters. There must be as many layers as fragments.

    The layers are dealt from the largest to the smallest, each to the fragment that has the
    fewest values so far, because the largest fragment decides how fast a link must be. This
    depends on names and shapes only, so that all workers do the same.
    """

    def size(members: list[int]) -> int:
        return sum(named[i][1].numel() for i in members)

    dealt: list[list[int]] = [[] for _ in range(fragments)]
    values = [0] * fragments
    for layer in sorted(layers(named), key=size, reverse=True):  # equal ones keep their order
        lightest = values.index(min(values))
        dealt[lightest] += layer
        values[lightest] += size(layer)
    return [sorted(members) for members in dealt]


def digest(named: _Named, dealt: Sequence[Sequence[int]]) -> str:
    """Sixteen hexadecimal digits, which are the same for equal fragments."""
    names = [[named[i][0] for i in members] for members in dealt]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]


def _module_of(name: str) -> str:
    """A parametrised weight lies in a module of its own beside its bias, and is one with it."""
    return f".{name}".rpartition(".")[0].partition(".parametrizations.")[0]
