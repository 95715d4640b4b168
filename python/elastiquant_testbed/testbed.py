"""A testbed's description: which devices there are, and how they are joined."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import tomllib
from pathlib import Path

from elastiquant_testbed import published, units

SOURCES = Path(__file__).resolve().parent / "sources.toml"
KINDS = ("air", "links")
# How long devices compute: as the sources print it, or by the speed of each.
PRINTED, CLASSES = "printed", "classes"
TO_FIT = "fit"  # in place of a rate
FITTED_ON = published.DEVICES[-1]  # devices, of the one printed cell that tells the rate
MOST_DEVICES = 64  # that lab/namespaces.py joins


class TestbedError(Exception):
    """What stands in the way, in words for the user."""


class UsageError(TestbedError):
    """A given option or file is wrong, missing or not supported here."""


@dataclasses.dataclass(frozen=True)
class Device:
    """What the file does not say of a device itself is that of its class."""

    name: str  # of the class
    gflops: float | None = None
    memory_gb: float | None = None
    radio_watts: float | None = None
    rate: str = ""  # of its link, where there are links; else that of the network

    def of_class(self, classes: dict[str, dict]) -> Device:
        """The same device, with what its class says. Raises TestbedError if that is needed and
        the class is not known."""
        lacks = [name for name in OF_CLASS if getattr(self, name) is None]
        if lacks and self.name not in classes:
            raise UsageError(
                f"class {self.name!r} is not known; valid are: {', '.join(classes)}. Devices "
                f"of another class need {', '.join(lacks)}, too"
            )
        return dataclasses.replace(self, **{name: classes[self.name][name] for name in lacks})


OF_CLASS = ("gflops", "memory_gb", "radio_watts")  # as `elastiquant devices --json` names them


@dataclasses.dataclass(frozen=True)
class Network:
    kind: str = "air"  # one medium for all, or "links", one for each device
    rate: str = "100mbit"  # or "fit"
    delay: str = "0ms"
    jitter: str = "0ms"
    loss: str = "0%"
    overhead: str = "0us"  # of the air, for each frame beside its bytes
    crossings: int = 1  # of the air by a frame: 2 by way of an access point
    vary: str = ""  # how the rate changes over time (lab/varying.py), in place of one rate


@dataclasses.dataclass(frozen=True)
class Testbed:
    devices: tuple[Device, ...]
    network: Network
    compute: str = CLASSES
    path: Path = Path()  # of the file, beside which a trace of rates lies

    def with_classes(self, classes: dict[str, dict]) -> Testbed:
        """The same, with what classes say of devices filled in."""
        devices = tuple(device.of_class(classes) for device in self.devices)
        return dataclasses.replace(self, devices=devices)

    def rates(self, devices: int, rate: int) -> list[int]:
        """Of the first devices, in bits a second. Those that the file gives none have `rate`,
        as all have on shared air."""
        own = (device.rate for device in self.devices[:devices])
        return [parse_rate(text) if text else rate for text in own]

    def described(self) -> dict:
        """As results tell it: what the file says."""
        devices = []
        for device, alike in itertools.groupby(self.devices):
            told = dataclasses.asdict(device)
            told = {"class": told.pop("name"), "count": len(list(alike)), **told}
            devices.append(
                {key: value for key, value in told.items() if value not in (None, "")}
            )
        network = dataclasses.asdict(self.network)
        del network["rate" if self.network.vary else "vary"]
        return {
            "file": self.path.name,
            "compute": self.compute,
            "devices": devices,
            "network": network,
        }


def is_of_sources(result: dict) -> bool:
    """Whether a result is of the sources' testbed, as all are that name none."""
    if "testbed" not in result:
        return True
    here, there = result["testbed"], load(SOURCES).described()
    return {**here, "file": ""} == {**there, "file": ""}


def load(path: Path) -> Testbed:
    """Raises TestbedError, which names what is wrong with the file."""
    try:
        with open(path, "rb") as file:
            return _read(tomllib.load(file), path)
    except (OSError, ValueError, TestbedError) as error:  # numbers may be too long for Python
        raise UsageError(f"{path}: {error}") from error


def _read(told: dict, path: Path) -> Testbed:
    devices, network = told.get("devices"), told.get("network", {})
    tables = isinstance(devices, list) and all(isinstance(of, dict) for of in devices)
    if not tables or not isinstance(network, dict):
        raise UsageError("a testbed has [[devices]], and [network]")
    _refuse_unknown(told, {"devices", "network", "compute"}, "a testbed")
    compute = told.get("compute", CLASSES)
    _one_of(compute, (PRINTED, CLASSES), "compute")
    each = tuple(device for table in devices for device in _devices(table))
    made = Testbed(each, _network(network), compute, path)
    if not 2 <= len(made.devices) <= MOST_DEVICES:
        raise UsageError(
            f"there are {len(made.devices) or 'no'} devices; it takes 2 to {MOST_DEVICES}"
        )
    _refuse_contradictions(made, "rate" in network)
    return made


