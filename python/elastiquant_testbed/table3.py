"""ElastiQuant's table 3 again: seconds of an epoch on 2, 4 and 7 devices, by scheme.

How it is rebuilt, as the link, the batch and the portions of ImageNet are not published:

* Every device computes batches of the same size, so that an epoch has 1/n as many steps on n
  devices, and every device sends its frame to all others (all-gather), which decode n frames.
  Of the readings that we tried this one alone explains the printed numbers: transmission's part
  that does not depend on bits falls as 1/n, and encoding does not depend on n.
* Computing is not what is compared: a step takes what the scheme's printed minutes say (of ours
  those of E), on a scale on which a step of SGD on 7 devices takes STEP_SECONDS, so that two
  cores can move the bytes.
* The rate of the air is fitted so that SGD on 7 devices takes ResNet-34 as long to transmit as
  printed. Nothing else is fitted; ResNet-50's step takes longer by its operations.
* The printed transmission has a part that no scheme makes shorter, and a rate alone has none.
  `with_step_cost` has it, too: a second cell, SGD on 2 devices, then gives what a step costs
  whatever is sent in it. It is added to what was measured, and not emulated.
* Encoding, sending, waiting and decoding are real. In the sources' serial accounting a step is
  computed, then encoded, then sent and decoded, as one bucket. Seconds of encoding are measured
  on two devices, as on more of them they would take each other's two cores, and are those of a
  frame encoded and n decoded.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import checks, emulation, published
from elastiquant_testbed.say import say
from elastiquant_testbed.testbed import Network, Testbed, TestbedError
from elastiquant_testbed.training import Choice

STEP_SECONDS = 20.0
DEVICES = published.DEVICES
FIT = ("ResNet-34", "SGD", 7)
FIT_STEP_COST = ("ResNet-34", "SGD", 2)
ONE_BUCKET_KIB = 1 << 20
MEASURED_STEPS = 2
RECORDED_STEPS = 3
# A fit is over when transmission takes as long as wanted but for this part of it.
FIT_WITHIN, FIT_TRIES = 0.05, 4

PAPER = "norm=l2,bucket=8192"
SCHEMES = {
    "SGD": "fp32",
    "8-bit": f"elastic:bits=8,{PAPER}",
    "4-bit": f"elastic:bits=4,{PAPER}",
    "E": f"elastic:bits=4,{PAPER}|rans",
    "dither 2": "dither:bits=2",
    "dither 1": "dither:bits=1",
}


class Model(NamedTuple):
    name: str  # for `train --model`
    # Of gradients, with the ten classes of the images that they are recorded on.
    coordinates: int
    gigaflops: float  # of an image's forward pass at 224 pixels


MODELS = {
    "ResNet-34": Model("resnet34-imagenet", 21289802, 7.3),
    "ResNet-50": Model("resnet50-imagenet", 23528522, 8.2),
}
# With --quick a small model's gradients stand in, and steps are shorter as it is smaller.
QUICK_MODEL, QUICK_COORDINATES = "resnet110", 1727962


class Scale(NamedTuple):
    """How a network's printed minutes become the seconds of emulated steps."""

    step_seconds: float  # of computing, on 7 devices

    def steps(self, network: str, devices: int) -> float:
        """Of an epoch."""
        most = DEVICES[-1]
        steps = 60 * published.TABLE_3[network, "SGD", most].Cp / self.step_seconds
        return steps * most / devices

    def computing(self, network: str, scheme: str, devices: int) -> float:
        """Seconds of a step. Beyond 7 devices it is as with them."""
        of = min(devices, DEVICES[-1])
        printed = scheme if scheme in published.SCHEMES else "E"
        minutes = published.TABLE_3[network, printed, of].Cp
        return 60 * minutes / self.steps(network, of)


