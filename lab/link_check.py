"""Measures the links that lab/netns.py makes: what was asked for, and what is seen."""

from __future__ import annotations

import json
import pathlib
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import namespaces

PROBE = pathlib.Path(__file__).resolve().parent / "link_probe.py"
PAYLOAD = 1448  # bytes that TCP sends in a frame
SECONDS = 5.0  # of a stream
ECHOES = 300
# How much a stream may gain on a link by what its queue holds, and what a round trip may take
# beside what was asked for, in milliseconds: other processes need the machine, too.
RATE_SLACK, ROUND_TRIP_SLACK = 0.1, 2


class Check(NamedTuple):
    what: str
    asked: float | None  # None: it has no one value
    seen: float
    unit: str
    holds: bool


def start(network: namespaces.Network, rank: int, *words: object) -> subprocess.Popen:
    enter = ["ip", "netns", "exec", network.namespace(rank)]
    command = [*enter, sys.executable, str(PROBE), *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=namespaces.die_with_parent
    )


def answer(probe: subprocess.Popen) -> dict:
    said, _ = probe.communicate()
    if probe.returncode != 0:
        raise namespaces.LabError("a probe has failed")
    return json.loads(said)


def streams(network: namespaces.Network, pairs: list[tuple[int, int]]) -> list[float]:
    """Bits a second of frames, from the first to the second of each pair, all at once."""
    begin = time.time() + 0.5
    probes = [start(network, a, "stream", network.address(b), SECONDS, begin) for a, b in pairs]
    carried = [answer(probe)["bits_per_second"] for probe in probes]
    return [bits * namespaces.FRAME / PAYLOAD for bits in carried]


def check_rates(network: namespaces.Network) -> list[Check]:
    ring = [(rank, (rank + 1) % network.nodes) for rank in range(network.nodes)]
    if network.air or network.trace:
        asked = air_rate(network) if network.air and not network.trace else None
        # The acknowledgements of TCP need the air, too, and those who use it collide.
        alone, together = streams(network, ring[:1]), streams(network, ring)
        return [
            rate(network, "one stream", asked, sum(alone), slack=0.25),
            rate(
                network, f"{network.nodes} streams together", asked, sum(together), slack=0.35
            ),
        ]
    if network.bits_per_second is None:
        return []
    return [
        rate(network, f"worker {a} to {b}, beside the others", rate_of(network, a, b), seen)
        for (a, b), seen in zip(ring, streams(network, ring), strict=True)
    ]


def rate_of(network: namespaces.Network, *ranks: int) -> float:
    """The least of the links' rates."""
    rates = network.bits_per_second
    return min(rates[rank] if isinstance(rates, list) else rates for rank in ranks)


def air_rate(network: namespaces.Network) -> float:
    """What is left of the air's rate for the bytes of frames that are full."""
    air = network.air
    overhead = air.bits_per_second * air.overhead / 1e6 / (8 * namespaces.FRAME)
    return air.bits_per_second / (1 + overhead) / air.crossings


def rate(
    network: namespaces.Network, what: str, asked: float | None, seen: float, slack: float = 0.1
) -> Check:
    if network.loss or asked is None:  # TCP makes less of a link that loses frames
        return Check(what, None, seen / 1e6, "Mbit/s", True)
    holds = (1 - slack) * asked <= seen <= (1 + RATE_SLACK) * asked
    return Check(what, asked / 1e6, seen / 1e6, "Mbit/s", holds)


def check_times(network: namespaces.Network) -> list[Check]:
    seen = answer(start(network, 0, "echo", network.address(1), ECHOES))
    if not seen["round_trips"]:
        raise namespaces.LabError("no datagram came back")
    trips = [1e3 * seconds for seconds in seen["round_trips"]]
    least, jitter = 2 * network.delay / 1e3, 2 * network.jitter / 1e3
    slack = ROUND_TRIP_SLACK
    if network.air:
        slack += 2 * network.air.overhead * network.air.crossings / 1e3
    middle = statistics.median(trips)
    # Jitters of the two ways add up to a triangle; four standard deviations of its median.
    spread = 4 * jitter / 2 / ECHOES**0.5 + slack
    lost = 1 - (1 - network.loss) ** 2
    four_deviations = 400 * (lost * (1 - lost) / ECHOES) ** 0.5
    return [
        Check(
            "shortest round trip",
            least,
            trips[0],
            "ms",
            0 <= trips[0] - least <= slack + jitter,
        ),
        Check(
            "median round trip",
            least + jitter / 2,
            middle,
            "ms",
            abs(middle - least - jitter / 2) <= spread,
        ),
        Check(
            "datagrams lost",
            100 * lost,
            100 * seen["lost"],
            "%",
            abs(100 * (seen["lost"] - lost)) <= four_deviations,
        ),
    ]


def check(network: namespaces.Network) -> list[Check]:
    """Of a network that is up and idle, with two nodes or more."""
    if network.nodes < 2:
        raise namespaces.LabError("there is no link to check: give --nodes 2 or more")
    servers = [start(network, r, "serve", network.address(r)) for r in range(network.nodes)]
    try:
        for server in servers:
            if server.stdout.readline() != "ready\n":
                raise namespaces.LabError("a probe's server did not start")
        return check_times(network) + check_rates(network)
    finally:
        for server in servers:
            server.kill()
            server.communicate()


def table(checks: list[Check]) -> str:
    lines = [f"{'':38} {'asked':>10} {'seen':>10}"]
    for c in checks:
        asked = "" if c.asked is None else f"{c.asked:.2f}"
        verdict = "" if c.holds else "  NOT AS ASKED"
        lines.append(f"{c.what:38} {asked:>10} {c.seen:>10.2f} {c.unit}{verdict}")
    return "\n".join(lines)
