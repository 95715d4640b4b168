"""Measures the links that lab/netns.py makes: what was asked for, and what is seen."""

from __future__ import annotations

import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
from typing import NamedTuple

import namespaces
import varying

PROBE = pathlib.Path(__file__).resolve().parent / "link_probe.py"
PAYLOAD = 1448  # bytes that TCP sends in a frame
SECONDS = 5.0  # of a stream
# Of one over a rate that changes: as long as its trace, so that a rate that stays is found out,
# but no longer than this.
MOST_SECONDS = 30.0
ECHOES, ECHO_GAP = 300, 0.01  # datagrams, and seconds from one to the next
# Where frames are lost, as many more as tell the loss from none by four deviations, faster.
MOST_ECHOES, LEAST_GAP = 5000, 0.003
# TCP makes less of a link that loses frames or changes: datagrams are sent there, at this many
# times the rate, which Python can do up to so many bits a second over all links.
FLOOD, MOST_FLOOD = 1.2, 300e6
# How much a stream may gain on a link by what its queue holds, and what a round trip may take
# beside what was asked for, in milliseconds: other processes need the machine, too.
RATE_SLACK, ROUND_TRIP_SLACK = 0.1, 2


class Check(NamedTuple):
    what: str
    asked: float | None  # None: it has no one value
    seen: float
    unit: str
    holds: bool


class Carried(NamedTuple):
    """What came of a stream, and when."""

    bits_per_second: float  # of frames
    begin: float  # as time.time() has it
    end: float


def start(network: namespaces.Network, rank: int, *words: object) -> subprocess.Popen:
    enter = ["ip", "netns", "exec", network.namespace(rank)]
    command = [*enter, sys.executable, str(PROBE), *map(str, words)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, preexec_fn=namespaces.be_child
    )


def answer(probe: subprocess.Popen) -> dict:
    said, _ = probe.communicate()
    if probe.returncode != 0:
        raise namespaces.LabError("a probe has failed")
    return json.loads(said)


def streams(network: namespaces.Network, pairs: list[tuple[int, int]]) -> list[Carried]:
    """By TCP, from the first to the second of each pair, all at once."""
    begin, seconds = time.time() + 0.5, seconds_of(network)
    probes = [start(network, a, "stream", network.address(b), seconds, begin) for a, b in pairs]
    carried = [answer(probe)["bits_per_second"] for probe in probes]
    return [
        Carried(bits * namespaces.FRAME / PAYLOAD, begin, begin + seconds) for bits in carried
    ]


def floods(network: namespaces.Network, pairs: list[tuple[int, int]]) -> list[Carried]:
    """The same by datagrams, of which more are sent than the links carry."""
    begin, seconds = time.time() + 0.5, seconds_of(network)
    rates = offered(network, pairs)
    probes = [
        start(network, a, "flood", network.address(b), bits, seconds, begin)
        for (a, b), bits in zip(pairs, rates, strict=True)
    ]
    told = [answer(probe) for probe in probes]
    if any(of["last"] <= of["first"] for of in told):
        raise namespaces.LabError("no datagrams came")
    return [Carried(of["bits_per_second"], of["first"], of["last"]) for of in told]


def offered(network: namespaces.Network, pairs: list[tuple[int, int]]) -> list[float]:
    """Bits a second of each flood: the air's are sent by all together."""
    if network.air:
        each = air_rate(network, network.air.bits_per_second) / len(pairs)
        return [FLOOD * each] * len(pairs)
    return [FLOOD * rate_of(network, *pair) for pair in pairs]


def seconds_of(network: namespaces.Network) -> float:
    """Of a stream."""
    if not network.trace:
        return SECONDS
    return min(max(SECONDS, varying.period(trace_of(network))), MOST_SECONDS)


def trace_of(network: namespaces.Network) -> varying.Trace:
    return varying.parse(str(network.trace))


def is_steady(network: namespaces.Network) -> bool:
    return not (network.loss or network.trace)


def is_limited(network: namespaces.Network) -> bool:
    return bool(network.air or network.bits_per_second is not None)


def why_not_judged(network: namespaces.Network) -> str:
    """Why what streams carry is only shown; empty if it is compared with what was asked for."""
    if is_steady(network) or sum(offered(network, ring_of(network))) <= MOST_FLOOD:
        return ""
    return (
        "where frames are lost or the rate changes, that takes datagrams, of which at most "
        f"{MOST_FLOOD / 1e6:.0f} Mbit/s can be sent over all links"
    )


def ring_of(network: namespaces.Network) -> list[tuple[int, int]]:
    return [(rank, (rank + 1) % network.nodes) for rank in range(network.nodes)]


