"""The cells of lab/atlas.py: what is run for each of them, and what is made of it."""

from __future__ import annotations

import re
import statistics
from typing import NamedTuple

import namespaces

# Headers of frames, and acknowledgements, for each byte of a message: 1514 + 24 for 1448.
ON_THE_WIRE = 1.07
# Starting four processes that load libtorch, and ending them.
START_SECONDS = 8.0
# How often a cell is measured if it is quick: steps in all, and rounds at least.
STEPS, ROUNDS = 40, 2


# Links may become slow after the first step only if it takes as long as this.
LONG_STEP = 0.1
# And it pays if weights would take as long as this to get to all workers.
LONG_START = 3.0


class Cell(NamedTuple):
    """One square of the atlas."""

    codec: str  # as --codec takes it
    every: int  # H: steps from one exchange to the next
    link: str  # the rate of each worker's link, such as 20mbit

    @property
    def name(self) -> str:
        """What its files are called: the codec's letters and digits, H and the rate."""
        codec = "".join(c if c.isalnum() else "-" for c in self.codec)
        return f"{codec}_every{self.every}_{self.link}"


class Plan(NamedTuple):
    """How often a cell's workers meet."""

    unmeasured: int  # rounds at the start, in which memory and TCP's windows grow
    measured: int  # rounds
    seconds: float  # that the cell takes, estimated

    @property
    def rounds(self) -> int:
        return self.unmeasured + self.measured


def label(codec: str) -> str:
    """A codec's name in a table: "4 bits" of elastic:bits=4, its spec if it has no bits."""
    bits = re.search(r":bits=([\d.]+)$", codec)
    if bits is None:
        return codec
    return f"{bits[1]} bit" if float(bits[1]) <= 1 else f"{bits[1]} bits"


def rate_name(link: str) -> str:
    """ "20 Mbit/s" of "20mbit"."""
    number, prefix = re.fullmatch(r"([\d.]+)([kmg])bit", link).groups()
    return f"{number} {prefix.upper() if prefix != 'k' else prefix}bit/s"


def exchange_seconds(cell: Cell, coordinates: int, workers: int, delay: float) -> float:
    """Estimated seconds of an exchange in two phases that nothing hides, each of which takes
    the delay too (in seconds)."""
    bits = re.search(r"bits=([\d.]+)", cell.codec)
    sent = 2 * (workers - 1) / workers * coordinates * (float(bits[1]) if bits else 32)
    return sent * ON_THE_WIRE / namespaces.parse_rate(cell.link) + 2 * delay


def spreading_seconds(cell: Cell, coordinates: int, workers: int) -> float:
    """Estimated seconds in which worker 0 sends weights and momentum to each of the others."""
    sent = 2 * 32 * coordinates * (workers - 1)
    return sent * ON_THE_WIRE / namespaces.parse_rate(cell.link)


def starts_fast(cell: Cell, coordinates: int, workers: int, computing: float) -> bool:
    """Whether links had better be slow from the second step on only (late_link.py)."""
    spreading = spreading_seconds(cell, coordinates, workers)
    return computing >= LONG_STEP and spreading >= LONG_START


def plan(
    every: int, computing: float, exchange: float, budget: float, start: float | None = None
) -> Plan:
    """As many rounds as fit into `budget` seconds, and no more than a quick cell needs.

    computing: seconds of a step; exchange: of what follows each `every` steps. A round is whole
    even if it alone takes longer than the budget; then the first one counts, which otherwise
    does not. start: seconds before the first step over the link; None: links are slow from the
    second step on only. If that is all of the first round, it does not count.
    """
    a_round = every * computing + exchange
    enough = max(ROUNDS, STEPS // every)
    fitting = max(1, min(enough + 1, int(budget / a_round)))
    unmeasured = 1 if fitting > 1 else 0
    measured = fitting - unmeasured
    unmeasured += 1 if start is None and every == 1 else 0
    seconds = START_SECONDS + (start or 0) + fitting * a_round
    return Plan(unmeasured, measured, seconds)


def computing_seconds(steps: list[dict]) -> float:
    """Seconds that computing a step takes, of the steps of a run (lines of metrics.jsonl) that
    has an exchange only after the last one.

    It is their mean, because workers that share cores take turns: a step may have a core for
    itself, and the next one wait for it. The first three do not count: libtorch gets memory.
    """
    return statistics.fmean(step["seconds"]["compute"] for step in steps[3:-1])


def steps_of_reference(first: list[dict], budget: float) -> int:
    """How many steps the run for computing_seconds() takes to fill `budget` seconds, going by
    the lines of a first, short run."""
    return max(12, int(budget / computing_seconds(first)))


def result(cell: Cell, todo: Plan, steps: list[dict], computing: float) -> dict:
    """A cell's line of atlas.json, of the lines of its metrics.jsonl. Raises ValueError if the
    run's length is not what was planned.

    Its utilisation is the part of the wall time that computing alone would have taken. Seconds
    are means over the measured steps.
    """
    if len(steps) != todo.rounds * cell.every:
        raise ValueError(f"{len(steps)} steps instead of {todo.rounds * cell.every}")
    measured = steps[todo.unmeasured * cell.every :]
    seconds = {
        part: statistics.fmean(step["seconds"][part] for step in measured)
        for part in ("total", "compute")
    }
    return {
        "codec": cell.codec,
        "every": cell.every,
        "link": cell.link,
        "utilisation": computing / seconds["total"],
        "seconds_per_step": seconds["total"],
        "compute_seconds_per_step": seconds["compute"],
        "bytes_per_round": sum(s["bytes_up"] for s in measured) / todo.measured,
        "rounds": todo.measured,
        "unmeasured_rounds": todo.unmeasured,
    }
