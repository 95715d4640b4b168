"""The comparison as rows, and rows as aligned text, Markdown and CSV."""

from __future__ import annotations

import csv
import io
import math

from elastiquant_report.runs import PHASES, Run, baseline_index, shown


def rows(runs: list[Run]) -> list[dict]:
    """A row a run: plain numbers in base units, as report.json and report.csv have them."""
    base = runs[baseline_index(runs)]
    return [_row(run, base) for run in runs]


def _row(run: Run, base: Run) -> dict:
    row = {
        "run": shown(run.folder),
        "label": run.label,
        "codec": run.codec,
        "model": run["model"],
        "data": run["data"],
        "workers": run["world_size"],
        "link": run["link"],
        "steps": run["steps"],
        "skipped_steps": run["skipped_steps"],
        "test_accuracy": _or_none(run.number("test_accuracy")),
        "train_loss": _or_none(run.number("train_loss")),
        "bits_per_coordinate": run["bits_per_coordinate"],
        "bytes_up": run["bytes_up"],
        "bytes_down": run["bytes_down"],
        "bytes_up_per_step": run.bytes_per_step,
        "nmse": run["nmse"],
    }
    for phase in PHASES:
        row[f"{phase}_seconds_per_step"] = run.per_step(phase)
    for phase in PHASES:
        per_epoch = run.steps_per_epoch and run.per_step(phase) * run.steps_per_epoch
        row[f"{phase}_seconds_per_epoch"] = per_epoch
    row["speed_up"] = _ratio(base.per_step("total"), run.per_step("total"))
    row["fewer_bytes"] = _ratio(base.bytes_per_step, run.bytes_per_step)
    row["replicas_identical"] = run["replicas_identical"]
    row["command"] = run["command"]
    return row


def _or_none(value: float) -> float | None:
    return None if math.isnan(value) else value


def _ratio(numerator: float, denominator: float) -> float | None:
    return numerator / denominator if denominator > 0 else None


def per_epoch_is_known(table: list[dict]) -> bool:
    return all(row["total_seconds_per_epoch"] for row in table)


def display(table: list[dict], per: str) -> tuple[list[str], list[list[str]]]:
    """Column heads and cells for people. per: "step" or "epoch"."""
    many_workers = len({row["workers"] for row in table}) > 1
    head = ["codec"] + (["workers"] if many_workers else [])
    head += ["accuracy %", "loss", "bits/coord", "MB up"]
    head += [f"{phase} s" for phase in PHASES] + ["speed-up", "fewer bytes"]
    cells = []
    for row in table:
        line = [row["label"]] + ([str(row["workers"])] if many_workers else [])
        line += [
            number(row["test_accuracy"], ".2f"),
            number(row["train_loss"], ".3f"),
            number(row["bits_per_coordinate"], ".2f"),
            number(row["bytes_up"] / 1e6, ".1f"),
        ]
        line += [seconds(row[f"{phase}_seconds_per_{per}"]) for phase in PHASES]
        line += [number(row["speed_up"], ".2f", "×"), number(row["fewer_bytes"], ".1f", "×")]
        cells.append(line)
    return head, cells


def number(value: float | None, form: str, unit: str = "") -> str:
    return "–" if value is None or math.isnan(value) else f"{value:{form}}{unit}"


def seconds(value: float | None) -> str:
    """Three digits that matter: 0.0123, 1.23, 123."""
    if value is None:
        return "–"
    return (
        f"{value:.{max(0, min(4, 2 - math.floor(math.log10(value))))}f}" if value > 0 else "0"
    )


def as_text(head: list[str], cells: list[list[str]]) -> str:
    widths = [max(len(line[i]) for line in [head, *cells]) for i in range(len(head))]
    lines = []
    for line in [head, ["─" * w for w in widths], *cells]:
        first, *rest = zip(line, widths, strict=True)
        padded = [first[0].ljust(first[1])] + [text.rjust(width) for text, width in rest]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def as_markdown(head: list[str], cells: list[list[str]]) -> str:
    lines = [head, ["---", *["---:"] * (len(head) - 1)]]
    lines += [[f"`{line[0]}`".replace("|", "\\|"), *line[1:]] for line in cells]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def as_csv(table: list[dict]) -> str:
    text = io.StringIO()
    names = dict.fromkeys(name for row in table for name in row)  # not all runs tell as much
    writer = csv.DictWriter(text, fieldnames=list(names), lineterminator="\n")
    writer.writeheader()
    writer.writerows(table)
    return text.getvalue()
