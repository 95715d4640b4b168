"""Measured variance and bits of a run's layers against their bounds (certificate.jsonl)."""

from __future__ import annotations

import json
import math
from pathlib import Path

from elastiquant_report.runs import Run, RunError, lines_of
from elastiquant_report.table import number

VERDICTS = ("holds", "loose", "exceeded", "unbounded")
_NEEDED = ("epoch", "layer", "nmse", "bound", "worst_case", "bits", "bits_bound", "verdict")


class Certificate:
    """Of one run: a dict a layer and epoch, the layer "" being all of them."""

    def __init__(self, run: Run, lines: list[dict]):
        self.run = run
        self.lines = lines

    @property
    def layers(self) -> list[dict]:
        return [line for line in self.lines if line["layer"]]

    @property
    def last(self) -> dict:
        """All layers in the last epoch that was measured."""
        return next(line for line in reversed(self.lines) if not line["layer"])

    @property
    def last_layers(self) -> list[dict]:
        return [line for line in self.layers if line["epoch"] == self.last["epoch"]]

    def count(self, verdict: str) -> int:
        """Layers and epochs with a verdict. Where a bound is exceeded, that of all layers
        together counts, too: it may show what no single layer can prove."""
        lines = self.lines if verdict == "exceeded" else self.layers
        return sum(line["verdict"] == verdict for line in lines)


def load_certificates(runs: list[Run]) -> list[Certificate]:
    """Of those runs that have one; runs that compress nothing, or were not measured, do not."""
    loaded = [Certificate(run, _load(run.folder / "certificate.jsonl")) for run in runs]
    return [certificate for certificate in loaded if certificate.lines]


def _load(file: Path) -> list[dict]:
    if not file.exists():
        return []
    lines = []
    for at, text in enumerate(lines_of(file), start=1):
        try:
            line = json.loads(text)
        except ValueError as error:
            raise RunError(f"{file}, line {at} is not a JSON object: {error}") from error
        if not isinstance(line, dict):
            raise RunError(f"{file}, line {at} is not a JSON object")
        if missing := [key for key in _NEEDED if key not in line]:
            raise RunError(f"{file}, line {at} lacks {', '.join(missing)}")
        lines.append(line)
    if lines and all(line["layer"] for line in lines):
        raise RunError(f"{file} has no line of all layers together: it is not whole")
    return lines


def finding(certificates: list[Certificate]) -> str:
    """One sentence; a warning if a bound was exceeded."""
    pairs = sum(len(c.layers) for c in certificates)
    exceeded = [
        f"{line['layer'] or 'all layers'} in epoch {line['epoch']} of {c.run.label}"
        for c in certificates
        for line in c.lines
        if line["verdict"] == "exceeded"
    ]
    if exceeded:
        more = f" and {len(exceeded) - 3} more" if len(exceeded) > 3 else ""
        return (
            f"WARNING: the variance of {', '.join(exceeded[:3])}{more} exceeds its "
            "bound, which is a bug of the codec or of the bound"
        )
    loose = sum(c.count("loose") for c in certificates)
    bounded = pairs - sum(c.count("unbounded") for c in certificates)
    if not bounded:
        return "No bound is known on the variance of these codecs"
    return (
        f"The variance stays within its bound in all {bounded} layers and epochs measured; "
        f"in {loose} the bound is more than 10 times what was measured"
    )


def display(certificates: list[Certificate]) -> tuple[list[str], list[list[str]]]:
    """Column heads and a line a run, of its last epoch; the verdicts are of all epochs."""
    head = ["codec", "NMSE", "worst case", "bound", "bound / NMSE", "bits", "bits at most"]
    head += list(VERDICTS)
    cells = []
    for c in certificates:
        last = c.last
        cells.append(
            [
                c.run.label,
                number(last["nmse"], ".3g"),
                number(last["worst_case"], ".3g"),
                number(last["bound"], ".3g"),
                number(looseness(last), ".3g", "×"),
                number(last["bits"], ".2f"),
                number(last["bits_bound"], ".2f"),
                *(str(c.count(verdict)) for verdict in VERDICTS),
            ]
        )
    return head, cells


def looseness(line: dict) -> float:
    """Bound over measured variance; NaN if one of them is not known, or nothing was lost."""
    return line["bound"] / line["nmse"] if line["bound"] and line["nmse"] else math.nan


def rows(certificates: list[Certificate]) -> list[dict]:
    """For certificate.csv: every layer and epoch of every run."""
    return [{"run": c.run.label, **line} for c in certificates for line in c.lines]


def draw(certificates: list[Certificate], stem: Path) -> list[Path]:
    """A row a run: each layer's variance, in the last epoch, as a part of its bound."""
    import elastiquant_plot as look

    bounded = [c for c in certificates if not math.isnan(looseness(c.last))]
    if not bounded:
        return []
    with look.style():
        fig, (axes,) = look.figure(
            finding(certificates),
            "Measured variance over its bound, last epoch. Small dots: layers. Large: all of "
            "them. Bars: the exact worst case over the bound. Shaded: a bound that is loose.",
            height=1.75 + 0.5 * len(bounded),
        )
        colours = look.colours(len(bounded))
        for y, (c, colour) in enumerate(zip(bounded, colours, strict=True)):
            parts = [
                1 / looseness(line) for line in c.last_layers if line["bound"] and line["nmse"]
            ]
            axes.plot(parts, [y] * len(parts), "o", color=colour, alpha=0.35, ms=4, mew=0)
            axes.plot([1 / looseness(c.last)], [y], "o", color=colour, ms=9)
            if c.last["worst_case"]:
                worst = c.last["worst_case"] / c.last["bound"]
                axes.plot([worst], [y], "|", color=colour, ms=17, mew=2.5)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
        left = min(0.05, axes.get_xlim()[0])
        axes.set_xlim(left, max(1.6, axes.get_xlim()[1]))
        axes.axvspan(left, 0.1, color="#F2F2F2", zorder=0)
        axes.axvline(1, color=look.INK, lw=1.2)
        axes.set_ylim(len(bounded) - 0.5, -0.5)
        axes.set_yticks(range(len(bounded)), [look.wrap_name(c.run.label) for c in bounded])
        for tick in axes.get_yticklabels():
            tick.set(color=look.INK, weight="bold", size=9.5)
        axes.grid(axis="x")
        axes.set_xlabel("variance / bound")
        look.layout(fig)
        look.make_room_for_names(fig, axes)
        return look.save(fig, stem)
