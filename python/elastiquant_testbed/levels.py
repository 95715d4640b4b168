"""BinGrad's and ORQ's experiment: error and accuracy of schemes with equally many levels.

Networks, batches, rates, buckets and tables of the publication (Xu, Huo and Huang, "Optimal
gradient quantization condition for communication-efficient distributed training") were not to
be had: only its abstract, and which schemes it says are better. Ours are 4 workers with
batches of 32, buckets of 2048, a cosine, and few epochs (in the result). All schemes quantise a
gradient once, and all of it, for an all-gather.

`Linear` has evenly spaced levels up to the largest value of a bucket, QSGD up to its L2 norm.
With 3 of them Linear decodes to the same values as TernGrad without clipping, bit by bit, so
one run is made for both.
What is clipped is cut off at 2.5 standard deviations, which ORQ and TernGrad can do. A memory
is error feedback.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import levels_claims
from elastiquant_testbed.levels_claims import LEVELS
from elastiquant_testbed.table4 import PUBLISHED
from elastiquant_testbed.testbed import Testbed
from elastiquant_testbed.training import Choice, Experiment, Outcome, Run, options

WORKERS, BATCH, BUCKET = 4, 32, 2048
BITS = {3: 2, 5: 3, 9: 4}  # of a code with so many levels
CLIP = 2.5  # standard deviations
ONE_BIT = {"BinGrad-b": "bingrad-b", "BinGrad-pb": "bingrad-pb", "scaled sign": "efsign"}


class Scheme(NamedTuple):
    name: str
    levels: int  # 0: full precision
    codec: str
    clipped: bool = False
    memory: bool = False

    @property
    def spec(self) -> str:
        return self.codec + "|ef" * self.memory


class Network(NamedTuple):
    model: str  # for `train --model`
    name: str
    epochs: int
    rate: float


NETWORKS = (Network("resnet20", "ResNet-20", 4, 0.1), Network("vgg11", "VGG-11", 1, 0.05))
FULL = Scheme("fp32", 0, "fp32")
# Parts of a run of full precision after which its gradient is one that errors are measured on.
MEASURED_AT = "25%,50%,75%,100%"


def _uniform(levels: int, norm: str) -> str:
    """Evenly spaced from minus the norm of a bucket to the norm."""
    most = (levels - 1) // 2
    above = "/".join(f"{(i + 1) / most:g}" for i in range(most))
    return f"elastic:bits={BITS[levels]},levels={above},norm={norm},bucket={BUCKET}"


def _schemes() -> list[Scheme]:
    found = [Scheme(name, 2, codec) for name, codec in ONE_BIT.items()]
    for clip in (0, CLIP):
        found.append(Scheme("TernGrad", 3, f"terngrad:clip={clip}", clip > 0))
        found += [Scheme("ORQ", n, f"orq:levels={n},clip={clip}", clip > 0) for n in LEVELS]
    for n in LEVELS:
        found.append(Scheme("Linear", n, _uniform(n, "linf")))
        found.append(Scheme("QSGD", n, _uniform(n, "l2")))
    found.sort(key=lambda scheme: scheme.levels)
    return [FULL, *found, *(scheme._replace(memory=True) for scheme in found)]


SCHEMES = _schemes()


def trained(scheme: Scheme) -> Scheme:
    """The scheme whose run is that of this one, because it decodes to the same values."""
    if (scheme.name, scheme.levels) == ("Linear", 3):
        return Scheme("TernGrad", 3, "terngrad:clip=0", memory=scheme.memory)
    return scheme


class Levels(Experiment):
    name = "levels"

    def __init__(self, testbed: Testbed | None, out: Path, choice: Choice):
        super().__init__(testbed, out, choice)
        self.networks = NETWORKS[:1] if self.quick else NETWORKS
        self.schemes = [s for s in SCHEMES if not (self.quick and s.memory)]
        self.seeds = 1 if self.quick else 2

    def one(self, network: Network, scheme: Scheme, seed: int) -> Run:
        scheme = trained(scheme)
        named = {"model": network.model, "workers": WORKERS, "batch": BATCH, "threads": 1}
        named |= {**self.chosen(2560, 1000), "lr": network.rate, "eval-every": 0}
        if self.quick:
            named |= {"steps": 40, "measure-every": 5}
        else:
            # A scheme that diverges is a result, and not the end of the experiment.
            named |= {"epochs": network.epochs, "warmup": 100, "max-skipped": 1_000_000}
        name = f"{network.model}, {scheme.spec}"
        named |= {"codec": scheme.spec}
        if scheme == FULL:
            named |= {"dump-gradients": MEASURED_AT}
            measured = (s.spec for s in self.schemes if s.levels and not s.memory)
            return Run(name, options(**named), seed, tuple(measured))
        return Run(name, options(**named, **PUBLISHED), seed)

    def run(self) -> dict:
        wanted = {
            (network, scheme): [self.one(network, scheme, s + 1) for s in range(self.seeds)]
            for network in self.networks
            for scheme in self.schemes
        }
        # Claims are about schemes without a memory, so all seeds of these come first.
        order = [
            of_row[seed]
            for memory in (False, True)
            for seed in range(self.seeds)
            for (_, scheme), of_row in wanted.items()
            if scheme.memory == memory
        ]
        runs = self.make(list(dict.fromkeys(order)))
        rows = [
            row_of(network, scheme, there, runs.present(wanted[network, FULL]))
            | {"seeds": runs.seeds(of_row)}
            for (network, scheme), of_row in wanted.items()
            if (there := runs.present(of_row))
        ]
        return self.result(levels_claims.claims(rows), runs, rows=rows)

    def left_out(self) -> list[str]:
        gone = ["ImageNet, and the published networks and epochs, which are not known"]
        if self.quick:
            gone += ["VGG-11", "schemes with a memory", "all but 40 steps", "a second seed"]
        else:
            gone += [f"epochs of {n.name} after number {n.epochs}" for n in self.networks]
        return gone


def row_of(
    network: Network, scheme: Scheme, outcomes: list[Outcome], full: list[Outcome]
) -> dict:
    """Of the runs of a scheme, and those of full precision, whose gradients all schemes
    without a memory are measured on."""
    reached = [o.summary["test_accuracy"] for o in outcomes]
    losses = [o.summary["epochs"][-1]["train_loss"] for o in outcomes]
    is_measured = scheme.levels and not scheme.memory
    errors = [o.summary["errors"][scheme.spec] for o in full if is_measured]
    # Of a run that diverges it says nothing: few values are nearly all of its gradients.
    own_error = None
    if not any(map(diverged, outcomes)):
        own_error = statistics.fmean(o.summary["nmse"] for o in outcomes)
    return {
        "network": network.name,
        "scheme": scheme.name,
        "levels": scheme.levels,
        "clipped": scheme.clipped,
        "memory": scheme.memory,
        "codec": scheme.spec,
        "error": statistics.fmean(errors) if errors else None,
        "nmse": own_error,
        "train_loss": None if None in losses else statistics.fmean(losses),
        "accuracy": statistics.fmean(reached),
        "accuracy_by_seed": reached,
        "steps": outcomes[0].summary["steps"],
    }


def diverged(outcome: Outcome) -> bool:
    """Whether numbers were no longer finite, or the loss of the last epoch is above that of the
    first. The accuracy may still be good then, as a few confident mistakes make a large loss. A
    run of one epoch cannot show a rise."""
    losses = [epoch["train_loss"] for epoch in outcome.summary["epochs"]]
    is_finite = not outcome.summary["skipped_steps"] and None not in losses
    return not is_finite or losses[-1] > losses[0]