def check_rates(network: namespaces.Network) -> list[Check]:
    if not is_limited(network):
        return []
    ring = ring_of(network)
    send = streams if is_steady(network) or why_not_judged(network) else floods
    if not network.air:
        return [
            rate(network, f"worker {a} to {b}, beside the others", [carried], (a, b))
            for (a, b), carried in zip(ring, send(network, ring), strict=True)
        ]
    # The acknowledgements of TCP need the air, too, and those who use it collide.
    found = [rate(network, "one stream", send(network, ring[:1]), slack=0.25)]
    if send is streams or not floods_drown(network):
        together = f"{network.nodes} streams together"
        found.append(rate(network, together, send(network, ring), slack=0.35))
    return found


def floods_drown(network: namespaces.Network) -> bool:
    """Of several floods together most is lost at an access point, which gets as much of the air
    as each of the others."""
    return bool(network.air) and network.air.crossings > 1


def rate(
    network: namespaces.Network,
    what: str,
    carried: list[Carried],
    ranks: tuple[int, ...] = (),
    slack: float = 0.1,
) -> Check:
    """Of streams together."""
    seen = sum(one.bits_per_second for one in carried)
    if why_not_judged(network):
        return Check(what, None, seen / 1e6, "Mbit/s", True)
    asked = asked_for(network, carried[0], ranks)
    holds = (1 - slack) * asked <= seen <= (1 + RATE_SLACK) * asked
    return Check(what, asked / 1e6, seen / 1e6, "Mbit/s", holds)


def asked_for(network: namespaces.Network, carried: Carried, ranks: tuple[int, ...]) -> float:
    """Bits a second that should have come in this time."""

    def left(bits_per_second: float) -> float:
        return air_rate(network, bits_per_second) if network.air else bits_per_second

    if network.trace:
        trace = [(seconds, left(bits)) for seconds, bits in trace_of(network)]
        since = network.switched_at + network.delay / 1e6
        rate = varying.mean(trace, carried.begin - since, carried.end - since)
    elif network.air:
        rate = left(network.air.bits_per_second)
    else:
        rate = rate_of(network, *ranks)
    return rate * (1 - network.loss)


def rate_of(network: namespaces.Network, *ranks: int) -> float:
    """The least of the links' rates."""
    rates = network.bits_per_second
    return min(rates[rank] if isinstance(rates, list) else rates for rank in ranks)


def air_rate(network: namespaces.Network, bits_per_second: float) -> float:
    """What is left of the air's rate for the bytes of frames that are full."""
    air = network.air
    overhead = bits_per_second * air.overhead / 1e6 / (8 * namespaces.FRAME)
    return bits_per_second / (1 + overhead) / air.crossings


def check_times(network: namespaces.Network) -> list[Check]:
    seen = answer(start(network, 0, "echo", network.address(1), ECHOES, ECHO_GAP))
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
        check_loss(network, seen["lost"]),
    ]


def lost_of(network: namespaces.Network) -> float:
    """The part of all echoes that should not come back."""
    return 1 - (1 - network.loss) ** 2


def echoes_of(network: namespaces.Network) -> int:
    """So many that a link which loses nothing is told from one that loses what it should: four
    deviations are then half of that, or less."""
    lost = lost_of(network)
    return math.ceil(64 * (1 - lost) / lost)


def check_loss(network: namespaces.Network, lost: float) -> Check:
    """`lost` is what the echoes lost by which round trips were measured."""
    asked, count = lost_of(network), ECHOES
    if network.loss and echoes_of(network) > ECHOES:
        count = min(echoes_of(network), MOST_ECHOES)
        words = (network.address(1), count, gap_of(network))
        lost = answer(start(network, 0, "echo", *words))["lost"]
    if has_outage(network):
        return Check("datagrams lost", None, 100 * lost, "%", True)
    four_deviations = 4 * (asked * (1 - asked) / count) ** 0.5
    holds = abs(lost - asked) <= four_deviations
    return Check("datagrams lost", 100 * asked, 100 * lost, "%", holds)


def gap_of(network: namespaces.Network) -> float:
    """Seconds from one echo to the next, so that they need little of the air."""
    air = network.air
    return max(LEAST_GAP, 4e-6 * air.overhead * air.crossings) if air else LEAST_GAP


def has_outage(network: namespaces.Network) -> bool:
    return bool(network.trace) and any(bits == 0 for _, bits in trace_of(network))


def unchecked(network: namespaces.Network) -> list[str]:
    """What of the network check() does not compare with what was asked for, and why."""
    found = []
    if not is_limited(network):
        found.append("the rate: there is no limit")
    elif why := why_not_judged(network):
        found.append(f"the rate: {why}")
    elif network.trace and (period := varying.period(trace_of(network))) > MOST_SECONDS:
        found.append(f"the rates of {period:g} seconds but for {seconds_of(network):g} of them")
    elif floods_drown(network) and not is_steady(network):
        found.append("how the air is shared: an access point loses most of several floods")
    if has_outage(network):
        found.append("the loss: in an outage datagrams are lost, too")
    elif network.loss and echoes_of(network) > MOST_ECHOES:
        found.append(
            f"that any frame is lost: of {MOST_ECHOES} datagrams so few are, that it could be "
            "by chance if none were"
        )
    return found


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
