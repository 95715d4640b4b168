"""Two panels: what each family of levels costs in the worst case, and on Gaussian values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import elastiquant_plot as look

_BLUE, _VERMILION, _GREEN, _PINK, _ORANGE, _SKY = look.SERIES
_WIDTH, _HEIGHT, _KEY = 11.2, 5.4, 2.0  # inches


@dataclass(frozen=True)
class Family:
    name: str  # in the report
    label: str
    colour: str
    marker: str


FAMILIES = (
    Family("uniform", "uniform", _PINK, "s"),
    Family("exp p=1/2", "powers of ½", _ORANGE, "D"),
    Family("elastic", "elastic,\np by the bound", _VERMILION, "o"),
    Family("elastic, exact p", "elastic,\np by the exact\nworst case", _BLUE, "^"),
    Family("minimax", "minimax: the\nleast of all\nlevel sets", look.INK, "v"),
)


def draw(report: dict, stem: Path) -> list[Path]:
    """Writes STEM.png and .svg."""
    with look.style():
        fig, axes = look.figure(
            headline(report),
            f"Buckets of {report['bucket']} values under their {norm_name(report)} norm. Left: "
            "lines are the exact worst case over all gradients, dots the bound ε_Q that codecs "
            "promise. Right: what the codec measures on Gaussian values. Bits are those of "
            "fixed width, norms included.",
            columns=2,
            width=_WIDTH,
            height=_HEIGHT,
        )
        curves = {curve["family"]: curve["points"] for curve in report["curves"]}
        lines = _worst(axes[0], curves)
        _gaussian(axes[1], curves)
        for panel in axes:
            panel.set_xlabel("bits per coordinate")
            panel.set_yscale("log")
        axes[0].set_ylabel("variance, E‖Q(v) \N{MINUS SIGN} v‖² / ‖v‖²")
        _place(fig, axes)
        _name(fig, axes[1], lines)
        return look.save(fig, stem)


def norm_name(report: dict) -> str:
    order = report["norm_order"]
    return "L∞" if order == "infinity" else f"L{order:g}"


def headline(report: dict) -> str:
    """How elastic levels compare with uniform and with the best ones, at 4 bits."""
    curves = {curve["family"]: curve["points"] for curve in report["curves"]}

    def at(family: str) -> float:
        return next(p["worst_case"] for p in curves[family] if p["bits"] == 4)

    if not at("elastic"):
        return "At 4 bits elastic levels have no error here"
    words = f"At 4 bits elastic levels have {_ratio(at('uniform') / at('elastic'))} the worst"
    words = words.replace("the worst", "times less worst-case variance than uniform ones")
    if at("uniform") < at("elastic"):
        words = "Uniform and elastic levels in the worst case"
    if "minimax" in curves and at("minimax"):
        more = at("elastic") / at("minimax")
        words += f", and {_ratio(more)} times that of the best levels there can be"
    return words


def _ratio(value: float) -> str:
    return f"{value:.2g}" if value < 10 else f"{value:.0f}"


def _shown(curves: dict):
    for family in FAMILIES:
        if family.name in curves:
            yield family, curves[family.name]


def _worst(axes, curves: dict) -> dict:
    axes.set_title("Worst case")
    lines = {}
    for family, points in _shown(curves):
        bits = [p["bits_per_coordinate"] for p in points]
        form = {"color": family.colour, "zorder": 3}
        worst = [p["worst_case"] for p in points]
        lines[family] = axes.plot(bits, worst, marker=family.marker, markersize=5, **form)[0]
        bound = [p["variance_bound"] for p in points]
        axes.plot(bits, bound, linestyle=(0, (1, 1.6)), linewidth=1.3, **form)
    return lines


def _gaussian(axes, curves: dict) -> None:
    axes.set_title("Measured on Gaussian values")
    for family, points in _shown(curves):
        bits = [p["bits_per_coordinate"] for p in points]
        measured = [p["measured_gaussian"] for p in points]
        axes.plot(bits, measured, color=family.colour, marker=family.marker, markersize=5)
    bits = [2 + i / 50 for i in range(301)]
    axes.plot(
        bits,
        [1 / (4**b - 1) for b in bits],
        color=look.INK,
        linewidth=1.1,
        linestyle=(0, (1, 1.5)),
    )
    axes.annotate(
        "limit of unbiased codes", (4.6, 1 / (4**4.6 - 1)), size=9, ha="right", va="top"
    )


def _place(fig, axes) -> None:
    width, height = fig.get_size_inches()
    bottom, top = 0.58, fig.header_bottom * height - 0.3
    panel = (width - _KEY - 1.4) / 2
    for i, each in enumerate(axes):
        left = 0.72 + i * (panel + 0.5)
        each.set_position(
            (left / width, bottom / height, panel / width, (top - bottom) / height)
        )


def _name(fig, axes, lines: dict) -> None:
    """Names in the colours of their lines, to the right of the panels."""
    width, height = fig.get_size_inches()
    x, y = axes.get_position().x1 + 0.18 / width, axes.get_position().y1
    for family, line in lines.items():
        mark = look.plt.Line2D(
            [x],
            [y - 0.08 / height],
            color=family.colour,
            marker=line.get_marker(),
            markersize=6,
            transform=fig.transFigure,
            figure=fig,
        )
        fig.add_artist(mark)
        fig.text(
            x + 0.14 / width,
            y,
            family.label,
            size=9.5,
            weight="bold",
            color=family.colour,
            va="top",
        )
        y -= (0.165 * (family.label.count("\n") + 1) + 0.14) / height