def _devices(told: dict) -> list[Device]:
    """As many as a table of the file describes."""
    _refuse_unknown(told, {"class", "count", "rate", *OF_CLASS}, "[[devices]]")
    if "class" not in told:
        raise UsageError("each of [[devices]] needs a class")
    count = told.get("count", 1)
    if type(count) is not int or count < 1:
        raise UsageError("a count of devices is a whole number above 0")
    if count > MOST_DEVICES:
        raise UsageError(f"there are {count} devices; it takes 2 to {MOST_DEVICES}")
    own = {name: _number(told[name], name) for name in OF_CLASS if name in told}
    rate = _text(told.get("rate", ""), "rate of a device", "20mbit")
    if "rate" in told:
        parse_rate(rate)
    return count * [Device(_text(told["class"], "class", "coral"), **own, rate=rate)]


def _network(told: dict) -> Network:
    fields = dataclasses.fields(Network)
    _refuse_unknown(told, {field.name for field in fields}, "[network]")
    for field in fields:
        value = told.get(field.name, field.default)
        is_empty = field.name in told and value == field.default == ""
        if type(value) is not type(field.default) or is_empty:
            like = repr(field.default or "20mbit@10s,5mbit@5s")
            raise UsageError(f"{field.name} is {value!r}; it must be like {like}")
    network = Network(**told)
    _one_of(network.kind, KINDS, "kind")
    _one_of(network.crossings, (1, 2), "crossings")
    if network.rate != TO_FIT:
        parse_rate(network.rate)
    for name in ("delay", "jitter", "overhead"):
        parse_delay(getattr(network, name), name)
    parse_loss(network.loss)
    return network


def _refuse_contradictions(made: Testbed, has_rate: bool) -> None:
    """What would have no effect beside something else in the file is taken for a mistake."""
    network = made.network
    own_rates = any(device.rate for device in made.devices)
    if own_rates and network.kind == "air":
        raise UsageError('a device has a rate of its own only where kind = "links"')
    if network.kind == "links" and (network.crossings > 1 or parse_delay(network.overhead)):
        raise UsageError('overhead and crossings are of kind = "air": leave them out')
    if has_rate and all(device.rate for device in made.devices):
        raise UsageError("each device has a rate of its own: leave out that of [network]")
    if network.vary and has_rate:
        raise UsageError("give rate or vary, not both: vary tells all rates")
    if network.vary and own_rates:
        raise UsageError("where the rate varies it is one for all: leave out that of devices")
    if network.rate == TO_FIT and own_rates:
        raise UsageError('rate = "fit" finds one for all: leave out that of devices')
    if network.rate == TO_FIT and len(made.devices) < FITTED_ON:
        raise UsageError(
            f'rate = "fit" takes {FITTED_ON} devices, of which the rate is known how long it '
            f"has to take, and there are {len(made.devices)}: give a rate such as 20mbit"
        )


def _refuse_unknown(told: dict, known: set[str], where: str) -> None:
    """A word that nobody reads would be taken for one that counts."""
    if unknown := sorted(set(told) - known):
        raise UsageError(
            f"{unknown[0]} is not known; {where} may have: {', '.join(sorted(known))}"
        )


def _one_of(value: object, valid: tuple[object, ...], name: str) -> None:
    if value not in valid:
        raise UsageError(f"{name} is {value!r}; valid are: {', '.join(map(str, valid))}")


def _text(value: object, name: str, like: str) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is {value!r}; it must be like {like!r}")
    return value


def _number(value: object, name: str) -> float:
    """A device may have no radio, but neither no speed nor no memory."""
    number = math.nan
    if type(value) in (int, float):
        with contextlib.suppress(OverflowError):  # of a whole number beyond all floats
            number = float(value)
    may_be_zero = name == "radio_watts"
    if not math.isfinite(number) or number < 0 or (number == 0 and not may_be_zero):
        wanted = "of 0 or more" if may_be_zero else "above 0"
        raise UsageError(f"{name} is {value!r}; it must be a number {wanted}")
    return number


def parse_rate(text: str) -> int:
    """Bits a second of a rate such as "20mbit"."""
    if (rate := units.rate(text)) is None:
        raise UsageError(f"rate: {text!r} is not a rate such as 20mbit or 1gbit")
    return rate


def parse_delay(text: str, name: str = "delay") -> int:
    """Microseconds of a delay such as "10ms"."""
    if (delay := units.delay(text)) is None:
        raise UsageError(f"{name}: {text!r} is not {units.DELAYS}")
    return delay


def parse_loss(text: str) -> float:
    """The part that "1%" is."""
    if (loss := units.loss(text)) is None:
        raise UsageError(f"loss: {text!r} is not {units.LOSSES}")
    return loss
