"""The table and the heat map of lab/atlas.py."""

from __future__ import annotations

import pathlib
import sys

import namespaces
from atlas_plan import label, rate_name

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

# Cells whose workers computed so many times as long as without a link are told of: something
# else may have used the processor.
SLOWED = 1.3

DEFINITION = (
    "Utilisation is the time that a step takes to compute if the same workers never meet, as "
    "part of the wall time of a step, over whole rounds."
)


class Atlas:
    """What is known: `settings` and `reference` as in atlas.json, and its list of cells."""

    def __init__(self, settings: dict, reference: dict, cells: list[dict]):
        self.settings, self.reference = settings, reference
        self.cells = {(c["codec"], c["every"], c["link"]): c for c in cells}
        # In the order in which they were asked for.
        self.codecs = list(dict.fromkeys(c["codec"] for c in cells))
        self.everies = sorted({c["every"] for c in cells})
        self.links = sorted({c["link"] for c in cells}, key=namespaces.parse_rate)

    def percent(self, codec: str, every: int, link: str) -> float | None:
        """At most 100, which noise may exceed; None if the cell is not there."""
        cell = self.cells.get((codec, every, link))
        return None if cell is None else min(100.0, 100 * cell["utilisation"])

    def how(self) -> str:
        """How it was measured."""
        s = self.settings
        by = "held to a rate by tc" if s["network"] == "tc" else "emulated by --link"
        delay = f", {s['delay']} of delay" if s["delay"] != "0ms" else ""
        return (
            f"{s['model']} ({self.reference['coordinates'] / 1e6:.3g} M parameters), "
            f"{s['workers']} workers with batches of {s['batch']} on {self.reference['cores']} "
            f"cores, {1e3 * self.reference['computing_seconds']:.3g} ms of computing a step; "
            f"links {by}{delay}; H = 1: {s['algorithms'][0]}, otherwise {s['algorithms'][1]}"
        )


def shown(percent: float) -> str:
    """Two digits that count, but for 0 and 100."""
    return f"{percent:.1f}" if 0.05 <= percent < 9.95 else f"{percent:.0f}"


def table(atlas: Atlas) -> str:
    """Markdown: utilisation and seconds a step, by codec, H and link."""
    heads = ["codec", "H", "KB sent a step", *map(rate_name, atlas.links)]
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    slowed = 0
    for codec in atlas.codecs:
        for every in atlas.everies:
            cells = [atlas.cells.get((codec, every, link)) for link in atlas.links]
            known = [cell for cell in cells if cell]
            if not known:
                continue
            sent = min(cell["bytes_per_round"] for cell in known) / every / 1e3
            row = [
                label(codec).replace("|", "\\|"),
                str(every),
                f"{sent:.0f}" if sent >= 100 else f"{sent:.3g}",
            ]
            for cell, link in zip(cells, atlas.links, strict=True):
                percent = atlas.percent(codec, every, link)
                text = (
                    ""
                    if cell is None
                    else f"{shown(percent)} % ({cell['seconds_per_step']:.3g} s)"
                )
                row.append(text)
            slowed += sum(
                cell["compute_seconds_per_step"] > SLOWED * atlas.reference["computing_seconds"]
                for cell in known
            )
            lines.append("| " + " | ".join(row) + " |")
    notes = f"\n{DEFINITION} In brackets: that wall time.\n\nMeasured on {atlas.how()}.\n"
    if slowed:
        notes += (
            f"\nIn {slowed} of {len(atlas.cells)} cells a step's own computing took more than "
            f"{SLOWED} times as long as without a link: encoding, the kernel's work on frames, "
            "or something else on this machine took processor time.\n"
        )
    return "\n".join(lines) + "\n" + notes


def point(atlas: Atlas) -> str:
    """The title: where the last codec gains most over the first one."""
    first, last = atlas.codecs[0], atlas.codecs[-1]
    pairs = [
        (after - before, every, link, before, after)
        for every in atlas.everies
        for link in atlas.links
        if (before := atlas.percent(first, every, link)) is not None
        and (after := atlas.percent(last, every, link)) is not None
    ]
    if first == last or not pairs:
        return "The share of time in which workers compute"
    _, every, link, before, after = max(pairs)
    meeting = "at every step" if every == 1 else f"every {every} steps"
    return (
        f"At {rate_name(link)}, meeting {meeting}, workers compute {shown(before)} % of the "
        f"time in {label(first)}, and {shown(after)} % in {label(last)}"
    )


def draw(atlas: Atlas, path: pathlib.Path) -> None:
    """A panel for each codec: H upwards, rates to the right, per cent in each square."""
    import matplotlib.pyplot as plt

    import elastiquant_plot as look

    colours = plt.get_cmap("viridis").with_extremes(bad="#F2F2F2")
    with look.style():
        fig, panels = look.figure(
            point(atlas),
            f"% of the wall time that is computing. {atlas.how()}.",
            columns=len(atlas.codecs),
            height=2.05 + 0.42 * len(atlas.everies),
        )
        for axes, codec in zip(panels, atlas.codecs, strict=True):
            values = [
                [atlas.percent(codec, every, link) for link in atlas.links]
                for every in atlas.everies
            ]
            axes.imshow(
                [[float("nan") if v is None else v for v in row] for row in values],
                cmap=colours,
                vmin=0,
                vmax=100,
                origin="lower",
                aspect="auto",
            )
            for y, row in enumerate(values):
                for x, value in enumerate(row):
                    if value is not None:
                        ink = "white" if value < 60 else look.INK
                        axes.text(
                            x, y, shown(value), color=ink, ha="center", va="center", size=10
                        )
            axes.set_title(label(codec), pad=6)
            axes.set_xticks(range(len(atlas.links)), [short(link) for link in atlas.links])
            axes.set_yticks(range(len(atlas.everies)), atlas.everies)
            axes.grid(False)
            axes.spines[:].set_visible(False)
            # White gaps between the squares.
            axes.set_xticks([x + 0.5 for x in range(len(atlas.links) - 1)], minor=True)
            axes.set_yticks([y + 0.5 for y in range(len(atlas.everies) - 1)], minor=True)
            axes.grid(which="minor", axis="both", color="white", linewidth=2)
            axes.tick_params(which="minor", length=0)
            axes.set_xlabel("each worker's link, bit/s")
        panels[0].set_ylabel("H, steps a round")
        look.layout(fig, spacing=0.14)
        fig.savefig(path, dpi=180)


def short(link: str) -> str:
    """ "20M" of "20mbit"."""
    return link.removesuffix("bit").replace("m", "M").replace("g", "G")
