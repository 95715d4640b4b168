"""The plot of lab/frontier.py: loss against bytes, each point named where there is room."""

from __future__ import annotations

import itertools
import math
import pathlib
import sys

import numpy as np
from frontier_rows import Row, fewer, frontier, reached
from frontier_schemes import METHODS

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

# How near fp32's loss, in per cent, at how many times fewer bytes.
TARGETS = ((3.0, 1000), (1.0, 150))
# Losses that are farther above full precision's than this, in per cent, are outside the plot.
SHOWN = 25.0
# With no more schemes than this each one is named where there is room; with more, those on the
# frontier, those that send at every step, and the lowest loss of each method.
NAMED = 20
# How methods differ, for the key.
DETAILS = {
    "DDP": "gradients, every step",
    "local": "models are averaged",
    "QSR": "the same, in rounds that\ngrow as the rate falls",
    "DiLoCo": "outer momentum .9, rate .7",
    "DiLoCo .5": "outer momentum .5, rate .9",
    "streaming": "DiLoCo in 4 fragments,\ndelayed and mixed",
    "streaming .5": "DiLoCo .5 in 4 fragments,\ndelayed and mixed",
    "SparseLoCo": "few values, own codec",
}
# Where a name may stand: points from its mark, and which side of the text that is.
PLACES = (
    (8, 0, "left", "center"),
    (-8, 0, "right", "center"),
    (0, 9, "center", "bottom"),
    (0, -9, "center", "top"),
    (7, 7, "left", "bottom"),
    (7, -7, "left", "top"),
    (-7, 7, "right", "bottom"),
    (-7, -7, "right", "top"),
)
# And farther away, with a line to the mark.
FARTHER = tuple(
    (math.copysign(side * (7 + 2 * far), x), math.copysign(8 + 8 * far, y), across, up)
    for far in range(1, 12)
    for side in (1, 3)
    for x, y, across, up in PLACES[4:]
)


def title(rows: list[Row]) -> str:
    """What the plot shows: the fewest bytes within the first target's loss."""
    per_cent, _ = TARGETS[0]
    best = reached(rows, per_cent)
    if best is rows[0]:
        return f"No scheme comes within {per_cent:g} % of full precision's loss in fewer bytes"
    return (
        f"{fewer(best, rows[0]):,.0f} times fewer bytes within {per_cent:g} % of full "
        f"precision's loss: {best.scheme.name}"
    )


