"""CHOCO-SGD's table again: gossip on a ring of 8 workers, under codecs of fewer and fewer bits.

Koloskova, Lin, Stich and Jaggi, "Decentralized deep learning with arbitrary communication
compression" (ICLR 2020), ResNet-20 on CIFAR-10 for 300 epochs, with a rate and a gossip step
tuned for each scheme. Ours are batches of 16 a worker, one rate for all with a cosine, the
gossip step that the program searches for, and few epochs (in the result). The printed QSGD of
16 bits has no counterpart here, whose codec has 2 to 8: what it is compared with is 8 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed.checks import Claim
from elastiquant_testbed.seeds import count, in_common, mean
from elastiquant_testbed.testbed import Testbed
from elastiquant_testbed.training import Choice, Experiment, Outcome, Run, options

WORKERS, BATCH = 8, 16
EPOCHS = {"cuda": 6, "cpu": 3}
DEVICES = tuple(EPOCHS)  # those that are preferred first
SEEDS = 2
QUICK_STEPS = 20


class Scheme(NamedTuple):
    algorithm: str  # for `train --algorithm`
    codec: str
    name: str  # of the codec, for people
    printed: float | None = None  # per cent; None: not in the table


DIVERGED = 0.0  # as the table prints it
SCHEMES = (
    Scheme("allreduce", "fp32", "fp32", 92.64),
    Scheme("choco", "qsgd:bits=8", "QSGD, 8 bits", 92.30),
    Scheme("choco", "qsgd:bits=4", "QSGD, 4 bits", 91.92),
    Scheme("choco", "qsgd:bits=2", "QSGD, 2 bits", 91.41),
    Scheme("choco", "randomk:ratio=0.01", "random 1 %", 91.32),
    Scheme("choco", "topk:ratio=0.01", "top 1 %", 91.73),
    Scheme("choco", "efsign", "sign and norm", 92.46),
    Scheme("dcd", "qsgd:bits=8", "QSGD, 8 bits", 92.36),
    Scheme("dcd", "qsgd:bits=4", "QSGD, 4 bits", 23.6),
    Scheme("dcd", "qsgd:bits=2", "QSGD, 2 bits", DIVERGED),
    Scheme("ecd", "qsgd:bits=8", "QSGD, 8 bits", 59.1),
    Scheme("ecd", "qsgd:bits=4", "QSGD, 4 bits", DIVERGED),
    Scheme("ecd", "qsgd:bits=2", "QSGD, 2 bits", DIVERGED),
    Scheme("dpsgd", "fp32", "fp32"),
    *(
        Scheme(algorithm, f"dither:bits={bits}", f"dither, {words}")
        for algorithm in ("choco", "dcd")
        for bits, words in (("2", "2 bits"), ("1", "1 bit"), ("0.5", "1/2 bit"))
    ),
)
QUICK = tuple(s for s in SCHEMES if (s.algorithm, s.codec) in {
    ("dpsgd", "fp32"), ("choco", "qsgd:bits=8"), ("choco", "dither:bits=1"),
})  # fmt: skip


class Choco(Experiment):
    name = "choco"
    trains_on_gpu = True

    def __init__(self, testbed: Testbed | None, out: Path, choice: Choice):
        super().__init__(testbed, out, choice)
        self.schemes = QUICK if self.quick else SCHEMES

    def one(self, scheme: Scheme, device: str, seed: int) -> Run:
        named = {"model": "resnet20", "workers": WORKERS, **self.chosen(2560, 1000)}
        named |= {} if device == "cpu" else {"device": device}
        named |= {"batch": BATCH, "lr": 0.1, "threads": 1, "measure-every": 0}
        if self.quick:
            named |= {"steps": QUICK_STEPS, "eval-every": 0}
        else:
            named |= {"epochs": EPOCHS[device], "warmup": 100, "eval-every": EPOCHS[device]}
        named |= {"algorithm": scheme.algorithm, "codec": scheme.codec}
        named |= {} if scheme.algorithm == "allreduce" else {"graph": "ring"}
        name = f"{scheme.algorithm}, {scheme.name}"
        return Run(name, options(**named), seed, may_diverge=True)

    def of(self, scheme: Scheme, device: str) -> list[Run]:
        seeds = 1 if self.quick else SEEDS
        return [self.one(scheme, device, seed + 1) for seed in range(seeds)]

    def order(self, device: str) -> list[Run]:
        """One seed of every scheme comes before another of any."""
        runs = [run for scheme in self.schemes for run in self.of(scheme, device)]
        return sorted(runs, key=lambda run: run.seed)

    def run(self) -> dict:
        chosen = self.choice.device
        others = [run for d in DEVICES if d != chosen for run in self.order(d)]
        runs = self.make(self.order(chosen), others)
        # Rows of one device alone can be compared.
        found: dict[str, list[dict]] = {
            device: [
                row_of(scheme, there) | {"seeds": runs.seeds(self.of(scheme, device))}
                for scheme in self.schemes
                if (there := runs.present(self.of(scheme, device)))
            ]
            for device in DEVICES
        }
        device = max(DEVICES, key=lambda d: len(found[d]))
        shown = self.order(device)
        result = self.result(claims(found[device]), runs, shown, rows=found[device])
        length = f"{QUICK_STEPS} steps" if self.quick else f"{EPOCHS[device]} epochs"
        return {**result, "device": device, "length": length}

    def left_out(self) -> list[str]:
        if self.quick:
            return [f"all but three schemes and {QUICK_STEPS} steps", "a second seed"]
        return [
            "the published 300 epochs: those of the result are here",
            "QSGD of 16 bits",
            "rates that are tuned for each scheme",
        ]


def row_of(scheme: Scheme, outcomes: list[Outcome]) -> dict:
    """Of a scheme's runs. One that diverges in one of them has no mean accuracy."""
    summaries = [o.summary for o in outcomes]
    diverged = next((s["diverged"] for s in summaries if "diverged" in s), None)
    reached = [None if "diverged" in s else s["test_accuracy"] for s in summaries]
    return {
        "algorithm": scheme.algorithm,
        "codec": scheme.name,
        "accuracy": mean(reached),
        "accuracy_by_seed": reached,
        "diverged": diverged,
        "published": scheme.printed,
        "gossip_step": None if diverged else summaries[0].get("gossip_step"),
        "consensus_distance": None if diverged else summaries[0].get("consensus_distance"),
        "bytes_up": None if diverged else summaries[0]["bytes_up"],
    }


