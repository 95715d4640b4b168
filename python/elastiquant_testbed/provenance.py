"""How and where a result was made, so that it can be made again."""

from __future__ import annotations

import os
import platform
import shlex
from pathlib import Path

from elastiquant_testbed import precisions, testbed

OUT = "runs/testbed"
NAMESPACES = "namespaces"  # a result's network, if it was made with root
CPUS = Path("/proc/cpuinfo")


def of(name: str, result: dict) -> dict[str, str]:
    machines = result.get("machines") or [machine()]
    return {"command": command(name, result), "machine": "; ".join(machines)}


def command(name: str, result: dict) -> str:
    """Names no folder of this machine."""
    words = ["sudo"] if result.get("network") == NAMESPACES else []
    words += ["elastiquant testbed run", name]
    words += ["--quick"] if result["quick"] else []
    words += [] if result.get("data", "generated") == "generated" else ["--data CIFAR"]
    precision = result.get("precision", precisions.FP32)
    words += [] if precision == precisions.FP32 else [f"--precision {precision}"]
    device = result.get("device", "cpu")
    words += [] if device == "cpu" else [f"--device {device}"]
    if not testbed.is_of_sources(result):
        words.append(f"--testbed {shlex.quote(result['testbed']['file'])}")
    return " ".join([*words, "--out", OUT])


def machine() -> str:
    lines = CPUS.read_text().splitlines() if CPUS.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    processor = models[0] if models else platform.machine()
    return f"{processor}, {os.cpu_count()} cores"