def overlap(a: tuple, b: tuple) -> float:
    """The area that two boxes (left, bottom, right, top) share."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    return max(0.0, width) * max(0.0, height)


def covered(boxes: list[tuple], taken: list[tuple], inside: tuple) -> float:
    """The area of some boxes that covers what is taken, or lies outside."""
    total = 0.0
    for box in boxes:
        area = (box[2] - box[0]) * (box[3] - box[1])
        total += area - overlap(box, inside) + sum(overlap(box, other) for other in taken)
    return total


def choose(
    places: list[list[tuple]], taken: list[tuple], inside: tuple, anyway: bool
) -> int | None:
    """The first of the places, each of some boxes, that covers none of what is taken and lies
    inside; if there is none, that which covers the least if it is wanted anyway, else None."""
    areas = [covered(boxes, taken, inside) for boxes in places]
    free = next((number for number, area in enumerate(areas) if area < 1), None)
    return areas.index(min(areas)) if free is None and anyway else free


def draw(rows: list[Row], how: str, path: pathlib.Path) -> None:
    """Marks tell methods apart, and a line joins the schemes that no other one beats."""
    import elastiquant_plot as look

    base = rows[0]
    highest = base.loss * (1 + SHOWN / 100)
    shown = [r for r in rows if r.loss <= highest]
    best = frontier(shown)
    outside = len(rows) - len(shown)
    if outside:
        how += f"; outside the plot, more than {SHOWN:g} % above fp32: {outside} of {len(rows)}"
    with look.style():
        fig, (axes,) = look.figure(title(rows), f"{how}. Green: the targets.", height=6.2)
        marks = draw_points(axes, shown, look)
        draw_frontier(axes, best, highest, look)
        fit(axes, shown, base)
        taken = draw_targets(axes, base, look)
        axes.set_ylabel("loss on the test set")
        axes.set_xlabel("MB that a worker sends in the whole run")
        above = axes.secondary_xaxis(
            "top", functions=(lambda mb: times(base, mb), lambda n: times(base, n))
        )
        above.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}×" if value >= 1 else "")
        above.set_xlabel("times fewer bytes than fp32 at every step")
        above.tick_params(which="both", length=0)
        above.spines[:].set_visible(False)
        look.layout(fig, key=True)
        inches = fig.get_figheight()
        fig.subplots_adjust(
            left=0.085, bottom=0.55 / inches, top=fig.header_bottom - 0.5 / inches
        )
        handles, names = zip(*marks, strict=True)
        look.name_series(fig, list(handles), list(names), [DETAILS[n] for n in names])
        name_points(axes, worth_naming(shown, best), shown, best, taken, look)
        fig.savefig(path, dpi=180)


def worth_naming(rows: list[Row], best: list[Row]) -> list[Row]:
    """Those on the frontier first, as names that find no room are left out."""
    rest = sorted((r for r in rows if r not in best), key=lambda r: r.loss)
    if len(rows) > NAMED:
        lowest = {r.scheme.method: r for r in reversed(rest)}
        rest = [r for r in rest if r.scheme.every == 1 or r is lowest[r.scheme.method]]
    return [*best, *rest]


def times(base: Row, megabytes: np.ndarray) -> np.ndarray:
    """Between MB and how many times fewer they are: each is the other's inverse."""
    with np.errstate(divide="ignore"):  # matplotlib also asks of zero
        return base.bytes / 1e6 / np.asarray(megabytes)


def draw_points(axes, rows: list[Row], look) -> list[tuple]:
    """A mark for each scheme; returns one of each method with its name."""
    styles = [*zip(look.SERIES, look.MARKERS, strict=True), (look.SEVENTH, "*")]
    ddp, *others = METHODS
    colours = dict(zip(others, styles, strict=True)) | {ddp: (look.BASELINE, "X")}
    found = []
    for method, (colour, mark) in colours.items():
        own = [r for r in rows if r.scheme.method == method]
        if own:
            (line,) = axes.plot(
                [r.bytes / 1e6 for r in own],
                [r.loss for r in own],
                mark,
                color=colour,
                markersize=7,
                zorder=3,
                label=method,
            )
            found.append((line, method))
    return found


def draw_frontier(axes, best: list[Row], highest: float, look) -> None:
    """Steps: with so many bytes at most, the lowest loss that was reached."""
    xs = [best[0].bytes / 1e6, *(r.bytes / 1e6 for r in best)]
    ys = [highest, *(r.loss for r in best)]
    axes.plot(xs, ys, drawstyle="steps-post", color=look.QUIET, linewidth=1.2, zorder=1)


def fit(axes, rows: list[Row], base: Row) -> None:
    """Limits that hold all points and the corners of the targets."""
    losses = [r.loss for r in rows] + [base.loss * (1 + p / 100) for p, _ in TARGETS]
    low, high = min(losses), max(losses)
    axes.set_ylim(low - 0.06 * (high - low), high + 0.06 * (high - low))
    megabytes = [r.bytes / 1e6 for r in rows] + [base.bytes / 1e6 / n for _, n in TARGETS]
    wide = math.log(max(megabytes) / min(megabytes))
    axes.set_xscale("log")
    axes.set_xlim(
        min(megabytes) * math.exp(-0.16 * wide), max(megabytes) * math.exp(0.1 * wide)
    )
    axes.xaxis.set_major_formatter("{x:g}")


