"""Runs `elastiquant train --compute` on as many emulated devices as wanted."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from elastiquant_testbed.testbed import (
    Testbed,
    TestbedError,
    UsageError,
    parse_delay,
    parse_loss,
)

ROOT = Path(__file__).resolve().parent.parent.parent
LAB = ROOT / "lab"


class Step(NamedTuple):
    """Seconds of a step, means over the measured steps of worker 0."""

    total: float
    encode: float
    decode: float
    bytes_up: float
    nmse: float | None  # of a worker's frames; None of those that lose nothing


def program() -> Path:
    """The `elastiquant` that started us, or that of this source tree."""
    given = os.environ.get("ELASTIQUANT_PROGRAM")
    return Path(given) if given else ROOT / "build/release/bin/elastiquant"


def classes() -> dict[str, dict]:
    """What is known of each class of devices, by its name."""
    return json.loads(run([program(), "devices", "--json"]))


def lab(name: str) -> ModuleType | None:
    """A module of the lab, or None where there is no lab."""
    if not LAB.exists():
        return None
    if str(LAB) not in sys.path:
        sys.path.append(str(LAB))
    return importlib.import_module(name)


def obstacle() -> str:
    """What stands in the way of network namespaces, in words; empty if nothing does. Some are
    made, as in a container not even root may be allowed to."""
    namespaces = lab("namespaces")
    if namespaces is None:
        return "the folder lab of the source tree is not there"
    try:
        with namespaces.Network(1, delay=1):
            return ""
    except namespaces.LabError as error:
        return str(error)


def trace(testbed: Testbed) -> list[tuple[float, float]]:
    """Seconds and bits a second of a network whose rate varies; of any other it is empty."""
    if not testbed.network.vary:
        return []
    varying = lab("varying")
    if varying is None:
        raise TestbedError("vary of the testbed's network needs the folder lab of the sources")
    try:
        return varying.parse(testbed.network.vary, testbed.path.parent)
    except lab("namespaces").LabError as error:
        raise UsageError(f"vary of the testbed's network: {error}") from error


def run(words: list[object]) -> str:
    """Returns what a command prints. Raises TestbedError with what it says when it fails."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise TestbedError(done.stderr.strip() or f"`{words[0]}` failed")
    return done.stdout


def _train(model: str, steps: int, out: Path, *more: object) -> list[str]:
    """The command of a run that is made for its gradients or its time."""
    words = [program(), "train", "--model", model, "--generated-train", 64]
    words += ["--generated-test", 8, "--eval-every", 0, "--steps", steps, *more]
    return [str(word) for word in [*words, "--out", out, "--overwrite", "--quiet"]]


def record_gradients(model: str, steps: int, out: Path) -> Path:
    """Trains `steps` steps and returns the folder with their gradients."""
    folder = out / "gradients"
    if not (folder / f"gradient-{steps:06}.npy").exists():
        all_steps = ",".join(str(step + 1) for step in range(steps))
        options = ["--batch", 8, "--measure-every", 0, "--dump-gradients", all_steps]
        run(_train(model, steps, out, *options))
    return folder


def train_words(
    model: str, gradients: Path, compute: str, steps: int, out: Path, options: list[object]
) -> list[str]:
    words = ["--compute", compute, "--replay", gradients, "--timeout", 120]
    # The error is measured in the first step, whose time does not count.
    words += ["--measure-every", 1000, "--stall-timeout", 0, "--threads", 1]
    return _train(model, steps, out, *words, *options)


def over_air(testbed: Testbed, devices: int, command: list[str], rate: int) -> None:
    """In a namespace for each device; the rate is that of all which have none of their own."""
    namespaces, network = lab("namespaces"), testbed.network
    changes = trace(testbed)
    fastest = round(max(rate for _, rate in changes)) if changes else rate
    air, rates = None, None
    if network.kind == "air":
        air = namespaces.Air(fastest, parse_delay(network.overhead), network.crossings)
    else:
        rates = fastest if changes else testbed.rates(devices, rate)
    delay, jitter = parse_delay(network.delay), parse_delay(network.jitter)
    loss = parse_loss(network.loss)
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.txt" if changes else None
            if path:
                lab("varying").write(changes, path)
            with namespaces.Network(devices, rates, delay, jitter, loss, air, path) as joined:
                joined.run(command, quiet=True)
    except namespaces.LabError as error:
        raise TestbedError(str(error)) from error


def over_paced_links(testbed: Testbed, devices: int, command: list[str], rate: int) -> None:
    """Without namespaces: each process paces what it sends, and lacks what `dropped` says."""
    network = testbed.network
    each = rate / devices if network.kind == "air" else min(testbed.rates(devices, rate))
    link = f"{each / 1000:.3f}kbit,{network.delay}"
    run([*command, "--workers", devices, "--link", link])


def dropped(testbed: Testbed) -> list[str]:
    """What the network has of which over_paced_links does nothing, in words."""
    network, rates = testbed.network, {device.rate for device in testbed.devices}
    found = {
        "one air for all (each device has its part of the rate, and none waits until the air "
        "is free)": network.kind == "air",
        f"{network.jitter} of jitter": parse_delay(network.jitter) > 0,
        f"{network.loss} of loss": parse_loss(network.loss) > 0,
        f"{network.overhead} of overhead for each frame": parse_delay(network.overhead) > 0,
        "the second crossing of the air by each frame": network.crossings > 1,
        "the rate that varies (it is always its mean)": bool(network.vary),
        "a rate for each device (all have the lowest)": len(rates) > 1,
    }
    return [words for words, holds in found.items() if holds]


def measure(
    testbed: Testbed,
    devices: int,
    command: list[str],
    rate: int,
    out: Path,
    in_namespaces: bool,
) -> Step:
    """The means over all steps but the first, in which connections begin slowly."""
    (over_air if in_namespaces else over_paced_links)(testbed, devices, command, rate)
    lines = (out / "metrics.jsonl").read_text().splitlines()
    first, *steps = [json.loads(line) for line in lines]
    if not steps:
        raise TestbedError(f"{out} has no steps to measure")

    def mean(of) -> float:
        return sum(of(step) for step in steps) / len(steps)

    shutil.rmtree(out)
    return Step(
        mean(lambda s: s["seconds"]["total"]),
        mean(lambda s: s["seconds"]["encode"]),
        mean(lambda s: s["seconds"]["decode"]),
        mean(lambda s: s["bytes_up"]),
        first.get("nmse"),
    )
