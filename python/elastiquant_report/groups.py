"""Runs side by side: those of one codec make up a row, and rows that compare a group."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import fmean

from elastiquant_report.runs import Run, RunError, differences, shown


@dataclass
class Row:
    codec: str
    accuracy_runs: list[Run] = field(default_factory=list)
    timing_runs: list[Run] = field(default_factory=list)

    @property
    def any_run(self) -> Run:
        return (self.timing_runs + self.accuracy_runs)[0]

    def mean(self, of: Callable[[Run], float]) -> float:
        """Over the runs over the link, or over the others if there are none."""
        return fmean(of(run) for run in self.timing_runs or self.accuracy_runs)

    def accuracy(self) -> str:
        return _with_spread([run.number("test_accuracy") for run in self.accuracy_runs], ".2f")

    def loss(self) -> str:
        return _with_spread([run.number("train_loss") for run in self.accuracy_runs], ".4f")

    def seconds_per_step(self, phase: str) -> float:
        """Over the link; NaN if that was not measured."""
        return (
            fmean(run.per_step(phase) for run in self.timing_runs)
            if self.timing_runs
            else math.nan
        )

    def steps_per_epoch(self) -> int:
        runs = self.accuracy_runs + self.timing_runs
        return next((run.steps_per_epoch for run in runs if run.steps_per_epoch), 0)


@dataclass
class Group:
    model: str
    data: str
    workers: int
    rows: list[Row]

    @property
    def base(self) -> Row:
        return next((row for row in self.rows if row.codec == "fp32"), self.rows[0])

    @property
    def links(self) -> list[str]:
        links = dict.fromkeys(run["link"] for row in self.rows for run in row.timing_runs)
        return list(links)

    @property
    def link(self) -> str | None:
        """The one link of all timing runs; None if there are none."""
        return next(iter(self.links), None)

    @property
    def slug(self) -> str:
        return re.sub(r"[^a-z0-9]+", "-", f"{self.model} {self.data} {self.workers}".lower())


def _with_spread(values: list[float], form: str) -> str:
    values = [v for v in values if not math.isnan(v)]
    if not values:
        return "–"
    mean = f"{fmean(values):{form}}"
    if len(values) == 1:
        return mean
    return f"{mean} ± {(max(values) - min(values)) / 2:{form}} ({len(values)} runs)"


# In what runs that are averaged may differ, those over a link besides, and what those without a
# link and those over one must have in common.
_HARMLESS = {"seed", "machine", "data", "--threads", "--eval-every", "--measure-every"}
_HARMLESS |= {"--checkpoint-every", "--timeout"}
_OF_TIMING = {"steps"}
_IN_COMMON = {"algorithm", "batch", "partition"}


def _check_alike(row: Row) -> None:
    """Raises RunError if the runs of a row are of different settings, and have no mean."""
    kinds = row.accuracy_runs[:1] + row.timing_runs[:1]
    unlike = _unlike(row.accuracy_runs, lambda name: name not in _HARMLESS)
    unlike += _unlike(row.timing_runs, lambda name: name not in _HARMLESS | _OF_TIMING)
    unlike += _unlike(kinds, lambda name: name in _IN_COMMON)
    if unlike:
        raise RunError(
            f"the runs of {row.codec} differ in {'; '.join(dict.fromkeys(unlike))}, so that "
            "they have no mean: put those of each setting into a document of its own"
        )


def _check_seeds(row: Row) -> None:
    """Raises RunError if two runs are of one seed, and would count as two."""
    seeds = [run["seed"] for run in row.accuracy_runs if run["seed"] is not None]
    if len(set(seeds)) < len(seeds):
        folders = ", ".join(shown(run.folder) for run in row.accuracy_runs)
        raise RunError(
            f"several runs of {row.codec} have the same seed ({folders}): leave out all but one"
        )


def _check_link(group: Group) -> None:
    """Raises RunError if seconds over several links would be compared."""
    if len(group.links) > 1:
        raise RunError(
            f"runs of {group.model} on {group.workers} workers are over several links "
            f"({', '.join(group.links)}): put those of each link into a document of its own"
        )


def _unlike(runs: list[Run], matters: Callable[[str], bool]) -> list[str]:
    return [d for d in differences(runs) if matters(d.partition(" (")[0])]


def group_runs(runs: list[Run]) -> list[Group]:
    """Groups in the order given; rows from the most bits to the fewest, fp32 first."""
    groups: dict[tuple, Group] = {}
    for run in runs:
        data = str(run["data"]).rstrip("/").split("/")[-1]
        key = (run["model"], data, run["world_size"])
        group = groups.setdefault(key, Group(*key, rows=[]))
        row = next((row for row in group.rows if row.codec == run.codec), None)
        if row is None:
            row = Row(run.codec)
            group.rows.append(row)
        (row.timing_runs if run["link"] else row.accuracy_runs).append(run)
    for group in groups.values():
        for row in group.rows:
            _check_alike(row)
            _check_seeds(row)
        _check_link(group)
        group.rows.sort(key=lambda row: -row.any_run["bits_per_coordinate"])
    return list(groups.values())