EIGHT_BITS = ("choco", "QSGD, 8 bits")  # what fewer bits are compared with
FELL = 20.0  # points below what it is compared with; a run that diverged has lost all


class Rows:
    """By algorithm and codec. A claim is made of those that are there, over the seeds that both
    have."""

    def __init__(self, rows: list[dict]):
        self.by = {(r["algorithm"], r["codec"]): r for r in rows}

    def of(self, algorithm: str, codec: str) -> dict | None:
        return self.by.get((algorithm, codec))

    def both(self, one: tuple[str, str], other: tuple[str, str]) -> list[dict]:
        """Over the seeds that both have; empty if there are none."""
        rows = [self.of(*one), self.of(*other)]
        return [] if None in rows else in_common(rows)

    def near(self, one: tuple[str, str], other: tuple[str, str], points: float) -> Claim | None:
        if not (there := self.both(one, other)):
            return None
        a, b = there
        words = f"{name_of(a)} is within {points:g} point{'s' * (points != 1)} of {name_of(b)}"
        return _compared(words, a, b, lambda reached, least: reached >= least - points, False)

    def falls(self, one: tuple[str, str], other: tuple[str, str]) -> Claim | None:
        if not (there := self.both(one, other)):
            return None
        a, b = there
        words = f"{name_of(a)} diverges, or ends {FELL:g} points below {name_of(b)}"
        return _compared(words, a, b, lambda reached, least: reached < least - FELL, True)


def _compared(
    claim: str, one: dict, other: dict, of: Callable[[float, float], bool], diverged: bool
) -> Claim:
    """What `of` says of the accuracies of two rows, or `diverged` if the first one has none.
    Not judged where the second one has none."""
    seen = f"{_reached(one)} and {_reached(other)} ({count(one)})"
    if other["accuracy"] is None:
        return Claim(claim, None, f"{seen}: what it is compared with diverges")
    if one["accuracy"] is None:
        return Claim(claim, diverged, seen)
    return Claim(claim, of(one["accuracy"], other["accuracy"]), seen)


def claims(rows: list[dict]) -> list[Claim]:
    """What the printed accuracies say, as far as few epochs can tell: which schemes hold their
    accuracy with fewer bits, and which lose it."""
    table, eight = Rows(rows), EIGHT_BITS
    found = [
        table.near(eight, ("allreduce", "fp32"), 1),
        table.near(("choco", "QSGD, 4 bits"), eight, 1),
        table.near(("choco", "QSGD, 2 bits"), eight, 1.5),
        table.near(("choco", "sign and norm"), eight, 1),
        table.near(("choco", "top 1 %"), eight, 1.5),
        table.near(("choco", "random 1 %"), eight, 1.5),
        table.near(("dcd", "QSGD, 8 bits"), eight, 1),
        table.falls(("dcd", "QSGD, 4 bits"), ("choco", "QSGD, 4 bits")),
        table.falls(("dcd", "QSGD, 2 bits"), ("choco", "QSGD, 2 bits")),
        table.falls(("ecd", "QSGD, 8 bits"), eight),
        table.falls(("ecd", "QSGD, 4 bits"), ("choco", "QSGD, 4 bits")),
        table.falls(("ecd", "QSGD, 2 bits"), ("choco", "QSGD, 2 bits")),
    ]
    return [claim for claim in found if claim is not None]


NAMES = {"allreduce": "all-reduce", "dpsgd": "D-PSGD"}


def name_of(row: dict) -> str:
    algorithm = NAMES.get(row["algorithm"], row["algorithm"].upper())
    return f"{algorithm}, {row['codec']}" if row["algorithm"] != "allreduce" else algorithm


def _reached(row: dict) -> str:
    return "diverges" if row["accuracy"] is None else f"{row['accuracy']:.2f} %"
