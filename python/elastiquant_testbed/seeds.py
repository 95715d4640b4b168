"""Comparisons between schemes of which some have been run with more seeds than others."""

from __future__ import annotations

import statistics


def in_common(rows: list[dict]) -> list[dict]:
    """The rows with the accuracies of those seeds that all of them have. Schemes are run with
    one seed after the other, so these are the first ones."""
    least = min(len(row["accuracy_by_seed"]) for row in rows)
    return [_of_first(least, row) for row in rows]


def _of_first(seeds: int, row: dict) -> dict:
    reached = row["accuracy_by_seed"][:seeds]
    return row | {"accuracy_by_seed": reached, "accuracy": statistics.fmean(reached)}
