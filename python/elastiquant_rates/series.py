"""The rows of an analysis as the lines and points of a plot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

UNBIASED = ("unbiased",)
OTHERS = ("contractive", "biased")
MOST_BITS = 8.6  # beyond it lie the codecs that hardly compress


@dataclass
class Series:
    """A codec at its rates. `coded`: with a modifier of its own, such as an entropy coder."""

    name: str
    coded: bool
    points: list[tuple[float, float]] = field(default_factory=list)  # (bits, NMSE), by bits


def measured(analysis: dict, classes: tuple[str, ...]) -> list[dict]:
    return [
        row
        for row in analysis["results"]
        if row["class"] in classes
        and "error" not in row
        and row["nmse"] > 0
        and row["bits_per_coordinate"] < MOST_BITS
    ]


def collect(rows: list[dict]) -> list[Series]:
    """A series for each codec, and one for its entropy-coded form, in order of appearance."""
    found: dict[tuple[str, bool], Series] = {}
    for row in _without_the_longer_coded(rows):
        name, _, modifiers = row["codec"].partition("|")
        name = name.partition(":")[0]
        key = (name, bool(modifiers))
        series = found.setdefault(key, Series(*key))
        series.points.append((row["bits_per_coordinate"], row["nmse"]))
    for series in found.values():
        series.points.sort()
    return list(found.values())


def _without_the_longer_coded(rows: list[dict]) -> list[dict]:
    """Of two entropy coders of the same values, only the one with fewer bits is drawn."""
    best: dict[str, dict] = {}
    for row in rows:
        base, _, modifiers = row["codec"].partition("|")
        if not modifiers:
            continue
        rival = best.get(base)
        if rival is None or row["bits_per_coordinate"] < rival["bits_per_coordinate"]:
            best[base] = row
    return [row for row in rows if "|" not in row["codec"] or row in best.values()]


def gaussian_limit(bits: float) -> float:
    """The least NMSE of unbiased codes for iid Gaussian values: 2^-2R, scaled to be so."""
    return 1 / (4**bits - 1)


def at(series: Series, bits: float) -> float | None:
    """NMSE between the points, by straight lines in its logarithm; None outside of them."""
    for (x0, y0), (x1, y1) in pairwise(series.points):
        if x0 <= bits <= x1:
            share = (bits - x0) / (x1 - x0) if x1 > x0 else 0
            return math.exp((1 - share) * math.log(y0) + share * math.log(y1))
    return None


def advantages(one: Series, others: list[Series]) -> list[float]:
    """How many times less NMSE `one` has than each point of the others, at the same bits."""
    found = []
    for other in others:
        for bits, nmse in other.points:
            mine = at(one, bits)
            if mine is not None:
                found.append(nmse / mine)
    return found


def title_of(analysis: dict) -> str:
    name = Path(analysis["name"]).name
    return "Gaussian values" if name == "Gaussian" else name


def distance(series: Series) -> float:
    """Mean bits above the rate-distortion curve of iid Gaussian values."""
    return sum(x + math.log2(y) / 2 for x, y in series.points) / len(series.points)
