"""One figure an input: unbiased codecs with their limit, and beside them all others."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from statistics import median

import elastiquant_plot as look
from elastiquant_rates import series as data
from elastiquant_rates.series import Series

# Those of this project stand out; all others share the remaining colours.
_OWN = {"dither": look.SERIES[0], "elastic": look.SERIES[1]}
_PANEL, _KEY, _MARGIN = 4.1, 1.35, 0.62  # inches
_MOST_NMSE = 1.2  # of codecs for error feedback; sending nothing has 1


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
        "of whole frames. Hollow: the same values, entropy-coded.",
        columns=len(panels),
        width=len(panels) * (_MARGIN + _PANEL + _KEY) + 0.1,
        height=5.4,
    )
    for i, (panel, (paint, series)) in enumerate(zip(axes, panels, strict=True)):
        _place(fig, panel, i)
        paint(panel, series)
        panel.set_xlabel("bits per coordinate")
        _key(panel)
    axes[0].set_ylabel("NMSE")
    return look.save(fig, stem)


def _key(axes) -> None:
    legend = axes.legend(
        loc="upper left",
        bbox_to_anchor=(1.02, 1.02),
        frameon=False,
        fontsize=9,
        handlelength=1.6,
        borderaxespad=0,
    )
    for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True):
        text.set_color(line.get_color())


def headline(unbiased: list[Series]) -> str:
    """What the unbiased panel shows of the codec `dither`."""
    own = next((s for s in unbiased if s.name == "dither"), None)
    rest = [s for s in unbiased if s is not own]
    factors = data.advantages(own, rest) if own else []
    if not factors or min(factors) < 1:
        return "Error against size"
    return (
        f"From {own.points[0][0]:.2g} bits up dither has {_round(min(factors))} to "
        f"{_round(max(factors))} times less variance than any other unbiased codec of equal "
        f"size (median {_round(median(factors))})"
    )


def _round(value: float) -> str:
    """Two digits that matter."""
    step = 10 ** (math.floor(math.log10(value)) - 1)
    return f"{round(value / step) * step:g}"


def _place(fig, axes, column: int) -> None:
    width, height = fig.get_size_inches()
    left = _MARGIN + column * (_MARGIN + _PANEL + _KEY)
    bottom = 0.58
    top = fig.header_bottom * height - 0.28
    axes.set_position((left / width, bottom / height, _PANEL / width, (top - bottom) / height))


def _looks(series: list[Series]) -> dict[str, dict]:
    """A colour and a marker for each name."""
    names = list(dict.fromkeys(s.name for s in series))
    colours = [c for c in look.SERIES if c not in [_OWN.get(name) for name in names]]
    looks = {}
    for name in names:
        if name in _OWN:
            looks[name] = {"color": _OWN[name], "marker": "o", "linewidth": 2.2, "zorder": 4}
            continue
        place = sum(other not in _OWN for other in looks)
        turn, lap = place % len(colours), place // len(colours)
        marker = look.MARKERS[1 + (turn + lap) % (len(look.MARKERS) - 1)]
        looks[name] = {"color": colours[turn], "marker": marker, "linewidth": 1.1, "zorder": 3}
    return looks


def _paint(axes, series: list[Series]) -> None:
    looks = _looks(series)
    named = set()
    for each in sorted(series, key=lambda s: (s.coded, -data.distance(s))):
        label = "_" if each.name in named else each.name
        named.add(each.name)
        form = dict(looks[each.name], markersize=5, label=label)
        if each.coded:
            form |= {
                "markerfacecolor": "white",
                "linestyle": (0, (3, 2)),
                "linewidth": 0.9,
            }
        axes.plot(*zip(*each.points, strict=True), **form)


def _draw_unbiased(axes, series: list[Series]) -> None:
    axes.set_title("Unbiased codecs")
    axes.set_yscale("log")
    _paint(axes, series)
    _limit(axes, 0.3, 8.5, data.gaussian_limit)
    axes.set_xlim(0, 8.5)
    axes.set_xticks(range(9))


def _limit(axes, low: float, high: float, nmse: Callable[[float], float]) -> None:
    bits = [low + (high - low) * i / 400 for i in range(401)]
    axes.plot(
        bits,
        [nmse(b) for b in bits],
        color=look.INK,
        linewidth=1.1,
        linestyle=(0, (1, 1.5)),
        zorder=2,
        label="limit for\niid Gaussian",
    )


def _draw_others(axes, series: list[Series]) -> None:
    axes.set_title("Contractive and biased codecs, for error feedback")
    shown = [s for s in series if min(nmse for _, nmse in s.points) <= _MOST_NMSE]
    _paint(axes, shown)
    every = [bits for s in shown for bits, _ in s.points] or [0.1, 1]
    low, high = min(every) / 1.3, max(every) * 1.3
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    ticks = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 2, 4, 8]
    axes.set_xticks([t for t in ticks if low <= t <= high])
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.set_ylim(0, _MOST_NMSE)
    _limit(axes, low, high, lambda rate: 4**-rate)
    if hidden := [s.name for s in series if s not in shown]:
        words = f"not shown, NMSE above {_MOST_NMSE}: {', '.join(dict.fromkeys(hidden))}"
        axes.text(
            0.01, 0.985, words, transform=axes.transAxes, size=8.5, color=look.QUIET, va="top"
        )
