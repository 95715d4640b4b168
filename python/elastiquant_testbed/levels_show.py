"""What BinGrad's and ORQ's experiment has come to: a table in Markdown, and a plot."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from elastiquant_testbed import levels, levels_claims, words

# An accuracy is drawn by the logarithm of its distance from a point that is so far above the
# best one, so that a scheme that fails does not squeeze all others together.
ABOVE = 1.5
MOST_TICKS = 9
# Ticks that are nearer to that point than the first number are multiples of the second.
UNITS = ((8, 1), (20, 2), (35, 5), (math.inf, 10))


def text(result: dict) -> str:
    rows = [
        [
            r["network"],
            levels_claims.name_of(r),
            r["levels"] or "",
            "yes" if r["clipped"] else "",
            "yes" if r["memory"] else "",
            levels_claims.error_of(r),
            levels_claims.own_error_of(r),
            "" if r["train_loss"] is None else f"{r['train_loss']:.3g}",
            words.accuracy(r),
            r["steps"],
        ]
        for r in result["rows"]
    ]
    heads = ["network", "scheme", "levels", "clipped", "memory", "error", "in its own run"]
    return words.page(
        "BinGrad's and ORQ's experiment",
        "The error is |g - decoded|^2 over |g|^2, of four gradients g of the run in full "
        "precision, the same for all schemes. The error in a scheme's own run is that of one "
        "worker's frames; with a memory, g then includes what is remembered. Its run has "
        "diverged if with some seed the training loss rises from the first epoch to the last, "
        "or is no longer finite. The loss is that of the last epoch. Losses and accuracies are "
        "means over the seeds, the latter with half of what these differ by.",
        words.table([*heads, "loss", "accuracy %", "steps"], rows, words=2),
        result,
    )


def draw(result: dict, stem: Path) -> None:
    """Error and accuracy over the number of levels, two panels a network."""
    import elastiquant_plot as look

    rows = result["rows"]
    networks = list(dict.fromkeys(r["network"] for r in rows))
    names = list(dict.fromkeys(scheme.name for scheme in levels.SCHEMES if scheme.levels))
    styles = {
        name: {"color": colour, "marker": marker}
        for name, colour, marker in zip(
            names, (*look.SERIES, look.BASELINE), (*look.MARKERS, "X"), strict=True
        )
    }
    with look.style():
        fig, panels = look.figure(
            _point(rows),
            f"{levels.WORKERS} workers, quantising once. Left: squared error on the same "
            "gradients. Right: test accuracy, spread out at the top (grey: fp32). Hollow: "
            "clipped. Left half filled: memory; right half: both.",
            columns=2 * len(networks),
            width=9.6 if len(networks) == 1 else 15,
        )
        named = {}
        for i, network in enumerate(networks):
            here = [r for r in rows if r["network"] == network]
            named |= _draw_panel(panels[2 * i], here, "error", styles)
            _draw_panel(panels[2 * i + 1], here, "accuracy", styles)
            _scale_accuracies(panels[2 * i + 1], [r["accuracy"] for r in here])
            if any(r["error"] for r in here):  # a logarithm of none has no scale
                _scale_errors(panels[2 * i])
            panels[2 * i].set_title(f"{network}: error")
            panels[2 * i + 1].set_title(f"{network}: accuracy, %")
        look.layout(fig, key=True)
        look.name_series(fig, list(named.values()), list(named), ["" for _ in named])
        look.save(fig, stem)


def _scale_errors(axes) -> None:
    """Logarithmic, with plain numbers."""
    from matplotlib import ticker

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def _scale_accuracies(axes, reached: list[float]) -> None:
    """Logarithmic in the distance from a point above the best one."""
    from matplotlib import ticker

    top = max(reached) + ABOVE

    def down(accuracy):
        return -np.log(np.maximum(top - accuracy, 1e-6))

    axes.set_yscale("function", functions=(down, lambda height: top - np.exp(-height)))
    axes.set_ylim(min(reached) - 0.1 * (top - min(reached)), max(reached) + ABOVE / 4)
    axes.yaxis.set_major_locator(ticker.FixedLocator(ticks(min(reached), max(reached))))
    axes.yaxis.set_minor_locator(ticker.NullLocator())


def ticks(least: float, most: float) -> list[int]:
    """Round accuracies from the best one down, which are about as far apart where they are
    drawn."""
    top = most + ABOVE
    apart = math.log((top - least) / ABOVE) / MOST_TICKS
    found: list[int] = []
    for value in range(math.floor(most), math.ceil(least) - 1, -1):
        below = top - value
        unit = next(unit for far, unit in UNITS if below < far)
        if value % unit == 0 and (not found or math.log(below / (top - found[-1])) >= apart):
            found.append(value)
    return found


def _draw_panel(axes, rows: list[dict], what: str, styles: dict[str, dict]) -> dict:
    """A line for each scheme and way; returns one by scheme, which names it."""
    places = [2, *levels_claims.LEVELS]
    lines = {}
    for r in rows:
        if r["levels"]:
            lines.setdefault((r["scheme"], r["clipped"], r["memory"]), []).append(r)
    full = [r["accuracy"] for r in rows if not r["levels"]]  # none, if it was not run yet
    if what == "accuracy" and full:
        axes.axhline(full[0], color="#B0B0B0", linewidth=1, zorder=0)
    named = {}
    for (name, clipped, memory), of in lines.items():
        # Side by side, as schemes of equal values would hide each other.
        aside = 0.06 * (list(styles).index(name) - (len(styles) - 1) / 2)
        xs = [places.index(r["levels"]) + aside for r in of]
        values = [math.nan if r[what] is None else r[what] for r in of]
        (line,) = axes.plot(xs, values, **_way(clipped, memory), **styles[name])
        named.setdefault(name, line)
    axes.set_xticks(range(len(places)), places)
    axes.set_xlabel("levels")
    return named


def _way(clipped: bool, memory: bool) -> dict[str, str]:
    """How a line is drawn. Its marks tell the way, too, as it may have one alone."""
    way = {"linestyle": "--" if clipped else "-", "markerfacecoloralt": "white"}
    if memory:
        return {**way, "fillstyle": "right" if clipped else "left"}
    return {**way, "markerfacecolor": "white"} if clipped else way


def _point(rows: list[dict]) -> str:
    """The title: how much less error ORQ has than evenly spaced levels."""
    plain = {
        (r["network"], r["scheme"], r["levels"]): r["error"]
        for r in rows
        if r["error"] and not (r["clipped"] or r["memory"])
    }
    gains = [
        plain[network, "Linear", count] / error
        for (network, scheme, count), error in plain.items()
        if scheme == "ORQ" and (network, "Linear", count) in plain
    ]
    if not gains:
        return "Error and accuracy of schemes with equally many levels"
    return (
        f"With as many levels, ORQ has {min(gains):.1f} to {max(gains):.1f} times less error "
        "than evenly spaced levels up to the largest value"
    )
