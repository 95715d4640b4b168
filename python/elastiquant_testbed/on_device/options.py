"""The options: those of `elastiquant train` that training on a device has."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import on_device
from elastiquant_testbed.on_device.networks import NETWORKS

ALLREDUCE, LOCAL_SGD, DILOCO = "allreduce", "local-sgd", "diloco"
# Those of elastiquant.Gossip whose workers all make the same number of steps, on a graph that
# has no directions.
GOSSIP = ("dpsgd", "d2", "gradient-tracking", "dcd", "ecd", "choco", "deepsqueeze", "noloco")


class Algorithm(NamedTuple):
    name: str
    spec: str  # as it was given
    lr: float = 1.0  # of the outer optimiser of rounds
    momentum: float = 0.0


def algorithm_of(text: str) -> Algorithm:
    """Of a spec such as `diloco:lr=0.9,momentum=0.5`, whose defaults are those of `train`."""
    name, _, given = text.partition(":")
    if name not in (ALLREDUCE, LOCAL_SGD, DILOCO, *GOSSIP):
        raise argparse.ArgumentTypeError(
            f"{name!r} is not trained on a device; valid: {ALLREDUCE}, {LOCAL_SGD}, {DILOCO}, "
            + ", ".join(GOSSIP)
        )
    if name != DILOCO:
        if given:
            raise argparse.ArgumentTypeError(
                f"{name} takes no settings here, such as {given!r}"
            )
        return Algorithm(name, text)
    numbers = {"lr": 0.7, "momentum": 0.9}
    for item in filter(None, given.split(",")):
        key, _, value = item.partition("=")
        if key not in numbers:
            raise argparse.ArgumentTypeError(
                f"{item!r}: on a device {DILOCO} has lr and momentum alone"
            )
        numbers[key] = float(value)
    return Algorithm(name, text, **numbers)


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="on_device",
        description=on_device.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", required=True, choices=NETWORKS)
    parser.add_argument("--data", required=True, type=Path, help="a folder with CIFAR-10")
    parser.add_argument("--out", required=True, type=Path)
    for name, default in (
        ("--workers", 1), ("--batch", 32), ("--epochs", 10), ("--steps", 0), ("--warmup", 0),
        ("--seed", 1), ("--eval-every", 1), ("--measure-every", 50), ("--threads", 1),
    ):  # fmt: skip
        parser.add_argument(name, type=int, default=default)
    for name, default in (("--lr", 0.1), ("--momentum", 0.9), ("--weight-decay", 1e-4)):
        parser.add_argument(name, type=float, default=default)
    parser.add_argument("--algorithm", type=algorithm_of, default=ALLREDUCE)
    parser.add_argument("--every", type=int, default=32, help="local steps of a round")
    parser.add_argument("--graph", default="ring", help="of gossip")
    parser.add_argument("--gossip-step", type=float, help="searched for if it is not given")
    parser.add_argument("--codec", default="elastic:bits=4")
    parser.add_argument("--exact", default="1d")
    parser.add_argument("--exchange", default="auto")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args(arguments)
