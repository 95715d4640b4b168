"""Runs `elastiquant train --compute` on as many emulated devices as wanted."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed.testbed import Network, TestbedError

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


def radio_watts(classes: Sequence[str]) -> list[float]:
    """Of each device, while it sends. Raises TestbedError for a class that is not known."""
    known = json.loads(run([program(), "devices", "--json"]))
    if unknown := sorted(set(classes) - set(known)):
        raise TestbedError(f"class {unknown[0]!r} is not known; valid are: {', '.join(known)}")
    return [known[name]["radio_watts"] for name in classes]


def namespaces():
    """The lab's module for networks of namespaces, or None where there is none."""
    if not LAB.exists():
        return None
    if str(LAB) not in sys.path:
        sys.path.append(str(LAB))
    import namespaces as module

    return module


def has_namespaces() -> bool:
    module = namespaces()
    if module is None or not module.SWITCH.exists():
        return False
    try:
        module.require_privileges()
    except module.LabError:
        return False
    return True


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


def over_air(network: Network, devices: int, command: list[str], rate: int) -> None:
    lab = namespaces()
    delay = _field(network, "delay", lab.parse_delay)
    jitter = _field(network, "jitter", lab.parse_delay)
    overhead = _field(network, "overhead", lab.parse_delay)
    loss = _field(network, "loss", lab.parse_loss)
    air = lab.Air(rate, overhead, network.crossings) if network.kind == "air" else None
    rates = None if air else rate
    try:
        with lab.Network(devices, rates, delay, jitter, loss, air) as joined:
            joined.run(command, quiet=True)
    except lab.LabError as error:
        raise TestbedError(str(error)) from error


def _field(network: Network, name: str, parse: Callable[[str], float]) -> float:
    """A field of a testbed's file, as the lab reads it."""
    try:
        return parse(getattr(network, name))
    except argparse.ArgumentTypeError as error:
        raise TestbedError(f"{name} of the testbed's network: {error}") from error


def over_paced_links(network: Network, devices: int, command: list[str], rate: int) -> None:
    """Without privileges: each process paces what it sends by its part of the air."""
    each = rate // devices if network.kind == "air" else rate
    link = f"{each / 1000:.3f}kbit,{network.delay}"
    run([*command, "--workers", devices, "--link", link])


def measure(
    network: Network, devices: int, command: list[str], rate: int, out: Path, in_air: bool
) -> Step:
    """The means over all steps but the first, in which connections begin slowly."""
    (over_air if in_air else over_paced_links)(network, devices, command, rate)
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
