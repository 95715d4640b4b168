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
* The printed transmission has a part that no scheme makes shorter, and a rate alone has none;
  and that of ResNet-50 takes longer than its computing lets one expect. Two other readings
  (table3_readings.py) add a cost of each step, and more steps of ResNet-50. They take a cell
  each to be fitted, and are no more than calculated.
* In the sources' serial accounting a step is computed, then encoded, then sent and decoded, as
  one bucket. Seconds of encoding are measured on two devices, as on more of them they would
  take each other's two cores, and are those of a frame encoded and n decoded.

What claims need is measured first: an experiment that is ended early shows the cells that are
there (table3_steps.py).
"""

from __future__ import annotations

import statistics
from pathlib import Path

from elastiquant_testbed import checks, emulation, provenance, published
from elastiquant_testbed.table3_readings import (
    FIT_STEP_COST,
    MORE_STEPS,
    STEP_COST,
    add_more_steps,
    add_step_cost,
)
from elastiquant_testbed.table3_steps import DEVICES, FIT, MODELS, SCHEMES, Steps, Wanted
from elastiquant_testbed.testbed import Testbed, TestbedError
from elastiquant_testbed.training import Choice


class Table3:
    def __init__(self, testbed: Testbed, out: Path, choice: Choice):
        # Gradients are recorded on generated images, whatever --data says.
        self.most = len(testbed.devices)
        self.watts = emulation.radio_watts(testbed.devices)
        self.quick = choice.quick
        self.steps = Steps(testbed, out, choice)

    def networks(self) -> list[str]:
        return ["ResNet-34"] if self.quick else list(MODELS)

    def wanted(self) -> list[Wanted]:
        """What the printed table has is measured first, on two devices before all, as encoding
        is told from there."""
        printed = [key for key in published.TABLE_3 if key[0] in self.networks()]
        printed.sort(key=lambda key: (self.networks().index(key[0]), key[2]))
        ours = [
            (network, scheme, devices)
            for devices in (*DEVICES, self.most)
            for network in self.networks()
            for scheme in SCHEMES
            if (network, scheme, devices) not in printed and self.fits(scheme, devices)
        ]
        keys = list(dict.fromkeys(printed + ours))
        return [Wanted(*key, overlapped) for overlapped in (False, True) for key in keys]

    def fits(self, scheme: str, devices: int) -> bool:
        """SGD has no row of all 18, whose fp32 frames of all others need 30 GB of memory."""
        return devices in DEVICES or not (self.quick or scheme == "SGD")

    def encoding(self, key: Wanted) -> float:
        if key.scheme == "SGD":
            return 0.0
        step = self.steps.of(key._replace(devices=2))
        return step["encode"] + step["decode"] / 2 * key.devices

    def cell(self, serial: Wanted) -> dict:
        """Seconds of an epoch, and the joules that a device's radio spends in it on sending, in
        the mean. T_overlapped is None until that was measured."""
        network, scheme, devices, _ = serial
        scale = self.steps.scale(network)
        steps = scale.steps(network, devices)
        parts = {
            "Cp": steps * scale.computing(network, scheme, devices),
            "En": steps * self.encoding(serial),
            "Tx": steps * self.steps.transmission(serial),
        }
        cell = {"network": network, "scheme": scheme, "devices": devices, **parts}
        overlapped = serial._replace(overlapped=True)
        really = self.steps.of(overlapped)["total"] if self.steps.has(overlapped) else None
        cell |= {"T": sum(parts.values()), "T_overlapped": really and steps * really}
        frame = self.steps.of(serial)
        cell |= {"steps": steps, "bytes_up": steps * frame["bytes_up"], "nmse": frame["nmse"]}
        watts = statistics.fmean(self.watts[:devices])
        cell["radio_joules"] = watts * 8 * cell["bytes_up"] / self.steps.rate
        printed = published.TABLE_3.get((network, scheme, devices))
        if printed:
            cell["published"] = {k: 60 * v for k, v in printed._asdict().items()}
        return cell

    def run(self) -> dict:
        rate = self.steps.fit()
        wanted = self.wanted()
        missing = self.steps.make(wanted)
        there = sorted(
            (step for step in wanted if not step.overlapped and self.steps.has(step)),
            key=lambda s: (s.network, list(SCHEMES).index(s.scheme), s.devices),
        )
        if Wanted(*FIT_STEP_COST) not in there:
            raise TestbedError(
                "too few steps were measured for anything to be shown: run it again to go on, "
                "with more --minutes"
            )
        cells = [self.cell(step) for step in there]
        others = {STEP_COST: add_step_cost(cells), MORE_STEPS: add_more_steps(cells)}
        return {
            "cells": cells,
            "checks": claims_of(cells),
            **{
                name: found and {**found, "checks": claims_of([c[name] for c in cells])}
                for name, found in others.items()
            },
            "fit": {
                "cell": FIT,
                "bits_per_second": rate,
                "fitted": self.steps.is_fitted,
            },
            "network": (
                provenance.NAMESPACES
                if self.steps.in_namespaces
                else "paced by each process (--link)"
            ),
            "seeds": [1],  # of `train`, which records the gradients
            "machines": sorted({self.steps.of(step)["machine"] for step in there}),
            "quick": self.quick,
            "left_out": self.left_out(missing, len(wanted)),
        }

    def left_out(self, missing: list[Wanted], of: int) -> list[str]:
        words = [f"SGD on {self.most} devices: each would hold {self.most - 1} frames of fp32"]
        if self.quick:
            words = [
                "ResNet-50",
                f"{self.most} devices",
                "ResNet-34's own gradients: those of ResNet-110, which are 1/12 of them, with "
                "1/12 of the computing",
            ]
        if not self.steps.in_namespaces:
            words.append(
                "one air for all, which needs root: each process paces its own sending"
            )
        if missing:
            overlapped = sum(step.overlapped for step in missing)
            words.append(
                f"{len(missing)} of {of} kinds of step, not measured yet, {overlapped} of them "
                "overlapped"
            )
        return words


def claims_of(cells: list[dict]) -> list[dict]:
    """Of the networks of which all published cells are there."""
    by_key = {(c["network"], c["scheme"], c["devices"]): c for c in cells}
    whole = {
        network
        for network in MODELS
        if all(key in by_key for key in published.TABLE_3 if key[0] == network)
    }
    known = {
        key: cell
        for key, cell in by_key.items()
        if key in published.TABLE_3 and key[0] in whole
    }
    return [claim._asdict() for claim in checks.all_claims(known)]
