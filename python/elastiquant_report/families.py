"""Many codecs at one budget: a table and a dot plot, from the fewest bytes to the most."""

from __future__ import annotations

import math
from pathlib import Path
from statistics import fmean

from elastiquant_report import findings, table
from elastiquant_report.groups import Group, Row

_HEAD = [
    "codec",
    "test accuracy %",
    "training loss",
    "bits/coord",
    "KB/step",
    "fewer bytes",
    "NMSE",
    "encode ms",
    "decode ms",
]


def families_table(group: Group) -> str:
    return table.as_markdown(_HEAD, [_cells(row, group.base) for row in group.rows])


def _kilobytes(row: Row) -> float:
    return fmean(run.bytes_per_step for run in row.accuracy_runs) / 1e3


def _cells(row: Row, base: Row) -> list[str]:
    runs = row.accuracy_runs
    kilobytes = _kilobytes(row)
    fewer = _kilobytes(base) / kilobytes if kilobytes else math.nan
    errors = [run["nmse"] for run in runs if run["nmse"] is not None]
    return [
        row.codec,
        row.accuracy(),
        row.loss(),
        f"{fmean(run['bits_per_coordinate'] for run in runs):.3f}",
        f"{kilobytes:.1f}",
        table.number(fewer, ".1f", "×"),
        table.number(fmean(errors) if errors else math.nan, ".3g"),
        *(
            f"{fmean(run.per_step(phase) for run in runs) * 1e3:.2f}"
            for phase in ("encode", "decode")
        ),
    ]


def draw_families(group: Group, folder: Path) -> list[Path]:
    """A line a codec: its accuracy, each seed and their mean, and what a worker sends."""
    import elastiquant_plot as look

    rows = sorted(group.rows, key=_kilobytes)
    runs = [run for row in rows for run in row.accuracy_runs]
    with look.style():
        fig, (left, right) = look.figure(
            _title(group, rows),
            findings.setting(runs),
            columns=2,
            width=10.4,
            height=1.7 + 0.27 * len(rows),
        )
        for axes in (left, right):
            axes.grid(axis="x")
            axes.set_ylim(-0.6, len(rows) - 0.4)
        base = fmean(run["test_accuracy"] for run in group.base.accuracy_runs)
        left.axvline(base, color=look.BASELINE, linewidth=1, linestyle=(0, (4, 3)))
        for y, row in enumerate(rows):
            seeds = [run["test_accuracy"] for run in row.accuracy_runs]
            colour = look.BASELINE if row is group.base else look.SERIES[0]
            left.plot(seeds, [y] * len(seeds), "|", color=colour, markersize=8, alpha=0.55)
            left.plot([fmean(seeds)], [y], "o", color=colour, markersize=6)
            right.plot([_kilobytes(row)], [y], "o", color=colour, markersize=6)
        left.set_yticks(range(len(rows)), [look.wrap_name(row.codec, 60) for row in rows])
        left.tick_params(axis="y", labelcolor=look.INK)
        right.set_yticks(range(len(rows)), [""] * len(rows))
        right.set_xscale("log")
        right.xaxis.set_major_formatter("{x:g}")
        left.set_title("Test accuracy, %")
        right.set_title("KB that a worker sends a step")
        fig.subplots_adjust(
            left=0.36,
            right=0.985,
            top=fig.header_bottom - 0.3 / fig.get_figheight(),
            bottom=0.38 / fig.get_figheight(),
            wspace=0.06,
        )
        return look.save(fig, folder / f"{group.slug}-families")


def _title(group: Group, rows: list[Row]) -> str:
    """The fewest bytes that keep the baseline's accuracy to half a point."""
    accuracy = {id(row): fmean(r["test_accuracy"] for r in row.accuracy_runs) for row in rows}
    least = accuracy[id(group.base)] - 0.5
    leanest = next((row for row in rows if accuracy[id(row)] >= least), group.base)
    if leanest is group.base:
        return f"No codec comes within half a point of {group.base.codec}'s accuracy"
    fewer = _kilobytes(group.base) / _kilobytes(leanest)
    return (
        f"{leanest.codec} sends {fewer:.0f}× fewer bytes than {group.base.codec} "
        "and is within half a point of its accuracy"
    )
