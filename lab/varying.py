"""Rates of links that change over time: in steps, by a random walk, or as a file says.

20mbit@10s,5mbit@5s             20 Mbit/s for ten seconds, 5 for five, and so on anew
walk:low=5mbit,high=20mbit,every=1s,seed=1
                                each second another rate, up or down by up to a quarter
trace.txt                       lines of "SECONDS BITS_PER_SECOND"
"""

from __future__ import annotations

import argparse
import math
import pathlib
import random

import namespaces

from elastiquant_testbed import units

Trace = list[tuple[float, float]]  # seconds, bits a second

WALK_SECONDS = 600  # after which a random walk begins anew
SHORTEST_STEP = 1e-3  # seconds of a random walk's rate: more of them would take too much memory
MOST_CHANGE = 0.25  # of a random walk, from one rate to the next
LEAST_SECONDS, MOST_SECONDS = 1e-6, 1e6  # of one rate, as lab_switch has it


def parse(text: str, folder: pathlib.Path = pathlib.Path()) -> Trace:
    """A file's name is read as from the folder. Raises LabError if it is none of the three."""
    try:
        return _usable(_parsed(text, folder))
    except (ValueError, KeyError, argparse.ArgumentTypeError, OSError) as error:
        raise namespaces.LabError(
            f"{text!r} is no rate that changes ({error}): give 20mbit@10s,5mbit@5s, or "
            "walk:low=5mbit,high=20mbit,every=1s,seed=1, or a file"
        ) from error


def _parsed(text: str, folder: pathlib.Path) -> Trace:
    if text.startswith("walk:"):
        return _walk(text.removeprefix("walk:"))
    if "@" in text:
        return [_step(part) for part in text.split(",")]
    return _file(folder / text)


def _usable(trace: Trace) -> Trace:
    """lab_switch refuses any other, at which a network would only fail to start."""
    for seconds, rate in trace:
        if not (LEAST_SECONDS <= seconds <= MOST_SECONDS and 0 <= rate < math.inf):
            raise ValueError(f"{rate:g} bits a second for {seconds:g} s cannot be")
    if not any(round(rate) > 0 for _, rate in trace):
        raise ValueError("no rate is above 0")
    return trace


def _step(part: str) -> tuple[float, float]:
    rate, _, seconds = part.partition("@")
    return _seconds(seconds), namespaces.parse_rate(rate)


def _seconds(text: str) -> float:
    if (seconds := units.seconds(text)) is None:
        raise ValueError(f"{text!r} is not a time such as 10s or 500ms")
    return seconds


def _walk(text: str) -> Trace:
    given = dict(pair.split("=") for pair in text.split(","))
    low, high = (
        namespaces.parse_rate(given.pop("low")),
        namespaces.parse_rate(given.pop("high")),
    )
    every = _seconds(given.pop("every", "1s"))
    draw = random.Random(int(given.pop("seed", "1")))
    if given:
        raise ValueError(f"{next(iter(given))} is not known")
    if low > high:
        raise ValueError("low must not be above high")
    if every < SHORTEST_STEP:
        raise ValueError("every must be 1ms or more")
    rate, trace = math.sqrt(low * high), []
    for _ in range(max(1, round(WALK_SECONDS / every))):
        rate = min(high, max(low, rate * math.exp(draw.uniform(-MOST_CHANGE, MOST_CHANGE))))
        trace.append((every, rate))
    return trace


def _file(path: pathlib.Path) -> Trace:
    trace = []
    for line in path.read_text().splitlines():
        if line.strip():
            seconds, rate = map(float, line.split())
            trace.append((seconds, rate))
    return trace


def write(trace: Trace, path: pathlib.Path) -> None:
    """As lab_switch reads it."""
    path.write_text("".join(f"{seconds:.6f} {rate:.0f}\n" for seconds, rate in trace))


def period(trace: Trace) -> float:
    """Seconds after which it begins anew."""
    return sum(seconds for seconds, _ in trace)


def mean(trace: Trace, begin: float, end: float) -> float:
    """Bits a second from one time to another, in seconds since the trace began. After its last
    rate it begins anew."""
    return (_bits(trace, end) - _bits(trace, begin)) / (end - begin)


def _bits(trace: Trace, until: float) -> float:
    """Carried since the trace began."""
    times, left = divmod(until, period(trace))
    found = times * sum(seconds * rate for seconds, rate in trace)
    for seconds, rate in trace:
        found += min(seconds, left) * rate
        left = max(0.0, left - seconds)
    return found