class Table3:
    """Measures what OUT does not have yet."""

    def __init__(self, testbed: Testbed, out: Path, choice: Choice):
        quick = choice.quick  # gradients are recorded on generated images
        self.network: Network = testbed.network
        self.most = len(testbed.devices)
        self.quick = quick
        self.in_air = emulation.has_namespaces()
        self.kept = out / ("quick" if quick else "full")
        self.kept.mkdir(parents=True, exist_ok=True)

    # What is emulated.

    def networks(self) -> list[str]:
        return ["ResNet-34"] if self.quick else list(MODELS)

    def devices(self, scheme: str) -> list[int]:
        """SGD has no row of all 18, whose fp32 frames of all others need 30 GB of memory."""
        return [*DEVICES] + ([self.most] if not self.quick and scheme != "SGD" else [])

    def model(self, network: str) -> str:
        return QUICK_MODEL if self.quick else MODELS[network].name

    def scale(self, network: str) -> Scale:
        seconds = STEP_SECONDS * MODELS[network].gigaflops / MODELS["ResNet-34"].gigaflops
        if self.quick:
            seconds *= QUICK_COORDINATES / MODELS[network].coordinates
        return Scale(seconds)

    # What is measured.

    def step(
        self, network: str, scheme: str, devices: int, rate: int, overlapped: bool
    ) -> dict:
        """Kept under its settings, so that it is measured once."""
        way = "overlapped" if overlapped else "serial"
        name = f"{network}_{scheme.replace(' ', '-')}_{devices}_{rate}_{way}"
        path = self.kept / f"{name}.json"
        if path.exists():
            return json.loads(path.read_text())
        model = self.model(network)
        gradients = emulation.record_gradients(model, RECORDED_STEPS, self.kept / model)
        computing = self.scale(network).computing(network, scheme, devices)
        options = ["--codec", SCHEMES[scheme], "--exchange", "all-gather", "--exact", "none"]
        options += [] if overlapped else ["--bucket-kib", ONE_BUCKET_KIB]
        run = self.kept / "run"
        words = emulation.train_words(
            model, gradients, f"{computing:.6f}s", 1 + MEASURED_STEPS, run, options
        )
        found = emulation.measure(self.network, devices, words, rate, run, self.in_air)
        told = {**found._asdict(), "computing": computing}
        path.write_text(json.dumps(told) + "\n")
        return told

    def transmission(self, network: str, scheme: str, devices: int, rate: int) -> float:
        """Seconds of a step that neither compute, encode nor decode."""
        step = self.step(network, scheme, devices, rate, overlapped=False)
        return max(0.0, step["total"] - step["computing"] - step["encode"] - step["decode"])

    def encoding(self, network: str, scheme: str, devices: int, rate: int) -> float:
        if scheme == "SGD":
            return 0.0
        step = self.step(network, scheme, 2, rate, overlapped=False)
        return step["encode"] + step["decode"] / 2 * devices

    def wanted(self) -> float:
        """Seconds in which SGD must transmit a step where the link is fitted."""
        network, scheme, devices = FIT
        steps = self.scale(network).steps(network, devices)
        return 60 * published.TABLE_3[network, scheme, devices].Tx / steps

    def fitted_rate(self) -> int:
        """Bits a second of the air."""
        path = self.kept / "fit.json"
        if path.exists():
            return json.loads(path.read_text())["rate"]
        wanted, rate = self.wanted(), parse_rate(self.network.rate)
        for _ in range(FIT_TRIES):
            seen = self.transmission(*FIT, rate)
            say(f"fit: {rate / 1e6:.0f} Mbit/s take SGD {seen:.2f} s, wanted are {wanted:.2f}")
            if abs(seen / wanted - 1) <= FIT_WITHIN:
                break
            rate = round(rate * seen / wanted)
        path.write_text(json.dumps({"rate": rate, "wanted": wanted, "seen": seen}) + "\n")
        return rate

    # What comes of it.

    def cell(self, network: str, scheme: str, devices: int, rate: int) -> dict:
        """Seconds of an epoch."""
        scale = self.scale(network)
        steps = scale.steps(network, devices)
        parts = {
            "Cp": steps * scale.computing(network, scheme, devices),
            "En": steps * self.encoding(network, scheme, devices, rate),
            "Tx": steps * self.transmission(network, scheme, devices, rate),
        }
        really = self.step(network, scheme, devices, rate, overlapped=True)
        cell = {"network": network, "scheme": scheme, "devices": devices, **parts}
        cell |= {"T": sum(parts.values()), "T_overlapped": steps * really["total"]}
        cell |= {"steps": steps, "bytes_up": steps * really["bytes_up"]}
        cell["nmse"] = really["nmse"]
        printed = published.TABLE_3.get((network, scheme, devices))
        if printed:
            cell["published"] = {k: 60 * v for k, v in printed._asdict().items()}
        return cell

    def run(self) -> dict:
        rate = self.fitted_rate()
        cells = []
        for network in self.networks():
            for scheme in SCHEMES:
                for devices in self.devices(scheme):
                    cells.append(self.cell(network, scheme, devices, rate))
                    c = cells[-1]
                    say(
                        f"{network}, {scheme}, {devices} devices: Cp {c['Cp']:.0f} s, En "
                        f"{c['En']:.0f}, Tx {c['Tx']:.0f}, T {c['T']:.0f}; overlapped "
                        f"{c['T_overlapped']:.0f}"
                    )
        cost = add_step_cost(cells)
        return {
            "cells": cells,
            "checks": claims_of(cells),
            "with_step_cost": {
                **cost,
                "checks": claims_of([c["with_step_cost"] for c in cells]),
            },
            "fit": {"cell": FIT, "bits_per_second": rate},
            "network": "namespaces" if self.in_air else "paced by each process (--link)",
            "seeds": [1],  # of `train`, which records the gradients
            "quick": self.quick,
            "left_out": self.left_out(),
        }

    def left_out(self) -> list[str]:
        words = [f"SGD on {self.most} devices: each would hold {self.most - 1} frames of fp32"]
        if self.quick:
            words = [
                "ResNet-50",
                f"{self.most} devices",
                "ResNet-34's own gradients: those of ResNet-110, which are 1/12 of them, with "
                "1/12 of the computing",
            ]
        if not self.in_air:
            words.append(
                "one air for all, which needs root: each process paces its own sending"
            )
        return words


