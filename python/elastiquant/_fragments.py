"""How a model's parameters are divided into fragments, which are sent at different steps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import torch

from elastiquant import _core, _model

_Named = Sequence[tuple[str, torch.nn.Parameter]]


def layers(named: _Named) -> list[list[int]]:
    """The numbers of the parameters that are sent together, in the order of the model.

    These are the parameters of one module. A module without a matrix, such as a norm, joins the
    module before it, or the next one if it is the first.
    """
    return _core._layers(_model.shapes(named))


def deal(named: _Named, fragments: int) -> list[list[int]]:
    """By fragment, the numbers of its parameters, in the order of the model.

    Fragments have about the same size, because the largest one decides how fast a link must be.
    There must be as many layers as fragments.
    """
    of = _core._balanced_fragments(_model.shapes(named), fragments)
    return [[i for i, f in enumerate(of) if f == fragment] for fragment in range(fragments)]


def digest(named: _Named, dealt: Sequence[Sequence[int]]) -> str:
    """Sixteen hexadecimal digits, which are the same for equal fragments."""
    names = [[named[i][0] for i in members] for members in dealt]
    return hashlib.sha256(json.dumps(names).encode()).hexdigest()[:16]
