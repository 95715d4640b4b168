"""What lab/frontier.py makes of its runs: a row for each scheme, and a table of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection
from typing import NamedTuple

import namespaces
from atlas_plan import ON_THE_WIRE
from frontier_schemes import STREAMS, Scheme


class Row(NamedTuple):
    """A scheme at its best learning rate."""

    scheme: Scheme
    by_rate: dict[float, float]  # loss of seed 1; infinite where the run failed
    rate: float
    losses: dict[int, float]  # by seed that counts, at the best rate
    seeds: int  # that were asked for; those whose runs failed or are not there do not count
    failed: int  # of these
    accuracy: float | None  # per cent, their mean
    bits: float  # sent for each coordinate and step
    bytes: float  # sent by a worker in the run
    steps: int

    @property
    def loss(self) -> float:
        return statistics.fmean(self.losses.values())


def row(scheme: Scheme, by_rate: dict[float, dict], others: dict[int, dict], seeds: int) -> Row:
    """Of the summaries of seed 1 by learning rate ({"failed": why} where there is none), and
    those of the other seeds at the best rate, of `seeds` in all. Raises ValueError if all runs
    of seed 1 failed."""
    losses = {rate: loss_of(summary) for rate, summary in by_rate.items()}
    rate = best_rate(by_rate)
    runs = {1: by_rate[rate]}
    runs |= {seed: run for seed, run in others.items() if "failed" not in run}
    accuracies = [
        run["test_accuracy"] for run in runs.values() if run.get("test_accuracy") is not None
    ]
    good = [run for run in by_rate.values() if loss_of(run) < math.inf]
    if not good:
        raise ValueError(f"all runs of {scheme.name} failed")
    return Row(
        scheme=scheme,
        by_rate=losses,
        rate=rate,
        losses={seed: loss_of(run) for seed, run in runs.items()},
        seeds=seeds,
        failed=sum("failed" in run for run in others.values()),
        accuracy=statistics.fmean(accuracies) if accuracies else None,
        bits=statistics.fmean(run["bits_per_coordinate"] for run in runs.values()),
        bytes=statistics.fmean(run["bytes_up"] for run in runs.values()),
        steps=good[0]["steps"],
    )


def loss_of(summary: dict) -> float:
    """Infinite if the run failed, or ended with no finite loss."""
    loss = summary.get("test_loss")
    return math.inf if loss is None else loss


def best_rate(by_rate: dict[float, dict]) -> float:
    return min(by_rate, key=lambda rate: loss_of(by_rate[rate]))


def relative(a: Row, base: Row) -> float:
    """How far a loss is above full precision's, in per cent, over the seeds that both have."""
    both = a.losses.keys() & base.losses.keys()  # seed 1 at least, which all rows have
    mean, of = (statistics.fmean(row.losses[seed] for seed in both) for row in (a, base))
    return 100 * (mean / of - 1)


def fewer(a: Row, base: Row) -> float:
    """How many times fewer bytes a scheme sends than full precision at every step."""
    return base.bytes / a.bytes


def frontier(rows: list[Row]) -> list[Row]:
    """Those that no other one equals or beats in loss and in bytes, by growing bytes. Losses
    are compared with that of the first row, full precision, over the seeds that both have. A
    scheme of which a run failed is not among them, however good its other seeds are."""
    best, found = math.inf, []
    above = {r.scheme: relative(r, rows[0]) for r in rows if r is rows[0] or not r.failed}
    those = [r for r in rows if r.scheme in above]
    for candidate in sorted(those, key=lambda r: (r.bytes, above[r.scheme])):
        if above[candidate.scheme] < best:
            best = above[candidate.scheme]
            found.append(candidate)
    return found


def exchange_seconds(a: Row, link: str) -> float:
    """Of one exchange: the bytes at the rate of the link, headers and acknowledgements
    included, and a delay for each of two phases."""
    rate, delay = namespaces.parse_link(link)
    exchanges = a.steps / a.scheme.every * (STREAMS if a.scheme.streams else 1)
    return 8 * ON_THE_WIRE * a.bytes / exchanges / rate + 2 * delay / 1e6


def computed_seconds(a: Row, link: str, computing: float) -> float:
    """Seconds of a step: `computing`, and its part of an exchange.

    What travels while `delay` steps are made is hidden to that extent. Nothing else is: DDP,
    which sends while backward goes on, is faster by at most the time of backward.
    """
    parts = STREAMS if a.scheme.streams else 1
    waited = max(0.0, exchange_seconds(a, link) - a.scheme.delay * computing)
    return computing + parts * waited / a.scheme.every


def table(
    rows: list[Row],
    rates: list[float],
    links: list[str],
    seconds: dict[str, list[float | None]],
    accuracy: bool,
) -> str:
    """Markdown. The first row is full precision's; seconds are by scheme's name, for each of
    the links. With `accuracy` there is a column of it."""
    base = rows[0]
    heads = ["scheme", "bits a value and step", "MB sent", "times fewer"]
    heads += [f"lr {rate:g}" for rate in rates]
    heads += ["best loss", "against fp32", *(["accuracy"] if accuracy else [])]
    heads += [f"s at {link}" for link in links]
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    beaten_by_none = frontier(rows)
    for r in rows:
        name = f"**{r.scheme.name}**" if r in beaten_by_none else r.scheme.name
        cells = [name, f"{r.bits:.2g}" if r.bits < 1 else f"{r.bits:.2f}"]
        cells += [f"{r.bytes / 1e6:.3g}" if r.bytes < 1e9 else f"{r.bytes / 1e6:.0f}"]
        cells += [f"{fewer(r, base):,.0f}" if r is not base else "1"]
        cells += [loss_cell(r.by_rate.get(rate)) for rate in rates]
        cells += [mean_cell(r.losses.values(), r.seeds), relative_cell(relative(r, base))]
        cells += ["" if r.accuracy is None else f"{r.accuracy:.2f} %"] if accuracy else []
        times = seconds.get(r.scheme.name, [None] * len(links))
        cells += ["" if time is None else f"{time:.3g}" for time in times]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def loss_cell(loss: float | None) -> str:
    if loss is None:
        return ""
    return f"{loss:.4f}" if loss < math.inf else "failed"


def mean_cell(losses: Collection[float], seeds: int | None = None) -> str:
    """The mean over the seeds that count, by how much these differ, and how many of how many
    they are; "failed" if one of the losses is not finite. With None all seeds count."""
    seeds = seeds or len(losses)
    mean = statistics.fmean(losses)
    if seeds == 1 or mean == math.inf:
        return loss_cell(mean)
    spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
    counted = "" if len(losses) == seeds else f"{len(losses)} of "
    return f"{loss_cell(mean)}{spread} ({counted}{seeds} seeds)"


def relative_cell(per_cent: float) -> str:
    """Empty, if a loss is infinite."""
    return f"{per_cent:+.2f} %" if math.isfinite(per_cent) else ""


def reached(rows: list[Row], per_cent: float) -> Row:
    """That with the fewest bytes among those whose loss is at most so far above full
    precision's; full precision, which is the first row, if there is no other."""
    near = [r for r in rows if relative(r, rows[0]) <= per_cent]
    return min(near, key=lambda r: r.bytes)
