"""Steps of table 3 on emulated devices, each of which is measured once and kept.

Gradients of the network are recorded, and each device waits as long as the scheme's printed
minutes say before it sends them; encoding, sending, waiting and decoding are real.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import emulation, outcomes, provenance, published
from elastiquant_testbed.say import say
from elastiquant_testbed.testbed import Network, Testbed, TestbedError
from elastiquant_testbed.training import Choice, Sitting

NAME = "table3"
STEP_SECONDS = 20.0
DEVICES = published.DEVICES
FIT = ("ResNet-34", "SGD", 7)
ONE_BUCKET_KIB = 1 << 20
MEASURED_STEPS = 2
RECORDED_STEPS = 3
# A fit is over when transmission takes as long as wanted but for this part of it.
FIT_WITHIN, FIT_TRIES = 0.05, 4

SCHEMES = {
    "SGD": "fp32",
    "8-bit": "elastiquant:bits=8",
    "4-bit": "elastiquant:bits=4",
    "E": "elastiquant:bits=4|elias",
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


class Wanted(NamedTuple):
    """A step to measure. Overlapped it sends while it computes, as a real run does; else it is
    one bucket that is sent after that."""

    network: str
    scheme: str
    devices: int
    overlapped: bool = False


class Steps:
    """Those of an experiment in the folder OUT. What is measured is in OUT/table3.runs.jsonl at
    once; runs of the folder `choice.known` are not made again."""

    def __init__(self, testbed: Testbed, out: Path, choice: Choice):
        self.air: Network = testbed.network
        self.quick, self.sitting = choice.quick, Sitting(choice.minutes)
        self.in_namespaces = emulation.has_namespaces()
        # In names, so that each network that is emulated, and each way to do it, has its own.
        described = json.dumps([dataclasses.asdict(self.air), self.in_namespaces])
        self.network_digest = hashlib.sha256(described.encode()).hexdigest()[:8]
        self.scratch = out / ("quick" if choice.quick else "full")
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.path = outcomes.path_of(NAME, out)
        self.told = outcomes.read(outcomes.path_of(NAME, choice.known)) if choice.known else {}
        self.told |= outcomes.read(self.path)
        self.rate = 0  # bits a second of the air, once fit() has found it
        self.is_fitted = False  # whether transmission then takes as long as printed

    def model(self, network: str) -> str:
        return QUICK_MODEL if self.quick else MODELS[network].name

    def scale(self, network: str) -> Scale:
        seconds = STEP_SECONDS * MODELS[network].gigaflops / MODELS["ResNet-34"].gigaflops
        if self.quick:
            seconds *= QUICK_COORDINATES / MODELS[network].coordinates
        return Scale(seconds)

    def fit(self) -> int:
        """Finds the rate at which the fitted cell transmits as long as printed, in bits a
        second, and takes it for all steps. After FIT_TRIES it is the last one that was tried,
        and is_fitted says whether it will do."""
        name = self._name("fit", *FIT)
        if name not in self.told:
            self._keep(name, self._fitted())
        found = self.told[name]
        self.rate = found["rate"]
        self.is_fitted = _fits(found["seen"], found["wanted"])
        return self.rate

    def make(self, wanted: list[Wanted]) -> list[Wanted]:
        """Measures what is not there, in this order, until the minutes of the user's choice
        are over, and returns what is missing still."""
        for count, step in enumerate(wanted):
            if self.has(step):
                continue
            missing = [step for step in wanted[count:] if not self.has(step)]
            if self.sitting.is_over(len(missing), "steps"):
                return missing
            found = self._measured(step, self.rate)
            way = "overlapped" if step.overlapped else "serial"
            say(
                f"{step.network}, {step.scheme}, {step.devices} devices, {way}: "
                f"{found['total']:.2f} s a step; {len(wanted) - count - 1} more"
            )
        return []

    def has(self, step: Wanted) -> bool:
        return self._name_of(step, self.rate) in self.told

    def of(self, step: Wanted) -> dict:
        """Fields of emulation.Step, the seconds of `computing`, and the machine."""
        return self.told[self._name_of(step, self.rate)]

    def transmission(self, step: Wanted) -> float:
        """Seconds of a step that neither compute, encode nor decode."""
        return _transmission(self.of(step))

    def _name_of(self, step: Wanted, rate: int) -> str:
        # By codec, so that a scheme that is read in another way is measured again.
        way = "overlapped" if step.overlapped else "serial"
        return self._name(step.network, SCHEMES[step.scheme], step.devices, rate, way)

    def _name(self, *parts: object) -> str:
        words = ["quick" if self.quick else "full", *parts, self.network_digest]
        return "_".join(str(word).replace(" ", "-") for word in words)

    def _keep(self, name: str, told: dict) -> dict:
        self.told[name] = {**told, "machine": provenance.machine()}
        outcomes.write(self.path, self.told)
        return self.told[name]

    def _fitted(self) -> dict:
        steps = self.scale(FIT[0]).steps(FIT[0], FIT[2])
        wanted = 60 * published.TABLE_3[FIT].Tx / steps
        rate = parse_rate(self.air.rate)
        seen = self._tried(rate, wanted)
        for _ in range(FIT_TRIES - 1):
            if _fits(seen, wanted):
                break
            rate = round(rate * seen / wanted)
            seen = self._tried(rate, wanted)
        return {"rate": rate, "wanted": wanted, "seen": seen}

    def _tried(self, rate: int, wanted: float) -> float:
        """Seconds that the fitted cell transmits at a rate."""
        seen = _transmission(self._measured(Wanted(*FIT), rate))
        say(f"fit: {rate / 1e6:.0f} Mbit/s take SGD {seen:.2f} s, wanted are {wanted:.2f}")
        return seen

    def _measured(self, step: Wanted, rate: int) -> dict:
        name = self._name_of(step, rate)
        if name in self.told:
            return self.told[name]
        model = self.model(step.network)
        gradients = emulation.record_gradients(model, RECORDED_STEPS, self.scratch / model)
        computing = self.scale(step.network).computing(*step[:3])
        options = ["--codec", SCHEMES[step.scheme], "--exchange", "all-gather"]
        options += ["--exact", "none"]
        options += [] if step.overlapped else ["--bucket-kib", ONE_BUCKET_KIB]
        run = self.scratch / "run"
        words = emulation.train_words(
            model, gradients, f"{computing:.6f}s", 1 + MEASURED_STEPS, run, options
        )
        found = emulation.measure(self.air, step.devices, words, rate, run, self.in_namespaces)
        return self._keep(name, {**found._asdict(), "computing": computing})


def _fits(seen: float, wanted: float) -> bool:
    return abs(seen / wanted - 1) <= FIT_WITHIN


def _transmission(step: dict) -> float:
    return max(0.0, step["total"] - step["computing"] - step["encode"] - step["decode"])


def parse_rate(text: str) -> int:
    units = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9}
    for unit, bits in units.items():
        if text.endswith(unit):
            return round(float(text.removesuffix(unit)) * bits)
    raise TestbedError(f"{text!r} is not a rate such as 20mbit")
