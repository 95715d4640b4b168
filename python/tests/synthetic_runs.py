"""Run folders as `elastiquant train` writes them, made from a formula."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path

COORDINATES = 272_474  # ResNet-20


def write_run(
    folder: Path,
    codec: str = "fp32",
    bits: float = 32.0,
    steps: int = 120,
    epochs: int = 4,
    compute: float = 0.11,
    link: str | None = "20mbit,10ms",
    workers: int = 4,
    accuracy: float = 88.0,
    seed: int = 1,
    algorithm: str = "allreduce",
) -> Path:
    """A run whose waiting is what `bits` a coordinate take at 20 Mbit/s (no link: nothing)."""
    folder.mkdir(parents=True, exist_ok=True)
    noise = random.Random(codec)
    bytes_up = int(2 * (workers - 1) / workers * COORDINATES * bits / 8)
    transmit = bytes_up * 8 / 20e6 if link else 0.0
    seconds = {
        "compute": compute,
        "encode": 0.0 if codec == "fp32" else 0.006,
        "transmit": transmit,
        "wait": max(0.004, transmit - 0.03),
        "decode": 0.002 if codec == "fp32" else 0.007,
    }
    seconds["total"] = seconds["compute"] + seconds["wait"]
    lines, history = [], []
    for step in range(1, steps + 1):
        at = step / steps
        loss = 0.35 + 1.95 * math.exp(-3.2 * at) + noise.gauss(0, 0.08)
        right = 10 + (accuracy + 4 - 10) * (1 - math.exp(-3.2 * at)) + noise.gauss(0, 2)
        epoch = (step - 1) * epochs // steps + 1
        line = {
            "step": step,
            "epoch": epoch,
            "loss": loss,
            "accuracy": right,
            "lr": 0.1,
            "seconds": seconds,
            "bytes_up": bytes_up,
            "bytes_down": bytes_up,
        }
        lines.append(json.dumps(line))
        if step == steps or step * epochs // steps + 1 > epoch:
            test = 10 + (accuracy - 10) * (1 - math.exp(-3.5 * at)) / (1 - math.exp(-3.5))
            history.append({"epoch": epoch, "train_loss": loss, "test_accuracy": test})
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    summary = {
        "model": "resnet20",
        "data": "generated",
        "codec": codec,
        "algorithm": algorithm,
        "world_size": workers,
        "batch": 16,
        "seed": seed,
        "link": link,
        "steps": steps,
        "steps_per_epoch": steps // epochs,
        "coordinates": COORDINATES,
        "train_loss": history[-1]["train_loss"],
        "test_accuracy": history[-1]["test_accuracy"],
        "bytes_up": bytes_up * steps,
        "bytes_down": bytes_up * steps,
        "bits_per_coordinate": bits,
        "seconds_per_step": seconds["total"],
        "seconds": {phase: value * steps for phase, value in seconds.items()},
        "replicas_identical": True,
        "epochs": history,
        "nmse": 0.0 if codec == "fp32" else 0.012,
        "command": f"elastiquant train --codec '{codec}' --workers {workers} --out {folder}",
        "versions": {"elastiquant": "0.1.0", "torch": "2.13.0"},
        "machine": {"processor": "a processor", "cores": 2},
    }
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def add_partition(folder: Path, spec: str, classes: list[list[int]]) -> Path:
    """Says in summary.json that each worker had so many samples of each class."""
    summary = json.loads((folder / "summary.json").read_text())
    volumes = [sum(counts) for counts in classes]
    summary["partition"] = {"spec": spec, "volumes": volumes, "classes": classes}
    (folder / "summary.json").write_text(json.dumps(summary))
    return folder


def add_decisions(folder: Path, kind: str, decide, policy: dict) -> Path:
    """Gives each step the decisions of all workers, which decide(step) returns."""
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"policy": policy}))
    steps = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    for step in steps:
        step["decisions"] = {kind: decide(step["step"])}
    (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, steps)) + "\n")
    return folder


def write_comparison(folder: Path, **options) -> list[Path]:
    """fp32, 8 bits, 4 bits and entropy-coded 4 bits."""
    spec = "elastic:bits={},levels=exp,p=auto,norm=linf,bucket=512{}"
    return [
        write_run(folder / "fp32", **options),
        write_run(folder / "elastic8", spec.format(8, ""), 8.07, **options),
        write_run(folder / "elastic4", spec.format(4, ""), 4.07, **options),
        write_run(folder / "elastic4-rans", spec.format(4, "|rans"), 2.3, **options),
    ]


def write_certificate(
    folder: Path, epochs: int = 2, bound: float | None = 0.5, bad: str = ""
) -> Path:
    """certificate.jsonl of three layers whose variance is .2, .1 and .04 times the bound, and
    twice it in the layer `bad`."""
    lines = []
    for epoch in range(1, epochs + 1):
        for layer, part in (("conv1", 0.2), ("layer1", 0.1001), ("fc", 0.04), ("", 0.2)):
            nmse = (bound or 1) * (2 if bad and layer == bad else part)
            loose = "loose" if part < 0.1 else "holds"
            verdict = "exceeded" if bad and layer == bad else loose if bound else "unbounded"
            line = {
                "step": 30 * epoch,
                "epoch": epoch,
                "layer": layer,
                "messages": 24,
                "coordinates": 24_000,
                "nmse": nmse,
                "spread": 0.01 * nmse,
                "bound": bound,
                "worst_case": bound and 0.8 * bound,
                "bits": 4.07,
                "bits_bound": 4.07,
                "verdict": verdict,
            }
            lines.append(json.dumps(line))
    (folder / "certificate.jsonl").write_text("\n".join(lines) + "\n")
    return folder
