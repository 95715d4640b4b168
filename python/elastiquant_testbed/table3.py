"""ElastiQuant's table 3 again: seconds of an epoch on 2, 4 and 7 devices, by scheme.

How it is rebuilt, as the link, the batch and the portions of ImageNet are not published:

* Every device computes batches of the same size, so that an epoch has 1/n as many steps on n
  devices, and every device sends its frame to all others (all-gather), which decode n frames.
  Of the readings that we tried this one alone explains the printed numbers: transmission's part
  that does not depend on bits falls as 1/n, and encoding does not depend on n.
* Computing is not what is compared: a step takes what the scheme's printed minutes say (of ours
  those of E), on a scale on which a step of SGD on 7 devices takes STEP_SECONDS, so that two
  cores can move the bytes.
* The rate of the sources' air is fitted so that SGD on 7 devices takes ResNet-34 as long to
  transmit as printed. Nothing else is fitted; ResNet-50's step takes longer by its operations.
  Another testbed's file may say its rate, and then nothing is fitted.
* Devices of the sources compute equally long, as the printed time is of their mixed boards. In
  another testbed they may compute by their speeds; the mean of the sources' boards then takes
  what is printed. A step's computing is that of the slowest of its devices, for whose frame all
  wait, and n devices are the first n of the file.
* The printed transmission has a part that no scheme makes shorter, and a rate alone has none;
  and ResNet-50's is longer than the steps explain that follow from its computing. Two readings
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

from elastiquant_testbed import checks, emulation, precisions, provenance, published
from elastiquant_testbed.say import say
from elastiquant_testbed.table3_readings import (
    FIT_STEP_COST,
    MORE_STEPS,
    STEP_COST,
    add_more_steps,
    add_step_cost,
)
from elastiquant_testbed.table3_steps import (
    DEVICES,
    FIT,
    MODELS,
    SCHEMES,
    Steps,
    Wanted,
    paces,
    too_few,
)
from elastiquant_testbed.testbed import SOURCES, Testbed, UsageError, load, parse_delay
from elastiquant_testbed.training import GENERATED, Choice

BYTES_OF_FRAME = 1448  # that TCP sends in a frame of Ethernet's size


class Table3:
    def __init__(self, testbed: Testbed | None, out: Path, choice: Choice):
        """Without a testbed it is that of the sources."""
        _refuse_what_has_no_effect(choice)
        testbed = testbed or load(SOURCES)
        self.described = testbed.described()
        classes = emulation.classes()
        self.testbed = testbed.with_classes(classes)
        self.most = len(testbed.devices)
        self.quick = choice.quick
        for network in self.networks():
            _require_memory(self.testbed, network)
        self.steps = Steps(self.testbed, paces(self.testbed, classes), out, choice)

    def counts(self) -> list[int]:
        """Numbers of devices that there are cells of: the printed ones, and all there are."""
        return sorted({*(count for count in DEVICES if count <= self.most), self.most})

    def networks(self) -> list[str]:
        return ["ResNet-34"] if self.quick else list(MODELS)

    def wanted(self) -> list[Wanted]:
        """What the printed table has is measured first, on two devices before all, as encoding
        is told from there."""
        printed = [
            key
            for key in published.TABLE_3
            if key[0] in self.networks() and key[2] <= self.most
        ]
        printed.sort(key=lambda key: (self.networks().index(key[0]), key[2]))
        ours = [
            (network, scheme, devices)
            for devices in self.counts()
            for network in self.networks()
            for scheme in SCHEMES
            if (network, scheme, devices) not in printed and self.fits(scheme, devices)
        ]
        keys = list(dict.fromkeys(printed + ours))
        return [Wanted(*key, overlapped) for overlapped in (False, True) for key in keys]

    def fits(self, scheme: str, devices: int) -> bool:
        """SGD has no row of more than 7, as the fp32 frames of all others would need, for 18,
        30 GB of memory here."""
        return devices <= DEVICES[-1] or not (self.quick or scheme == "SGD")

    def encoding(self, key: Wanted) -> float:
        if key.scheme == "SGD":
            return 0.0
        step = self.steps.of(key._replace(devices=2))
        return step["encode"] + step["decode"] / 2 * key.devices

    def cell(self, serial: Wanted) -> dict:
        """Seconds of an epoch, and the joules that a device's radio spends in it on sending, in
        the mean. T_overlapped and nmse_overlapped are None until a real run was measured, whose
        frames are those of buckets."""
        network, scheme, devices, _ = serial
        steps = self.steps.scale(network).steps(network, devices)
        parts = {
            "Cp": steps * self.steps.of(serial)["computing"],
            "En": steps * self.encoding(serial),
            "Tx": steps * self.steps.transmission(serial),
        }
        cell = {"network": network, "scheme": scheme, "devices": devices, **parts}
        overlapped = serial._replace(overlapped=True)
        really = self.steps.of(overlapped) if self.steps.has(overlapped) else {}
        total, error = really.get("total"), really.get("nmse")
        cell |= {"T": sum(parts.values()), "T_overlapped": total and steps * total}
        frame = self.steps.of(serial)
        cell |= {"steps": steps, "bytes_up": steps * frame["bytes_up"], "nmse": frame["nmse"]}
        cell["nmse_overlapped"] = error
        cell["radio_joules"] = self.radio_joules(cell["bytes_up"], devices)
        printed = published.TABLE_3.get((network, scheme, devices))
        if printed:
            cell["published"] = {k: 60 * v for k, v in printed._asdict().items()}
        return cell

    def radio_joules(self, sent: float, devices: int) -> float:
        """In the mean over devices, of which each sends so many bytes. A frame's second
        crossing of the air costs them nothing: it is the access point that sends it."""
        overhead = parse_delay(self.testbed.network.overhead) / 1e6 * sent / BYTES_OF_FRAME
        rates = self.testbed.rates(devices, self.steps.rate)
        return statistics.fmean(
            device.radio_watts * (8 * sent / rate + overhead)
            for device, rate in zip(self.testbed.devices, rates, strict=False)
        )

    def run(self) -> dict:
        if self.steps.obstacle:
            say(f"not emulated: {self.not_emulated()}")
        wanted = self.wanted()
        self.steps.settle_rate()
        missing = self.steps.make(wanted)
        there = sorted(
            (step for step in wanted if not step.overlapped and self.steps.has(step)),
            key=lambda s: (s.network, list(SCHEMES).index(s.scheme), s.devices),
        )
        if Wanted(*FIT_STEP_COST) not in there:
            raise too_few()
        cells = [self.cell(step) for step in there]
        add_speedups(cells)
        others = {STEP_COST: None, MORE_STEPS: None}
        if self.steps.is_to_fit:  # of other air nothing is printed that could be fitted
            others = {STEP_COST: add_step_cost(cells), MORE_STEPS: add_more_steps(cells)}
        result = {
            "cells": cells,
            **others,
            "fit": self.fit(),
            "network": (
                "paced by each process (--link)"
                if self.steps.obstacle
                else provenance.NAMESPACES
            ),
            "testbed": self.described,
            "seeds": [1],  # of `train`, which records the gradients
            "machines": sorted({self.steps.of(step)["machine"] for step in there}),
            "quick": self.quick,
            "left_out": self.left_out(missing, len(wanted)),
        }
        return judged(result)

    def fit(self) -> dict | None:
        """What was fitted, if anything was."""
        if not self.steps.is_to_fit:
            return None
        rate, is_fitted = self.steps.rate, self.steps.is_fitted
        return {"cell": FIT, "bits_per_second": rate, "fitted": is_fitted}

    def left_out(self, missing: list[Wanted], of: int) -> list[str]:
        words = [
            "ResNet-50",
            "ResNet-34's own gradients: those of ResNet-110, which are 1/12 of them, with 1/12 "
            "of the computing",
        ]
        words = (words if self.quick else []) + self.numbers_left_out()
        if self.steps.obstacle:
            words.append(self.not_emulated())
        if missing:
            overlapped = sum(step.overlapped for step in missing)
            words.append(
                f"{len(missing)} of {of} kinds of step, not measured yet, {overlapped} of them "
                "overlapped"
            )
        return words

    def numbers_left_out(self) -> list[str]:
        """Numbers of devices that have no cells, or not all."""
        words = []
        if self.most > DEVICES[-1]:
            frames = (
                f"SGD on {self.most} devices: each would hold {self.most - 1} frames of fp32"
            )
            words.append(f"{self.most} devices" if self.quick else frames)
        if printed := [str(count) for count in DEVICES if count > self.most]:
            words.append(
                f"printed cells of {' and '.join(printed)} devices: the testbed has {self.most}"
            )
        return words

    def not_emulated(self) -> str:
        """What is lost without namespaces, and why there are none."""
        lost = "; ".join(emulation.dropped(self.testbed)) or "nothing that this testbed has"
        return (
            f"{lost}. Each process paces what it sends (--link), as there are no network "
            f"namespaces: {self.steps.obstacle}"
        )


def _refuse_what_has_no_effect(choice: Choice) -> None:
    """Gradients are recorded in fp32 on generated images by this machine's processor, and one
    step at a time is measured, whatever these options say."""
    given = {
        "--data": choice.data != GENERATED,
        "--precision": choice.precision != precisions.FP32,
        "--device": choice.device != "cpu",
        "--jobs": choice.jobs > 1,
    }
    if without := [option for option, is_given in given.items() if is_given]:
        raise UsageError(
            f"table3 times steps and trains nothing: leave out {' and '.join(without)}, which "
            "would have no effect"
        )


def _require_memory(testbed: Testbed, network: str) -> None:
    """Raises UsageError if a device has no room for the weights of the network, and as much
    again for each of gradients and momentum, as `train --compute` asks of classes."""
    needed = 3 * 4 * MODELS[network].coordinates / 2**30
    for device in testbed.devices:
        if device.memory_gb < needed:
            raise UsageError(
                f"a {device.name} of the testbed has {device.memory_gb:g} GiB of memory, and "
                f"{network} with its gradients and momentum takes {needed:.2f}: leave these "
                "devices out, or give them more memory_gb"
            )


def add_speedups(cells: list[dict]) -> None:
    """Gives cells what the printed table calls Sp: by how many seconds an epoch is longer than
    on the next lower number of devices that there is a cell of, below 0 where it is shorter.
    None on the lowest."""
    times = {(c["network"], c["scheme"], c["devices"]): c["T"] for c in cells}
    for cell in cells:
        *key, devices = cell["network"], cell["scheme"], cell["devices"]
        fewer = [n for *other, n in times if other == key and n < devices]
        cell["Sp"] = cell["T"] - times[*key, max(fewer)] if fewer else None


def judged(result: dict) -> dict:
    """A result with the checks of its cells, and of each further reading that it has."""
    cells = result["cells"]
    readings = {
        name: {**result[name], "checks": claims_of([c[name] for c in cells])}
        for name in (STEP_COST, MORE_STEPS)
        if result[name]
    }
    return {**result, "checks": claims_of(cells), **readings}


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