def draw_targets(axes, base: Row, look) -> list[tuple]:
    """Full precision's loss as a line, and for each target the corner that a scheme must be in;
    returns the boxes of the words, in pixels."""
    left, low = axes.get_xlim()[0], axes.get_ylim()[0]
    axes.axhline(base.loss, color=look.QUIET, linewidth=0.8, linestyle=":", zorder=0)
    words = []
    for per_cent, number in TARGETS:
        x, y = base.bytes / 1e6 / number, base.loss * (1 + per_cent / 100)
        axes.plot([left, x, x], [y, y, low], color="#009E73", linewidth=1, linestyle="--")
        axes.fill_between([left, x], low, y, color="#009E73", alpha=0.06, linewidth=0, zorder=0)
        words.append(
            axes.annotate(
                f"+{per_cent:g} %, {number}×",
                (x, low),
                xytext=(-4, 4),
                textcoords="offset points",
                ha="right",
                va="bottom",
                size=8.5,
                color="#00694D",
            )
        )
    return words


def obstacles(axes, rows: list[Row], best: list[Row], words: list) -> list[tuple]:
    """Boxes, in pixels, that no name may cover: marks, the frontier's line, and words."""
    renderer = axes.figure.canvas.get_renderer()
    half = 5 * axes.figure.dpi / 72  # of a mark
    found = [word.get_window_extent(renderer).extents for word in words]
    for row in rows:
        x, y = place(axes, row)
        found.append((x - half, y - half, x + half, y + half))
    x, y = place(axes, best[0])
    found.append((x - 1, y, x + 1, axes.get_window_extent(renderer).y1))
    for one, following in itertools.pairwise(best):
        (x, y), (to_x, to_y) = place(axes, one), place(axes, following)
        found += [(x, y - 1, to_x, y + 1), (to_x - 1, to_y, to_x + 1, y)]
    return [tuple(box) for box in found]


def along(start: np.ndarray, end: np.ndarray) -> list[tuple]:
    """Small boxes, in pixels, on the line from a mark to a name, but for its first third: there
    it is on the mark itself."""
    points = [start + part * (end - start) for part in np.linspace(0.34, 1, 16)]
    return [(x - 1, y - 1, x + 1, y + 1) for x, y in points]


def place(axes, row: Row) -> np.ndarray:
    """Of its mark, in pixels."""
    return axes.transData.transform((row.bytes / 1e6, row.loss))


def name_points(
    axes, order: list[Row], rows: list[Row], best: list[Row], words: list, look
) -> None:
    """Names each mark at the first place where it covers no other mark or name. Those on the
    frontier may have theirs farther away, with a line to the mark; others may have none."""
    from matplotlib.patheffects import withStroke

    fig = axes.figure
    fig.canvas.draw()
    renderer = fig.canvas.get_renderer()
    taken = obstacles(axes, rows, best, words)
    inside = axes.get_window_extent(renderer).extents
    for row in order:
        important = row in best
        text = axes.annotate(
            row.scheme.name,
            (row.bytes / 1e6, row.loss),
            xytext=(0, 0),
            textcoords="offset points",
            size=9 if important else 8,
            weight="bold" if important else "normal",
            color=look.INK if important else look.QUIET,
            zorder=4,
            path_effects=[withStroke(linewidth=2.5, foreground="white")],
        )
        places = [*PLACES, *(FARTHER if important else ())]
        boxes = []
        start = place(axes, row)
        for number, (x, y, across, up) in enumerate(places):
            text.set(position=(x, y), ha=across, va=up)
            boxes.append([tuple(text.get_window_extent(renderer).extents)])
            if number >= len(PLACES):
                boxes[-1] += along(start, start + np.array([x, y]) * fig.dpi / 72)
        number = choose(boxes, taken, tuple(inside), anyway=important)
        if number is None:
            text.remove()
            continue
        x, y, across, up = places[number]
        text.set(position=(x, y), ha=across, va=up)
        if number >= len(PLACES):
            axes.annotate(
                "",
                (row.bytes / 1e6, row.loss),
                xytext=(x, y),
                textcoords="offset points",
                arrowprops={"arrowstyle": "-", "color": look.QUIET, "linewidth": 0.7},
            )
        taken += boxes[number]
