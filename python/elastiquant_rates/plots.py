"""One figure an input: unbiased codecs with their limit, and beside them all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import median

import elastiquant_plot as look
from elastiquant_rates import series as data
from elastiquant_rates.kinds import KINDS, OTHER, kind_of
from elastiquant_rates.series import Series

_PANEL, _KEY, _MARGIN, _HEIGHT = 4.4, 1.45, 0.62, 6.7  # inches
# Sending nothing has an NMSE of 1.
_MOST_NMSE_UNBIASED = 30
_MOST_NMSE_OTHERS = 1.2


def draw(report: dict, stem: Path) -> list[Path]:
    """Writes STEM.png and .svg; with several inputs STEM-1, STEM-2, ..."""
    written = []
    inputs = report["inputs"]
    with look.style():
        for number, analysis in enumerate(inputs, start=1):
            name = stem.name if len(inputs) == 1 else f"{stem.name}-{number}"
            written += figure(analysis, report["draws"], stem.with_name(name))
    return written


def figure(analysis: dict, draws: int, stem: Path) -> list[Path]:
    unbiased = data.collect(data.measured(analysis, data.UNBIASED))
    others = data.collect(data.measured(analysis, data.OTHERS))
    panels = [(_draw_unbiased, unbiased)] + ([(_draw_others, others)] if others else [])
    count = f"{analysis['elements']:,}".replace(",", "\u202f")
    fig, axes = look.figure(
        headline(unbiased),
        f"{data.title_of(analysis)}: {count} values, means over {draws} draws. Bits are those "
        "of whole frames. Hollow: entropy-coded.",
        columns=len(panels),
        width=len(panels) * (_MARGIN + _PANEL + _KEY) + 0.1,
        height=_HEIGHT,
    )
    for i, (panel, (paint, series)) in enumerate(zip(axes, panels, strict=True)):
        _place(fig, panel, i)
        paint(panel, series)
        panel.set_xlabel("bits per coordinate")
    axes[0].set_ylabel("NMSE")
    return look.save(fig, stem)


def headline(unbiased: list[Series]) -> str:
    """What the unbiased panel shows of the codec `dither`."""
    own = next((s for s in unbiased if s.name == "dither"), None)
    rest = [s for s in unbiased if s is not own]
    factors = data.advantages(own, rest) if own else []
    if not factors or min(factors) < 1:
        return "Error against size"
    least = min(factors)
    if least < 1.1:
        return (
            f"From {own.points[0][0]:.2g} bits up no unbiased codec of equal size has less "
            f"variance than dither; their median has {_round(median(factors))} times more"
        )
    return (
        f"From {own.points[0][0]:.2g} bits up dither has {_round(least, down=True)} times less "
        f"variance than the best other unbiased codec of equal size, {_round(median(factors))} "
        "times less than their median"
    )


def _round(value: float, down: bool = False) -> str:
    """Two digits that matter."""
    step = 10 ** (math.floor(math.log10(value)) - 1)
    return f"{(math.floor if down else round)(value / step) * step:.3g}"


def _place(fig, axes, column: int) -> None:
    width, height = fig.get_size_inches()
    left = _MARGIN + column * (_MARGIN + _PANEL + _KEY)
    bottom = 0.58
    top = fig.header_bottom * height - 0.28
    axes.set_position((left / width, bottom / height, _PANEL / width, (top - bottom) / height))


def _draw_unbiased(axes, series: list[Series]) -> None:
    axes.set_title("Unbiased codecs")
    shown = _within(axes, series, _MOST_NMSE_UNBIASED)
    least = min(nmse for s in shown for _, nmse in s.points) if shown else 1e-3
    axes.set_yscale("log")
    axes.set_xlim(0, 8.5)
    axes.set_xticks(range(9))
    axes.set_ylim(least / 2, _MOST_NMSE_UNBIASED * 1.5)
    _paint(axes, shown)
    _limit(axes, 0.02, 8.5, data.gaussian_limit)


def _draw_others(axes, series: list[Series]) -> None:
    axes.set_title("Contractive and biased codecs, for error feedback")
    shown = _within(axes, series, _MOST_NMSE_OTHERS)
    every = [bits for s in shown for bits, _ in s.points] or [0.1, 1]
    low, high = min(every) / 1.3, max(every) * 1.3
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 2, 4, 8]
    axes.set_xticks([t for t in ticks if low <= t <= high])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, _MOST_NMSE_OTHERS)
    _paint(axes, shown)
    _limit(axes, low, high, lambda rate: 4**-rate)


def _within(axes, series: list[Series], most: float) -> list[Series]:
    """Those with a point on the axes; the others are named."""
    shown = [s for s in series if min(nmse for _, nmse in s.points) <= most]
    hidden = dict.fromkeys(s.name for s in series if s not in shown)
    if hidden:
        words = f"not shown, NMSE above {most}: {', '.join(hidden)}"
        axes.text(
            1, 1.005, words, transform=axes.transAxes, size=8, color=look.QUIET, ha="right"
        )
    return shown


def _paint(axes, series: list[Series]) -> None:
    """Lines in the colour of their kind, and the key beside them, a heading a kind."""
    lines = {}
    for kind in (*KINDS, OTHER):
        members = sorted(
            (s for s in series if kind_of(s.name) is kind), key=lambda s: s.coded
        )  # so that the key shows the uncoded form
        names = list(dict.fromkeys(s.name for s in members))
        for each in members:
            form = {
                "color": kind.colour,
                "marker": look.MARKERS[names.index(each.name) % len(look.MARKERS)],
                "markersize": 5,
                "linewidth": 2.2 if kind.bold else 1,
                "zorder": 4 if kind.bold else 3,
            }
            if each.coded:
                form |= {
                    "markerfacecolor": "white",
                    "linestyle": (0, (3, 2)),
                    "linewidth": 1.3 if kind.bold else 0.8,
                }
            (line,) = axes.plot(*zip(*each.points, strict=True), **form)
            lines.setdefault((kind, each.name), line)
    _key(axes, lines)


def _key(axes, lines: dict) -> None:
    inch = 1 / (axes.get_position().height * axes.figure.get_figheight())
    y, last = 1.0, None
    for (kind, name), line in [*lines.items(), ((None, "limit for\niid Gaussian"), None)]:
        if kind is not last:
            y -= 0.06 * inch
            if kind:
                words = {"size": 8.5, "color": look.QUIET, "va": "top"}
                axes.text(1.03, y, kind.name, transform=axes.transAxes, **words)
                y -= 0.165 * inch
            last = kind
        form = {"color": look.INK, "linestyle": (0, (1, 1.5)), "linewidth": 1.1}
        if line:
            form = {"color": line.get_color(), "marker": line.get_marker(), "markersize": 5}
            form |= {"markerfacecolor": line.get_markerfacecolor(), "linewidth": 0}
        x = [1.035, 1.055, 1.075] if line is None else [1.055]
        mark = axes.plot(
            x, [y - 0.08 * inch] * len(x), transform=axes.transAxes, clip_on=False, **form
        )[0]
        axes.text(
            1.09,
            y,
            name,
            transform=axes.transAxes,
            size=9,
            color=mark.get_color(),
            weight="bold" if kind and kind.bold else "normal",
            va="top",
        )
        y -= 0.165 * inch * (name.count("\n") + 1)


def _limit(axes, low: float, high: float, nmse: Callable[[float], float]) -> None:
    bits = [low + (high - low) * i / 800 for i in range(801)]
    axes.plot(
        bits,
        [nmse(b) for b in bits],
        color=look.INK,
        linewidth=1.1,
        linestyle=(0, (1, 1.5)),
        zorder=2,
    )
