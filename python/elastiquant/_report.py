"""elastiquant.report(): a recorded run as a table and plots."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path

from elastiquant._record import of_the_run, read_records
from elastiquant._stats import LayerStats, Stats


@dataclasses.dataclass(frozen=True)
class Report:
    """What report() made. str() of it is the table."""

    table: str
    """Markdown: the run's sums, over resets and restarts, then its layers since the last of
    these."""
    files: tuple[Path, ...]
    """The table and the plots, as files."""

    def __str__(self) -> str:
        return self.table


def report(run: str | os.PathLike, out: str | os.PathLike | None = None) -> Report:
    """Draws a run that record(run, step) of compress(), DiLoCo, LocalSGD or Gossip has written.
    Its table calls each mean a step, as stats() does; in its plots steps are the script's.

    run: that file. A line that a killed run has left unfinished is not read.
    out: the folder to write into, made if need be; by default run's name and '_report', beside
        it. Gets table.md and, as PNG and SVG, the plots bytes (sent, against fp32), seconds (of
        a step) and layers (error against bound).

    Needs matplotlib. Raises FileNotFoundError, and ValueError for a file that is no record or
    has less than two lines.
    """
    try:  # here, so that training needs no matplotlib
        from elastiquant import _plots
    except ImportError as error:
        raise ImportError("plots need matplotlib: pip install 'elastiquant[plots]'") from error

    path = Path(run)
    records = read_records(path)
    folder = Path(out) if out is not None else path.with_name(path.stem + "_report")
    folder.mkdir(parents=True, exist_ok=True)
    *_, sums = of_the_run(records)
    table = _table(sums, records[-1].layers)
    (folder / "table.md").write_text(table)
    return Report(table, (folder / "table.md", *_plots.draw(records, folder)))


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"


def _table(stats: Stats, layers: Sequence[LayerStats]) -> str:
    steps = max(stats.steps, 1)
    rows = [
        ("steps", f"{stats.steps}, and {stats.skipped} skipped"),
        ("sent as fp32, which was faster", f"{stats.fp32_steps} steps"),
        ("sent", f"{stats.bytes_up / 1e6:.3g} MB, {stats.fp32_ratio:.3g} times less than fp32"),
        ("received", f"{stats.bytes_down / 1e6:.3g} MB"),
        ("bits per value", _figure(stats.bits_per_coordinate)),
        ("nmse", _figure(stats.nmse)),
    ]
    for phase in ("encode", "wire", "wait", "decode"):
        milliseconds = getattr(stats, f"{phase}_seconds") / steps * 1e3
        rows.append((phase, f"{milliseconds:.3g} ms a step"))
    lines = ["| of the run | |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in rows)]
    if layers:
        lines += ["", "| layer | values | bits | nmse | ± | bound | noise | |"]
        lines += ["| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |"]
        lines += [_layer_row(layer) for layer in layers]
    return "\n".join(lines) + "\n"


def _layer_row(layer: LayerStats) -> str:
    measured = (layer.bits, layer.nmse, layer.spread, layer.bound, layer.noise)
    remarks = layer.verdict + (", mostly noise" if layer.is_mostly_noise else "")
    cells = (layer.name or "all", str(layer.coordinates), *map(_figure, measured), remarks)
    return "| " + " | ".join(cells) + " |"
