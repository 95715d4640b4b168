"""Comparisons between schemes of which some have been run with more seeds than others."""

from __future__ import annotations

import statistics
from collections.abc import Iterable


def in_common(rows: list[dict]) -> list[dict]:
    """The rows with the accuracies of those seeds that all of them have; no rows if there is no
    such seed. An accuracy is None where the run of a seed diverged, and then so is the mean."""
    shared = set.intersection(*(set(_seeds(row)) for row in rows)) if rows else set()
    return [_of_seeds(sorted(shared), row) for row in rows] if shared else []


def _seeds(row: dict) -> list[int]:
    return row.get("seeds", list(range(1, len(row["accuracy_by_seed"]) + 1)))


def _of_seeds(seeds: list[int], row: dict) -> dict:
    by_seed = dict(zip(_seeds(row), row["accuracy_by_seed"], strict=True))
    reached = [by_seed[seed] for seed in seeds]
    return row | {"seeds": seeds, "accuracy_by_seed": reached, "accuracy": mean(reached)}


def mean(reached: list[float | None]) -> float | None:
    return None if None in reached else statistics.fmean(reached)


def count(row: dict) -> str:
    """How many seeds a row has, in words."""
    seeds = len(row["accuracy_by_seed"])
    return f"{seeds} seed{'s' * (seeds > 1)}"


def agreed(verdicts: Iterable[bool], seen: str) -> tuple[bool | None, str]:
    """What all seeds say, and what was seen. None if they disagree, which `seen` then tells:
    their mean says little."""
    first, *others = set(verdicts)
    return (None, f"{seen}: the seeds disagree") if others else (first, seen)
