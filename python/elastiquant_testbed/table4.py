"""ElastiQuant's table 4 again: the accuracy of schemes on CIFAR-10, on 2 and 6 devices.

Batches, rates, schedules and epochs are not published: ours are batches of 128 over all
devices, a rate of .1 with momentum .9 and a cosine, and fewer epochs (in the result), so that
orders can be compared and not values. Published schemes send once, to all, and compress
everything: `elastiquant:bits=4` is theirs; `dither` is ours, at its best exchange. DGC goes
without its warm-up of four epochs, in which any final ratio sends much the same: no run of it
is longer than that.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import words
from elastiquant_testbed.checks import Claim, falls
from elastiquant_testbed.seeds import agreed, count, in_common
from elastiquant_testbed.testbed import Testbed
from elastiquant_testbed.training import Choice, Experiment, Outcome, Run, options

GLOBAL_BATCH = 128
PUBLISHED = {"exchange": "all-gather", "exact": "none"}
SCHEMES = {
    "SGD": {"codec": "fp32"},  # one worker
    "FP-SGD": {"codec": "fp32"},
    "4-bit": {"codec": "elastiquant:bits=4", **PUBLISHED},
    "QSGD": {"codec": "qsgd:bits=4,bucket=8192", **PUBLISHED},
    "QSGD-V": {"codec": "qsgdv:bits=4,bucket=8192", **PUBLISHED},
    "TernGrad": {"codec": "terngrad"},
    "ATOMO": {"codec": "atomo-svd"},
    "DGC .02": {"codec": "dgc:ratio=0.02,warmup=no", "momentum": 0},
    "DGC .12": {"codec": "dgc:ratio=0.12,warmup=no", "momentum": 0},
    "dither 1": {"codec": "dither:bits=1"},
}


class Cell(NamedTuple):
    network: str  # for `train --model`
    scheme: str
    devices: int
    printed: float | None  # per cent; None: not in the table


RESNET_20 = [
    Cell("resnet20", "FP-SGD", 2, 90.5),
    Cell("resnet20", "4-bit", 2, 86.3),
    Cell("resnet20", "ATOMO", 2, 87.6),
    Cell("resnet20", "TernGrad", 2, None),  # "no convergence"
    Cell("resnet20", "dither 1", 2, None),
]
RESNET_18 = [
    Cell("resnet18-32px", "4-bit", 6, 92.72),  # and 91.96 in three other rows
    Cell("resnet18-32px", "4-bit", 2, None),  # what "unlike ElastiQuant, DGC degrades" needs
    Cell("resnet18-32px", "DGC .02", 2, 91.25),
    Cell("resnet18-32px", "DGC .02", 6, 88.87),
    Cell("resnet18-32px", "DGC .12", 2, 90.08),
    Cell("resnet18-32px", "DGC .12", 6, 87.36),
    Cell("resnet18-32px", "dither 1", 6, None),
]
RESNET_110 = [
    Cell("resnet110", "SGD", 1, 89.76),
    Cell("resnet110", "FP-SGD", 6, 92.03),
    Cell("resnet110", "QSGD", 6, 89.22),
    Cell("resnet110", "QSGD-V", 6, 90.10),
    Cell("resnet110", "TernGrad", 6, 91.33),
    Cell("resnet110", "4-bit", 6, 90.80),
    Cell("resnet110", "dither 1", 6, None),
]
NAMES = {"resnet20": "ResNet-20", "resnet18-32px": "ResNet-18", "resnet110": "ResNet-110"}
# By device: what an H100 trains in half an hour, and two cores in a day.
EPOCHS = {
    "cuda": {"resnet20": 30, "resnet18-32px": 2, "resnet110": 10},
    "cpu": {"resnet20": 30, "resnet18-32px": 2, "resnet110": 2},
}
DEVICES = tuple(EPOCHS)  # those that are preferred first
SEEDS = {"resnet20": 2, "resnet18-32px": 1, "resnet110": 1}
# Epochs from which orders and differences are judged: after fewer they tell more of how soon a
# scheme starts than of where it ends.
AT_LENGTH = 30
POINT = 1.0  # within which a printed difference has to be seen


class Table4(Experiment):
    name = "table4"
    trains_on_gpu = True

    def __init__(self, testbed: Testbed | None, out: Path, choice: Choice):
        super().__init__(testbed, out, choice)
        self.cells = RESNET_20 if self.quick else RESNET_20 + RESNET_18 + RESNET_110

    def epochs(self, network: str, device: str) -> int:
        return 2 if self.quick else EPOCHS[device][network]

    def of(self, cell: Cell, device: str) -> list[Run]:
        """A cell's runs on a device, one for each seed."""
        seeds = 1 if self.quick else SEEDS[cell.network]
        return [self.one(cell, device, seed + 1) for seed in range(seeds)]

    def one(self, cell: Cell, device: str, seed: int) -> Run:
        named = {"model": cell.network, "workers": cell.devices, **self.chosen(2560, 1000)}
        named |= {} if device == "cpu" else {"device": device}
        named |= {"batch": GLOBAL_BATCH // cell.devices, "lr": 0.1, "eval-every": 1}
        named |= {"epochs": self.epochs(cell.network, device), "measure-every": 0}
        named |= SCHEMES[cell.scheme]
        return Run(f"{cell.network}, {cell.scheme}, {cell.devices}", options(**named), seed)

    def run(self) -> dict:
        runs = self.make(
            self.order(self.choice.device),
            [run for d in DEVICES if d != self.choice.device for run in self.order(d)],
        )
        cells, shown = [], []
        for cell in self.cells:
            there = [d for d in DEVICES if runs.present(self.of(cell, d))]
            device = there[0] if there else self.choice.device
            shown += self.of(cell, device)
            if there:
                row = self.row(cell, device, runs.present(self.of(cell, device)))
                cells.append(row | {"seeds": runs.seeds(self.of(cell, device))})
        result = self.result(claims(cells), runs, shown, cells=cells)
        trained_on = {cell["trained_on"] for cell in cells}
        return {**result, "device": next(d for d in DEVICES if d in trained_on)}

    def order(self, device: str) -> list[Run]:
        """All runs on a device but those of cells that were made on a preferred one.

        Orders are about cells, so one seed of each says more than two of some, and the networks
        that train for the fewest epochs show theirs soonest."""
        better = DEVICES[: DEVICES.index(device)]
        cells = [
            cell
            for cell in sorted(self.cells, key=lambda c: self.epochs(c.network, device))
            if not any(self.is_made(run) for d in better for run in self.of(cell, d))
        ]
        runs = [run for cell in cells for run in self.of(cell, device)]
        return sorted(runs, key=lambda run: run.seed)

    def row(self, cell: Cell, device: str, outcomes: list[Outcome]) -> dict:
        reached = [o.summary["test_accuracy"] for o in outcomes]
        return {
            "network": NAMES[cell.network],
            "scheme": cell.scheme,
            "devices": cell.devices,
            "accuracy": statistics.fmean(reached),
            "accuracy_by_seed": reached,
            "published": cell.printed,
            "epochs": self.epochs(cell.network, device),
            "trained_on": device,
            "bytes_up": outcomes[0].summary["bytes_up"],
        }

    def left_out(self) -> list[str]:
        if self.quick:
            return ["ResNet-18 and ResNet-110", "all but two epochs", "other seeds"]
        return [
            "the published number of epochs, which is not known: those of each cell are here",
            "a second seed of ResNet-18 and ResNet-110, of which there is one seed",
            "CIFAR-100",
        ]


# By network: (scheme, devices), the most accurate first.
ORDERS = (
    ("ResNet-20", (("FP-SGD", 2), ("ATOMO", 2), ("4-bit", 2))),
    ("ResNet-18", (("4-bit", 6), ("DGC .02", 6), ("DGC .12", 6))),
    ("ResNet-18", (("DGC .02", 2), ("DGC .02", 6))),
    ("ResNet-18", (("DGC .12", 2), ("DGC .12", 6))),
    (
        "ResNet-110",
        (
            ("FP-SGD", 6),
            ("TernGrad", 6),
            ("4-bit", 6),
            ("QSGD-V", 6),
            ("SGD", 1),
            ("QSGD", 6),
        ),
    ),
)


# By network: a scheme's printed points on so many devices over those of another on so many.
DIFFERENCES = (
    ("ResNet-20", ("4-bit", 2), ("FP-SGD", 2), -4.2),
    ("ResNet-110", ("4-bit", 6), ("FP-SGD", 6), -1.2),
    ("ResNet-18", ("DGC .02", 6), ("DGC .02", 2), -2.4),
    ("ResNet-18", ("DGC .12", 6), ("DGC .12", 2), -2.7),
)


def claims(cells: list[dict]) -> list[Claim]:
    """Those whose cells are all there, and were trained for as many epochs."""
    table = Cells(cells)
    found = [table.ordered(network, keys) for network, keys in ORDERS]
    found += [table.apart(*difference) for difference in DIFFERENCES]
    found += [table.unlike_dgc(), table.no_convergence()]
    return [claim for claim in found if claim is not None]


class Cells:
    """By network, scheme and devices. A claim is None where its cells are not there, or differ
    in their epochs; it is not judged where these are few, or where some were trained on a GPU
    and others were not. It is about the seeds that all of its cells have."""

    def __init__(self, cells: list[dict]):
        self.by = {(c["network"], c["scheme"], c["devices"]): c for c in cells}

    def of(self, network: str, keys: tuple[tuple[str, int], ...]) -> list[dict]:
        there = [self.by[network, *key] for key in keys if (network, *key) in self.by]
        comparable = len({c["epochs"] for c in there}) == 1
        return in_common(there) if len(there) == len(keys) and comparable else []

    def ordered(self, network: str, keys: tuple[tuple[str, int], ...]) -> Claim | None:
        if not (there := self.of(network, keys)):
            return None
        values = [c["accuracy"] for c in there]
        words = " > ".join(f"{scheme} on {n}" for scheme, n in keys)
        by_seed = zip(*(c["accuracy_by_seed"] for c in there), strict=True)
        holds, seen = agreed(map(falls, by_seed), _per_cent(values))
        return _judged(f"{network}: {words}", holds, seen, there)

    def apart(
        self, network: str, one: tuple[str, int], other: tuple[str, int], printed: float
    ) -> Claim | None:
        """The difference of two cells is the printed one, within a point."""
        if not (there := self.of(network, (one, other))):
            return None
        a, b = (c["accuracy"] for c in there)
        return _judged(
            f"{network}: {one[0]} on {one[1]} ends {-printed} points below {other[0]} on "
            f"{other[1]}, within {POINT:g}",
            abs(a - b - printed) <= POINT,
            f"{a - b:+.2f} points",
            there,
        )

    def unlike_dgc(self) -> Claim | None:
        keys = [(scheme, n) for scheme in ("4-bit", "DGC .02", "DGC .12") for n in (2, 6)]
        if not (there := self.of("ResNet-18", tuple(keys))):
            return None
        values = [c["accuracy"] for c in there]
        changes = [six - two for two, six in zip(values[::2], values[1::2], strict=True)]
        return _judged(
            "ResNet-18: unlike 4-bit, DGC .02 and DGC .12 lose a point or more from 2 devices "
            "to 6",
            changes[0] > -POINT and max(changes[1:]) <= -POINT,
            ", ".join(f"{change:+.2f}" for change in changes) + " points",
            there,
        )

    def no_convergence(self) -> Claim | None:
        if not (there := self.of("ResNet-20", (("TernGrad", 2),))):
            return None
        reached = there[0]["accuracy"]
        seen = f"{reached:.2f} %, where 10 is chance"
        return _judged("ResNet-20: TernGrad does not converge", reached < 20, seen, there)


def _judged(claim: str, holds: bool | None, seen: str, cells: list[dict]) -> Claim:
    """With the epochs and seeds that it rests on, and judged if these epochs are enough."""
    epochs = cells[0]["epochs"]
    length = f"{epochs} epochs, {count(cells[0])}"
    alike = len({c.get("trained_on") for c in cells}) == 1
    length += "" if alike else ", on a GPU and on CPUs"
    can_be_judged = alike and epochs >= AT_LENGTH
    return Claim(claim, holds if can_be_judged else None, f"{seen} ({length})")


def _per_cent(values: list[float]) -> str:
    return ", ".join(f"{value:.2f}" for value in values) + " %"


def text(result: dict) -> str:
    rows = []
    for c in result["cells"]:
        printed = "" if c["published"] is None else f"{c['published']:.2f}"
        seeds = ", ".join(f"{a:.2f}" for a in c["accuracy_by_seed"])
        rows.append(
            [
                c["network"],
                c["scheme"],
                c["devices"],
                f"{c['accuracy']:.2f}",
                printed,
                c["epochs"],
                "GPU" if c.get("trained_on") == "cuda" else "CPU",
                f"{c['bytes_up'] / 1e6:,.1f}",
                seeds,
            ]
        )
    heads = ["network", "scheme", "devices", "accuracy %", "printed", "epochs"]
    heads += ["trained on", "MB a device"]
    return words.page(
        "Table 4 of ElastiQuant, rebuilt",
        "Accuracy on the test images.",
        words.table([*heads, "by seed"], rows, words=2),
        result,
    )


def draw(result: dict, stem: Path) -> None:
    """A bar for each cell, and a mark where the printed accuracy is."""
    import elastiquant_plot as look

    cells = result["cells"]
    with look.style():
        fig, (axes,) = look.figure(
            "The accuracies of ElastiQuant's table 4",
            "Bars: measured here, after the epochs that the table names. Marks: as printed, "
            "after a number of epochs that is not published.",
            height=4.8,
        )
        networks = list(dict.fromkeys(c["network"] for c in cells))
        colours = dict(zip(networks, look.colours(len(networks)), strict=True))
        for x, c in enumerate(cells):
            axes.bar(x, c["accuracy"], 0.7, color=colours[c["network"]])
            if c["published"] is not None:
                axes.plot(x, c["published"], "_", color=look.INK, markersize=16)
        names = [f"{c['scheme']}\n{c['network']}, {c['devices']}" for c in cells]
        crowded = len(cells) > 8
        axes.set_xticks(range(len(cells)), names, rotation=70 * crowded, fontsize=7.5)
        axes.set_ylabel("test accuracy, %")
        look.layout(fig)
        if crowded:
            fig.subplots_adjust(bottom=0.3)
        look.save(fig, stem)
