"""The tables and curves of docs/results.md, from run folders.

Accuracy does not depend on the link, and many epochs over a slow link take hours. So there are
two kinds of runs: those without a link limit, for accuracy, and shorter ones with it, for the
time of a step. Both kinds of the same model, data, codec and number of workers make up one row;
several accuracy runs of a row, such as several seeds, are averaged.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable
from pathlib import Path

from elastiquant_report import families, table
from elastiquant_report.findings import rate_of
from elastiquant_report.groups import Group, Row, group_runs
from elastiquant_report.runs import PHASES, Run, RunError, label_runs, load_runs

BEGIN = "<!-- begin of what scripts/results.py writes -->"
END = "<!-- end of what scripts/results.py writes -->"
FAMILIES_BEGIN = "<!-- begin of what scripts/results.py --families writes -->"
FAMILIES_END = "<!-- end of what scripts/results.py --families writes -->"


def group_table(group: Group) -> str:
    head = ["codec", "test accuracy %", "training loss", "bits/coord", "KB/step", "fewer bytes"]
    timed = any(row.timing_runs for row in group.rows)
    if timed:
        head += [f"{phase} s" for phase in PHASES] + ["step ms", "speed-up"]
    return table.as_markdown(head, [_cells(row, group.base, timed) for row in group.rows])


def _cells(row: Row, base: Row, timed: bool) -> list[str]:
    bits = row.mean(lambda run: run["bits_per_coordinate"])
    sent = row.mean(lambda run: run.bytes_per_step)
    fewer = base.mean(lambda run: run.bytes_per_step) / sent if sent else math.nan
    cells = [row.codec, row.accuracy(), row.loss(), f"{bits:.3f}"]
    cells += [f"{sent / 1e3:.1f}", table.number(fewer, ".2f", "×")]
    if timed:
        for phase in PHASES:
            per_epoch = row.seconds_per_step(phase) * row.steps_per_epoch()
            cells.append(table.seconds(None if math.isnan(per_epoch) else per_epoch))
        total = row.seconds_per_step("total")
        cells.append(table.number(total * 1000, ".0f"))
        cells.append(table.number(base.seconds_per_step("total") / total, ".2f", "×"))
    return cells


def commands(group: Group) -> str:
    """One line a run, with the program by its name wherever it stood."""
    runs = [run for row in group.rows for run in row.accuracy_runs + row.timing_runs]
    lines = [re.sub(r"^\S*/", "", run["command"] or f"# unknown: {run.folder}") for run in runs]
    return "```sh\n" + "\n".join(lines) + "\n```"


def machine(runs: list[Run]) -> str:
    """Where it was measured, once for each distinct machine."""
    found = []
    for run in runs:
        m, versions = run["machine"] or {}, run["versions"] or {}
        found.append(
            f"{m.get('processor', 'unknown processor')}, {m.get('cores', '?')} cores, "
            f"elastiquant {versions.get('elastiquant', '?')}, "
            f"torch {versions.get('torch', '?')}"
        )
    return "Measured on: " + "; ".join(dict.fromkeys(found)) + "."


def draw(group: Group, folder: Path) -> list[Path]:
    """Curves of the first accuracy run of each row: by bytes, and by time over the link."""
    import elastiquant_plot as look
    from elastiquant_report import plots

    rows = [row for row in group.rows if row.accuracy_runs]
    if not rows:
        return []
    runs = [row.accuracy_runs[0] for row in rows]
    label_runs(runs)
    with look.style():
        written = plots.bytes_curves(runs, folder / f"{group.slug}-bytes")
        if all(row.timing_runs for row in rows):
            written += _time_over_link(group, rows, runs, folder, plots)
    return written


def _time_over_link(group: Group, rows: list[Row], runs: list[Run], folder: Path, plots):
    steps = [row.seconds_per_step("total") for row in rows]
    unit, name = plots.time_unit(
        max(s * len(r.steps) for s, r in zip(steps, runs, strict=True))
    )
    xs = [
        [s * (i + 1) / unit for i in range(len(run.steps))]
        for s, run in zip(steps, runs, strict=True)
    ]
    fastest = min(rows, key=lambda row: row.seconds_per_step("total"))
    factor = group.base.seconds_per_step("total") / fastest.seconds_per_step("total")
    names = [row.accuracy_runs[0].label for row in (fastest, group.base)]
    title = f"{names[0]} trains {factor:.1f}× faster than {names[1]} over {rate_of(group.link)}"
    quantity = "Steps × measured time of a step"
    return plots.curves(runs, folder / f"{group.slug}-time", title, quantity, xs, name)


def render(runs: list[Run], out: Path, plot: Callable[[Group, Path], list[Path]] | None) -> str:
    parts = [machine(runs)]
    for group in group_runs(runs):
        over = f" Seconds are per epoch, over a link of {group.link}." if group.link else ""
        parts.append(f"### {group.model} on {group.data}, {group.workers} workers")
        parts.append(f"KB are those that one worker sends.{over}\n\n{group_table(group)}")
        folder = out.with_suffix("")
        for png in [p for p in (plot(group, folder) if plot else []) if p.suffix == ".png"]:
            parts.append(f"![{png.stem}]({png.relative_to(out.parent)})")
        parts.append(commands(group))
        broken = [r for row in group.rows for r in row.accuracy_runs + row.timing_runs]
        if bad := [str(r.folder) for r in broken if not r["replicas_identical"]]:
            parts.append(f"**Replicas were not identical in {', '.join(bad)}.**")
    return "\n\n".join(parts)


def render_families(runs: list[Run], out: Path, plots: bool) -> str:
    """Many codecs at one budget; links do not matter here."""
    parts = [machine(runs)]
    for group in group_runs(runs):
        for row in group.rows:
            told = [run for run in row.accuracy_runs if run["test_accuracy"] is not None]
            row.accuracy_runs = told
        group.rows = [row for row in group.rows if row.accuracy_runs]
        if not group.rows:
            raise RunError(
                f"no run of {group.model} on {group.workers} workers tells an accuracy without "
                "a link"
            )
        parts.append(families.families_table(group))
        drawn = families.draw_families(group, out.with_suffix("")) if plots else []
        for png in [path for path in drawn if path.suffix == ".png"]:
            parts.append(f"![{png.stem}]({png.relative_to(out.parent)})")
        parts.append(commands(group))
    return "\n\n".join(parts)


def insert(
    document: str | None, text: str, begin_mark: str = BEGIN, end_mark: str = END
) -> str:
    """Puts `text` between the two marks of `document`, or makes a new document."""
    block = f"{begin_mark}\n\n{text}\n\n{end_mark}"
    if document is None:
        return f"# Results\n\n{block}\n"
    before, begin, rest = document.partition(begin_mark)
    _, end, after = rest.partition(end_mark)
    if not (begin and end):
        raise RunError(
            "the document has no place for the results: add the lines\n"
            f"{begin_mark}\n{end_mark}"
        )
    return before + block + after


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="scripts/results.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="example: scripts/results.py runs/cifar/* --out docs/results.md",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--out", type=Path, required=True, help="document to fill in")
    parser.add_argument("--no-plots", action="store_true")
    parser.add_argument(
        "--families",
        action="store_true",
        help="one table and dot plot of many codecs at one budget, at marks of their own",
    )
    options = parser.parse_args(arguments)
    try:
        runs = load_runs(options.runs)
        document = options.out.read_text() if options.out.exists() else None
        marks = (FAMILIES_BEGIN, FAMILIES_END) if options.families else (BEGIN, END)
        insert(document, "", *marks)  # no place for it is found before anything is drawn
        options.out.with_suffix("").mkdir(parents=True, exist_ok=True)
        if options.families:
            text = render_families(runs, options.out, not options.no_plots)
        else:
            text = render(runs, options.out, None if options.no_plots else draw)
        options.out.write_text(insert(document, text, *marks))
    except (RunError, OSError) as error:
        print(f"results: {error}", file=sys.stderr)
        return 2
    print(options.out)
    return 0
