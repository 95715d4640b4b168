"""One look for every plot of the project.

    with elastiquant_plot.style():
        figure, axes = elastiquant_plot.figure("What was found", "how it was measured")
        ...
        elastiquant_plot.save(figure, folder / "name")

Colours are those of Okabe and Ito (2008), told apart under every common form of colour
blindness, and every series has a name in its own colour.
"""

from __future__ import annotations

import textwrap
from contextlib import contextmanager
from pathlib import Path

try:
    import matplotlib
except ImportError as error:
    raise ImportError(
        "plots need matplotlib: run `make setup`, or `python3 -m pip install matplotlib`, or "
        "name another Python with --python"
    ) from error

matplotlib.use("Agg")  # files only: needs no display
import matplotlib.pyplot as plt

INK = "#222222"
QUIET = "#6B6B6B"
BASELINE = "#555555"
SERIES = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MARKERS = ("o", "s", "D", "^", "v", "P")

# Where a step's seconds go.
PHASES = {
    "compute": "#9A9A9A",
    "wait": "#D55E00",
    "encode": "#0072B2",
    "transmit": "#E69F00",
    "decode": "#56B4E9",
}

_STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "text.color": INK,
    "axes.edgecolor": QUIET,
    "axes.labelcolor": QUIET,
    "axes.labelsize": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": "#E6E6E6",
    "grid.linewidth": 0.8,
    "xtick.color": QUIET,
    "ytick.color": QUIET,
    "xtick.labelsize": 9,
    "ytick.labelsize": 9,
    "ytick.major.size": 0,
    "lines.linewidth": 1.9,
    "lines.solid_capstyle": "round",
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "svg.hashsalt": "elastiquant",  # the same plot gives the same file
}


@contextmanager
def style():
    with plt.rc_context(_STYLE):
        yield
    plt.close("all")


def colours(count: int, baseline: int | None = None) -> list[str]:
    """A colour for each of `count` series; the baseline, if any, is grey."""
    rest = iter(range(count))
    return [
        BASELINE if i == baseline else SERIES[next(rest) % len(SERIES)] for i in range(count)
    ]


def _balanced(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters and of about the same length."""
    count = len(textwrap.wrap(text, width))
    shorter = next(w for w in range(width + 1) if w and len(textwrap.wrap(text, w)) == count)
    return textwrap.wrap(text, shorter)


def figure(
    title: str, subtitle: str, columns: int = 1, width: float = 9.6, height: float = 4.6
):
    """A figure whose title says what was found, with a row of axes below it."""
    fig, axes = plt.subplots(1, columns, figsize=(width, height), squeeze=False)
    lines = _balanced(title, int(width * 9.2))
    top = 1 - 0.16 / height
    fig.text(0.012, top, "\n".join(lines), size=13, weight="bold", va="top", linespacing=1.25)
    below = top - (0.235 * len(lines) + 0.07) / height
    notes = textwrap.wrap(subtitle, int(width * 13))
    fig.text(0.012, below, "\n".join(notes), size=9.5, color=QUIET, va="top")
    fig.header_bottom = below - (0.17 * len(notes) + 0.12) / height
    return fig, list(axes[0])


def name_series(axes, names: list[str], corner: str) -> None:
    """Names the lines of `axes` in their own colours, stacked in a free corner.

    Lines of training runs end close together, so that names at their ends would collide.
    corner: "upper right", "lower right", ...
    """
    lines = axes.get_lines()
    legend = axes.legend(
        lines,
        names,
        loc=corner,
        fontsize=9.5,
        frameon=True,
        framealpha=0.85,
        edgecolor="none",
        borderaxespad=0.1,
        handlelength=1.6,
        labelspacing=0.45,
    )
    for text, line in zip(legend.get_texts(), lines, strict=True):
        text.set(color=line.get_color(), weight="bold")


def save(fig, stem: Path) -> list[Path]:
    """Writes stem.png (180 dpi) and stem.svg."""
    written = []
    for suffix, options in ((".png", {"dpi": 180}), (".svg", {"metadata": {"Date": None}})):
        path = stem.with_suffix(suffix)
        fig.savefig(path, **options)
        written.append(path)
    return written


def layout(fig, spacing: float = 0.2) -> None:
    """Places the axes under the header."""
    height = fig.get_figheight()
    fig.subplots_adjust(
        left=0.62 / fig.get_figwidth(),
        right=0.985,
        top=fig.header_bottom - 0.28 / height,
        bottom=0.58 / height,
        wspace=spacing,
    )
