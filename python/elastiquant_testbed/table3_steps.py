"""Steps of table 3 on emulated devices, each of which is measured once and kept.

Gradients of the network are recorded, and each device waits as long as the scheme's printed
minutes say before it sends them; encoding, sending, waiting and decoding are real.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import statistics
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import emulation, outcomes, provenance, published
from elastiquant_testbed.say import say
from elastiquant_testbed.testbed import (
    CLASSES,
    SOURCES,
    TO_FIT,
    Device,
    Testbed,
    TestbedError,
    load,
    parse_rate,
)
from elastiquant_testbed.training import Choice, Sitting, tell_known

NAME = "table3"
STEP_SECONDS = 20.0
DEVICES = published.DEVICES
FIT = ("ResNet-34", "SGD", 7)
FIT_BEGINS = "850mbit"
ONE_BUCKET_KIB = 1 << 20
MEASURED_STEPS = 2
RECORDED_STEPS = 3
# A fit is over when transmission takes as long as wanted but for this part of it.
FIT_WITHIN, FIT_TRIES = 0.05, 4
MOST_CHANGE = 20  # of the rate, from one try to the next: a busy machine must not lead far away

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
        """Seconds of a step. With a number of devices that is not printed it is as with the
        next lower one that is."""
        of = max(printed for printed in DEVICES if printed <= devices)
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


def too_few() -> TestbedError:
    return TestbedError(
        "too few steps were measured for anything to be shown: run it again to go on, with "
        "more --minutes"
    )


def paces(testbed: Testbed, classes: dict[str, dict]) -> list[float]:
    """How many times as long as printed each device computes. The printed time is taken for the
    mean of the sources' boards."""
    if testbed.compute != CLASSES:
        return [1.0] * len(testbed.devices)

    def seconds(devices: tuple[Device, ...]) -> list[float]:
        """Of 10^9 operations."""
        return [1 / device.gflops for device in devices]

    of_sources = statistics.fmean(seconds(load(SOURCES).with_classes(classes).devices))
    return [one / of_sources for one in seconds(testbed.devices)]


