"""The kinds of schemes, each with a colour: too many codecs are compared for a colour each."""

from __future__ import annotations

from dataclasses import dataclass

import elastiquant_plot as look

_BLUE, _VERMILION, _GREEN, _PINK, _ORANGE, _SKY = look.SERIES


@dataclass(frozen=True)
class Kind:
    name: str
    colour: str
    codecs: tuple[str, ...]
    bold: bool = False


KINDS = (
    Kind("one step for all", _BLUE, ("dither",), bold=True),
    Kind(
        "elastic levels",
        _VERMILION,
        ("elastic", "elastic dithered", "elastic exp", "elastic fit"),
        bold=True,
    ),
    Kind(
        "fixed levels",
        _PINK,
        (
            *("elastiquant", "qsgd", "qsgdv", "nuqsgd", "zeroless", "natural", "laq"),
            *("terngrad", "terngrad tensor"),
        ),
    ),
    Kind("fitted levels", _GREEN, ("quiver", "orq", "alq", "amq")),
    Kind("rotation", _ORANGE, ("eden",)),
    Kind("sparse", _SKY, ("topk", "chunktopk", "randomk", "threshold", "dgc", "atomo")),
    Kind("low rank", "#8C6D31", ("powersgd", "atomo-svd", "atomo-svd pairs")),
    Kind("signs", "#888888", ("signsgd", "efsign", "onebit", "bingrad-b", "bingrad-pb")),
)
OTHER = Kind("other", "#444444", ())


def kind_of(name: str) -> Kind:
    """By a series' name, such as "qsgdv rotate"."""
    if "rotate" in name.split():
        return next(kind for kind in KINDS if kind.name == "rotation")
    return next((kind for kind in KINDS if name in kind.codecs), OTHER)
