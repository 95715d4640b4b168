"""One look for every plot of the project.

    with elastiquant_plot.style():
        figure, axes = elastiquant_plot.figure("What was found", "how it was measured")
        ...
        elastiquant_plot.save(figure, folder / "name")

Colours are those of Okabe and Ito (2008), told apart under every common form of colour
blindness, and every series has a name in its own colour.
"""

from __future__ import annotations

import itertools
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
SEVENTH = "#6B3E1D"  # for a figure that cannot do with six
MARKERS = ("o", "s", "D", "^", "v", "P")

# Where a step's seconds go.
PHASES = {
    "compute": "#9A9A9A",
    "wait": "#D55E00",
    "encode": "#0072B2",
    "transmit": "#E69F00",
    "decode": "#56B4E9",
}

_KEY_WIDTH, _KEY_LINE, _KEY_GAP = 2.45, 0.165, 0.14  # inches

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
    rest = itertools.cycle([*SERIES, SEVENTH])
    return [BASELINE if i == baseline else next(rest) for i in range(count)]


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters. Only a word that is longer is broken."""
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _balanced(text: str, width: int) -> list[str]:
    """As few lines as _wrap() makes, but of about the same length."""
    count = len(_wrap(text, width))
    shortest = max((len(word) for word in text.split()), default=1)
    shorter = next(
        w for w in range(min(shortest, width), width + 1) if len(_wrap(text, w)) == count
    )
    return _wrap(text, shorter)


def shorten(name: str, most: int) -> str:
    """A name of at most `most` characters: the middle of a longer one is left out."""
    if len(name) <= most:
        return name
    end = (most - 1) // 2
    return f"{name[: most - 1 - end]}…{name[-end:]}"


def wrap_name(name: str, width: int = 27) -> str:
    """A codec's name broken after commas, in four lines at most."""
    lines = _wrap(shorten(name, 4 * width - 8).replace(",", ", "), width)
    return "\n".join(lines).replace(", ", ",")


def make_room_for_names(fig, axes) -> None:
    """Moves the left end of the axes so that the names at its y-ticks fit, in up to half of
    the figure. Call it after layout()."""
    fig.canvas.draw()
    names = max(t.get_window_extent().width for t in axes.get_yticklabels()) / fig.dpi
    fig.subplots_adjust(left=min((names + 0.25) / fig.get_figwidth(), 0.5))


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


def key_height(names: list[str], lines_of_detail: int = 1) -> float:
    """Inches that name_series() needs for names with as many lines below each."""
    lines = sum(wrap_name(name).count("\n") + 1 + lines_of_detail for name in names)
    return _KEY_LINE * lines + _KEY_GAP * len(names)


def name_series(fig, lines, names: list[str], details: list[str]) -> None:
    """Names lines in their own colours, in a column to the right of the axes.

    Lines of training runs end close together, so that names at their ends would collide.
    Call it after layout(fig, key=True).
    """
    height = fig.get_figheight()
    left = 1 - _KEY_WIDTH / fig.get_figwidth()
    y = fig.axes[0].get_position().y1
    for line, name, detail in zip(lines, names, details, strict=True):
        mark = plt.Line2D(
            [left + 0.07 / fig.get_figwidth()],
            [y - 0.08 / height],
            color=line.get_color(),
            marker=line.get_marker(),
            markersize=7,
            transform=fig.transFigure,
            figure=fig,
        )
        fig.add_artist(mark)
        text = wrap_name(name)
        x = left + 0.22 / fig.get_figwidth()
        fig.text(x, y, text, size=9.5, weight="bold", color=line.get_color(), va="top")
        y -= _KEY_LINE * (text.count("\n") + 1) / height
        fig.text(x, y, detail, size=9, color=QUIET, va="top")
        y -= (_KEY_LINE * (detail.count("\n") + 1) + _KEY_GAP) / height


def save(fig, stem: Path) -> list[Path]:
    """Writes stem.png (180 dpi) and stem.svg. A dot in the stem is part of its name."""
    written = []
    for suffix, options in ((".png", {"dpi": 180}), (".svg", {"metadata": {"Date": None}})):
        path = stem.with_name(stem.name + suffix)
        fig.savefig(path, **options)
        written.append(path)
    return written


def layout(fig, spacing: float = 0.2, key: bool = False) -> None:
    """Places the axes under the header, and beside the column of name_series() if `key`."""
    height = fig.get_figheight()
    fig.subplots_adjust(
        left=0.62 / fig.get_figwidth(),
        right=1 - (_KEY_WIDTH + 0.15 if key else 0.15) / fig.get_figwidth(),
        top=fig.header_bottom - 0.28 / height,
        bottom=0.58 / height,
        wspace=spacing,
    )
