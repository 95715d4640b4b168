"""A testbed's description: which devices there are, and how they are joined."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path

KINDS = ("air", "links")


class TestbedError(Exception):
    """What stands in the way, in words for the user."""


@dataclasses.dataclass(frozen=True)
class Network:
    kind: str = "air"  # one medium for all, or "links", one for each device
    rate: str = "100mbit"
    delay: str = "0ms"
    jitter: str = "0ms"
    loss: str = "0%"
    overhead: str = "0us"  # of the air, for each frame beside its bytes
    crossings: int = 1  # of the air by a frame: 2 by way of an access point


@dataclasses.dataclass(frozen=True)
class Testbed:
    devices: tuple[str, ...]  # their classes, one for each device
    network: Network


def load(path: Path) -> Testbed:
    """Raises TestbedError, which names what is wrong with the file."""
    try:
        with open(path, "rb") as file:
            told = tomllib.load(file)
        classes = [(d["class"], d.get("count", 1)) for d in told["devices"]]
        network = Network(**told.get("network", {}))
        _refuse_unknown(told, {"devices", "network"})
        for device in told["devices"]:
            _refuse_unknown(device, {"class", "count"})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise TestbedError(f"{path}: {error}") from error
    except (KeyError, TypeError) as error:
        fields = ", ".join(field.name for field in dataclasses.fields(Network))
        raise TestbedError(
            f"{path}: {error}. A testbed has [[devices]] with class and count, and [network] "
            f"with {fields}"
        ) from error
    if network.kind not in KINDS:
        raise TestbedError(f"{path}: kind is {network.kind!r}; valid are: {', '.join(KINDS)}")
    for field in dataclasses.fields(Network):
        value = getattr(network, field.name)
        if type(value) is not type(field.default):
            raise TestbedError(
                f"{path}: {field.name} is {value!r}; it must be like {field.default!r}"
            )
    if any(type(count) is not int or count < 1 for _, count in classes):
        raise TestbedError(f"{path}: a count of devices is a whole number above 0")
    if not classes:
        raise TestbedError(f"{path}: there are no devices")
    return Testbed(tuple(name for name, count in classes for _ in range(count)), network)


def _refuse_unknown(told: dict, known: set[str]) -> None:
    """A word that nobody reads would be taken for one that counts."""
    if unknown := sorted(set(told) - known):
        raise KeyError(f"{unknown[0]} is not known")