class Steps:
    """Those of an experiment in the folder OUT, whose devices compute `paces` times as long as
    printed. What is measured is in OUT/table3.runs.jsonl at once; runs of the folder
    `choice.known` are not made again."""

    def __init__(self, testbed: Testbed, paces: list[float], out: Path, choice: Choice):
        self.testbed, self.paces = testbed, paces
        self.quick, self.sitting = choice.quick, Sitting(choice.minutes)
        self.obstacle = emulation.obstacle()  # to namespaces; empty if there is none
        self.trace = emulation.trace(testbed)
        self.network_digest = self._digest()
        self.scale_name = "quick" if choice.quick else "full"
        self.scratch = out / self.scale_name
        self.scratch.mkdir(parents=True, exist_ok=True)
        self.path = outcomes.path_of(NAME, out)
        known = self._known(choice.known) if choice.known else {}
        self.told = known | outcomes.read(self.path)
        fit = self._name("fit", *FIT)
        if fit in known and not _is_fitted(self.told[fit]):  # ours gives way to the known one
            self.told[fit] = known[fit]
        # Bits a second of the air or of links without a rate of their own, once it is known.
        self.rate = 0
        self.is_fitted = False  # whether transmission then takes as long as printed

    def _known(self, folder: Path) -> dict[str, dict]:
        """What was measured elsewhere. Raises TestbedError if none of it is of this testbed."""
        path = outcomes.path_of(NAME, folder)
        known = outcomes.read(path)
        names = [name.split("_") for name in known]
        useful = sum((n[0], n[-1]) == (self.scale_name, self.network_digest) for n in names)
        advice = "give --testbed and --quick as they were given for them"
        if self.obstacle:
            advice += f", and mind that there are no network namespaces: {self.obstacle}"
        tell_known(path, len(known), useful, advice)
        return known

    def _digest(self) -> str:
        """Is in names, so that each testbed that is emulated, and each way to do it, has its
        own. What a testbed does not have is left out of it, as are names of files."""
        network = dataclasses.asdict(self.testbed.network)
        del network["vary"]
        if self.is_to_fit:  # the rate that is found is in the names of steps
            network["rate"] = FIT_BEGINS
        described = [network, not self.obstacle]
        if set(self.paces) != {1.0}:
            described.append({"paces": self.paces})
        rates = [device.rate for device in self.testbed.devices]
        if any(rates):
            described.append({"rates": rates})
        if self.trace:
            described.append({"trace": self.trace})
        return hashlib.sha256(json.dumps(described).encode()).hexdigest()[:8]

    @property
    def is_to_fit(self) -> bool:
        """Whether the rate is to be found, and not said in the testbed's file."""
        return self.testbed.network.rate == TO_FIT

    def model(self, network: str) -> str:
        return QUICK_MODEL if self.quick else MODELS[network].name

    def scale(self, network: str) -> Scale:
        seconds = STEP_SECONDS * MODELS[network].gigaflops / MODELS["ResNet-34"].gigaflops
        if self.quick:
            seconds *= QUICK_COORDINATES / MODELS[network].coordinates
        return Scale(seconds)

    def settle_rate(self) -> None:
        """Takes the rate that the testbed's file says for all steps, or the one at which the
        fitted cell transmits as long as printed. Of a rate that varies it is the mean."""
        if self.is_to_fit:
            self._fit()
        elif self.trace:
            carried = sum(seconds * rate for seconds, rate in self.trace)
            self.rate = round(carried / sum(seconds for seconds, _ in self.trace))
        else:
            self.rate = parse_rate(self.testbed.network.rate)

    def _fit(self) -> None:
        """After FIT_TRIES the rate is the one that came closest, and is_fitted says whether it
        will do. If it does not, the next start tries again, with steps that are measured anew:
        the machine may have been busy. Raises TestbedError if the minutes of the user's choice
        are over before."""
        name = self._name("fit", *FIT)
        before = self.told.get(name)
        is_failed = before is not None and not _is_fitted(before)
        if before is None or (is_failed and not self.sitting.has_ended()):
            self._keep(name, self._fitted(anew=is_failed))
        found = self.told[name]
        self.rate = found["rate"]
        self.is_fitted = _is_fitted(found)
        if not self.is_fitted:
            say(
                f"the fit failed: SGD takes {found['seen']:.2f} s at {self.rate / 1e6:.0f} "
                f"Mbit/s, the closest rate that was tried, and not {found['wanted']:.2f}. This "
                "run goes on with it, and says so; the next start tries again"
            )

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
                f"{found['total']:.2f} s a step; {len(missing) - 1} more"
            )
        return []

    def has(self, step: Wanted) -> bool:
        return self._has(step, self.rate)

    def _has(self, step: Wanted, rate: int) -> bool:
        return self._name_of(step, rate) in self.told

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
        words = [self.scale_name, *parts, self.network_digest]
        return "_".join(str(word).replace(" ", "-") for word in words)

    def _keep(self, name: str, told: dict) -> dict:
        self.told[name] = {**told, "machine": provenance.machine()}
        # Another run may have added steps to the file.
        outcomes.add(self.path, self.told)
        return self.told[name]

    def _fitted(self, anew: bool) -> dict:
        """The rate that came closest, and the seconds that it takes."""
        steps = self.scale(FIT[0]).steps(FIT[0], FIT[2])
        wanted = 60 * published.TABLE_3[FIT].Tx / steps
        rate, seen = parse_rate(FIT_BEGINS), {}
        for _ in range(FIT_TRIES):
            seen[rate] = self._tried(rate, wanted, anew)
            if _fits(seen[rate], wanted):
                break
            change = seen[rate] / wanted
            rate = round(rate * min(MOST_CHANGE, max(1 / MOST_CHANGE, change)))
        closest = min(seen, key=lambda rate: abs(seen[rate] / wanted - 1))
        return {"rate": closest, "wanted": wanted, "seen": seen[closest]}

    def _tried(self, rate: int, wanted: float, anew: bool) -> float:
        """Seconds that the fitted cell transmits at a rate."""
        step = Wanted(*FIT)
        if (anew or not self._has(step, rate)) and self.sitting.has_ended():
            raise too_few()
        seen = _transmission(self._measured(step, rate, anew))
        say(f"fit: {rate / 1e6:.0f} Mbit/s take SGD {seen:.2f} s, wanted are {wanted:.2f}")
        return seen

    def _measured(self, step: Wanted, rate: int, anew: bool = False) -> dict:
        name = self._name_of(step, rate)
        if name in self.told and not anew:
            return self.told[name]
        model = self.model(step.network)
        gradients = emulation.record_gradients(model, RECORDED_STEPS, self.scratch / model)
        printed = self.scale(step.network).computing(*step[:3])
        each = [pace * printed for pace in self.paces[: step.devices]]
        one_for_all = len(set(each)) == 1
        times = ",".join(f"{seconds:.6f}s" for seconds in each[: 1 if one_for_all else None])
        options = ["--codec", SCHEMES[step.scheme], "--exchange", "all-gather"]
        options += ["--exact", "none"]
        options += [] if step.overlapped else ["--bucket-kib", ONE_BUCKET_KIB]
        run = self.scratch / "run"
        words = emulation.train_words(model, gradients, times, 1 + MEASURED_STEPS, run, options)
        found = emulation.measure(
            self.testbed, step.devices, words, rate, run, not self.obstacle
        )
        # A step is over once the slowest device has computed.
        return self._keep(name, {**found._asdict(), "computing": max(each)})


def _fits(seen: float, wanted: float) -> bool:
    return abs(seen / wanted - 1) <= FIT_WITHIN


def _is_fitted(found: dict) -> bool:
    return _fits(found["seen"], found["wanted"])


def _transmission(step: dict) -> float:
    return max(0.0, step["total"] - step["computing"] - step["encode"] - step["decode"])