def claims_of(cells: list[dict]) -> list[dict]:
    by_key = {(c["network"], c["scheme"], c["devices"]): c for c in cells}
    known = {key: cell for key, cell in by_key.items() if key in published.TABLE_3}
    return [claim._asdict() for claim in checks.all_claims(known)]


def add_step_cost(cells: list[dict]) -> dict:
    """Gives each cell a second reading: transmission times a factor, as with another rate,
    and a cost of each step, of which there are fewer the more devices there are. Two cells say
    both."""

    def of(key: tuple[str, str, int]) -> tuple[float, float, float]:
        """Measured, printed, and 1/n, to which the steps of an epoch are proportional."""
        (c,) = (c for c in cells if (c["network"], c["scheme"], c["devices"]) == key)
        return c["Tx"], c["published"]["Tx"], 1 / key[2]

    (a, wanted_a, few), (b, wanted_b, many) = of(FIT), of(FIT_STEP_COST)
    factor = (wanted_a * many - wanted_b * few) / (a * many - b * few)
    cost = (wanted_b - factor * b) / many  # seconds of an epoch on one device
    for c in cells:
        # A network's steps are longer or fewer than those of the one that was fitted.
        steps = c["steps"] * c["devices"] / cells[0]["steps"] / cells[0]["devices"]
        sent = factor * c["Tx"] + cost * steps / c["devices"]
        same = {key: c[key] for key in ("network", "scheme", "devices", "Cp", "En")}
        c["with_step_cost"] = {**same, "Tx": sent, "T": c["Cp"] + c["En"] + sent}
    return {"cell": FIT_STEP_COST, "factor_of_rate": 1 / factor, "seconds_of_an_epoch": cost}


def parse_rate(text: str) -> int:
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    for unit, bits in units.items():
        if text.endswith(unit):
            return round(float(text.removesuffix(unit)) * bits)
    raise TestbedError(f"{text!r} is not a rate such as 20mbit")
