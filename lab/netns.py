#!/usr/bin/env python3
"""Runs one worker per network namespace, each behind a link that tc holds to a rate.

    sudo lab/netns.py --nodes 4 --rate 20mbit --delay 10ms -- \\
        build/release/bin/elastiquant train --model resnet20 --steps 50 --out runs/netns

Every worker gets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as under torchrun, and an
Ethernet card of its own, `eth0`, joined to the others by a switch. The switch lives in a
namespace too, so nothing on the host's own network changes and no traffic leaves. Each link is
full duplex: what a worker sends and what it receives are each held to the rate, which is one
for all (--rate) or one for each (--rates). With --delay every frame takes so much longer from
one worker to another, with --jitter up to so much more, and with --loss some are lost, which
TCP sends again.

    sudo lab/netns.py --nodes 7 --air 54mbit --overhead 100us --crossings 2 -- COMMAND

With --air there are no cables: all workers share one half-duplex medium, on which one frame is
sent at a time. --overhead is what a frame takes of it beside its bytes, those who want to send
at once may collide as under 802.11, and with --crossings 2 frames go by way of an access point,
which sends them again. --vary makes the rate of the air, or of all links, change over time
(lab/varying.py). --check measures what was asked for, in place of a command.

Rank 0's output is shown; another worker's only if it fails. The namespaces go away at the end,
on Ctrl-C and on failure; `lab/netns.py --clean-up` removes those of a run that was killed.
"""

import argparse
import contextlib
import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Iterator

import link_check
import namespaces
import varying


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=4, help="workers, one a namespace (4)")
    rate = parser.add_mutually_exclusive_group()
    rate.add_argument(
        "--rate", type=namespaces.parse_rate, help="each link's rate, as 20mbit (no limit)"
    )
    rate.add_argument(
        "--rates",
        type=lambda text: [namespaces.parse_rate(part) for part in text.split(",")],
        help="a rate for each worker's link, as 20mbit,20mbit,5mbit",
    )
    rate.add_argument(
        "--air", type=namespaces.parse_rate, help="rate of a medium that all share"
    )
    parser.add_argument(
        "--overhead",
        type=namespaces.parse_delay,
        default=0,
        help="of the air, for a frame, as 100us",
    )
    parser.add_argument(
        "--crossings", type=int, choices=(1, 2), default=1, help="2: by an access point"
    )
    parser.add_argument("--vary", help="how the rate changes over time, in place of --rate's")
    parser.add_argument(
        "--delay",
        type=namespaces.parse_delay,
        default=0,
        help="between any two workers, as 10ms (none)",
    )
    parser.add_argument(
        "--jitter", type=namespaces.parse_delay, default=0, help="up to so much more"
    )
    parser.add_argument(
        "--loss", type=namespaces.parse_loss, default=0, help="of frames, as 1%% (none)"
    )
    parser.add_argument("--check", action="store_true", help="measure the links")
    parser.add_argument("--clean-up", action="store_true", help="remove what killed runs left")
    parser.add_argument("command", nargs="*", help="what each worker runs, after --")
    arguments = parser.parse_args()
    if not (arguments.clean_up or arguments.check or arguments.command):
        parser.error("no command given: put it after --")
    if arguments.check and arguments.command:
        parser.error("--check measures the links in place of a command: leave out one of them")
    if arguments.vary and (arguments.rate or arguments.rates):
        parser.error(
            "--vary says how the rate of all links changes: leave out --rate and --rates"
        )
    if not arguments.air and (arguments.overhead or arguments.crossings > 1):
        parser.error("--overhead and --crossings are of the --air")
    return arguments


@contextlib.contextmanager
def network_of(arguments: argparse.Namespace) -> Iterator[namespaces.Network]:
    """The network that the command line asks for."""
    a = arguments
    air = namespaces.Air(a.air, a.overhead, a.crossings) if a.air else None
    rate: int | list[int] | None = a.rates or a.rate
    with tempfile.TemporaryDirectory() as folder:
        trace = None
        if a.vary:
            changes = varying.parse(a.vary)
            trace = pathlib.Path(folder) / "trace.txt"
            varying.write(changes, trace)
            fastest = round(max(rate for _, rate in changes))
            if air:
                air = dataclasses.replace(air, bits_per_second=fastest)
            else:
                rate = fastest
        with namespaces.Network(
            a.nodes, rate, a.delay, a.jitter, a.loss, air, trace
        ) as network:
            yield network


def check_links(network: namespaces.Network) -> None:
    checks = link_check.check(network)
    print(link_check.table(checks))
    for what in link_check.unchecked(network):
        print(f"Not checked: {what}.")
    if not all(c.holds for c in checks):
        raise namespaces.LabError("the links are not as they were asked for")


def main() -> None:
    arguments = parse_arguments()
    namespaces.stop_on_signals()
    try:
        if arguments.clean_up:
            namespaces.require_privileges()
            print(f"removed {namespaces.clean_up()} namespaces")
            return
        with network_of(arguments) as network:
            if arguments.check:
                check_links(network)
            else:
                network.run(arguments.command)
    except namespaces.LabError as error:
        sys.exit(f"netns: {error}")
    except KeyboardInterrupt:
        sys.exit("netns: stopped; the namespaces are gone")


if __name__ == "__main__":
    main()
