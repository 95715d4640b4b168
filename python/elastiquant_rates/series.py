"""The rows of an analysis as the lines and points of a plot."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

UNBIASED = ("unbiased",)
OTHERS = ("contractive", "biased")
MOST_BITS = 8.6  # beyond it lie the codecs that hardly compress
CODERS = ("rans", "elias")  # modifiers that leave the values as they are
RATE_KEYS = ("bits", "ratio", "rank", "levels", "value", "k", "nmse")


@dataclass
class Series:
    """A codec at its rates. `coded`: entropy-coded by a modifier of its own."""

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
        key = name_of(row["codec"])
        series = found.setdefault(key, Series(*key))
        series.points.append((row["bits_per_coordinate"], row["nmse"]))
    for series in found.values():
        series.points.sort()
    return list(found.values())


def name_of(spec: str) -> tuple[str, bool]:
    """The series that a spec belongs to, and whether it is entropy-coded."""
    codec, *modifiers = spec.split("|")
    name, _, pairs = codec.partition(":")
    keys = [pair.partition("=")[::2] for pair in pairs.split(",") if pair]
    if ("rounding", "dither") in keys:  # always coded; "uniform" says nothing more
        return f"{name} dithered", "rans" in modifiers
    # Levels are a number, which is a rate, or the name of a family.
    extra = [v for key, v in keys if key not in RATE_KEYS or (key == "levels" and v.isalpha())]
    values = [m.partition(":")[0] for m in modifiers if m not in CODERS]
    return " ".join([name, *extra, *values]), any(m in CODERS for m in modifiers)


def _without_the_longer_coded(rows: list[dict]) -> list[dict]:
    """Of two entropy coders of the same values, only the one with fewer bits is drawn."""
    best: dict[str, dict] = {}
    for row in rows:
        base = _uncoded(row["codec"])
        if base == row["codec"]:
            continue
        rival = best.get(base)
        if rival is None or row["bits_per_coordinate"] < rival["bits_per_coordinate"]:
            best[base] = row
    return [
        row for row in rows if _uncoded(row["codec"]) == row["codec"] or row in best.values()
    ]


def _uncoded(spec: str) -> str:
    return "|".join(part for part in spec.split("|") if part not in CODERS)


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
