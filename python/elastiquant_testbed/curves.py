"""ElastiQuant's figures again: training loss, accuracy, time to accuracy, and variance.

The figures are not to be had, only their captions and what the text says of them. The variance
is that of the mean gradient over the workers at fixed weights, over estimates with fresh
batches and fresh rounding (`train --measure-variance`), as the public code has it that these
sources follow; it contains the noise of batches. Seconds are those that a step takes to
compute, and its bytes over a link of LINK, as these runs share two cores.
"""

from __future__ import annotations

import csv
import statistics
from pathlib import Path

from elastiquant_testbed import words
from elastiquant_testbed.checks import Claim
from elastiquant_testbed.table4 import GLOBAL_BATCH, PUBLISHED
from elastiquant_testbed.testbed import Testbed
from elastiquant_testbed.training import Choice, Experiment, Outcome, Run, options

WORKERS = 4
LINK = 20e6  # bits a second
SCHEMES = {
    "FP-SGD": {"codec": "fp32"},
    "QSGD": {"codec": "qsgd:bits=4,bucket=8192", **PUBLISHED},
    "QSGD-V": {"codec": "qsgdv:bits=4,bucket=8192", **PUBLISHED},
    "4-bit": {"codec": "elastiquant:bits=4", **PUBLISHED},
    "TernGrad": {"codec": "terngrad"},
    "dither 1": {"codec": "dither:bits=1"},
}


class Curves(Experiment):
    name = "curves"

    def __init__(self, testbed: Testbed | None, out: Path, choice: Choice):
        super().__init__(testbed, out, choice)
        self.epochs = 2 if self.quick else 12

    def one(self, scheme: str) -> Run:
        named = {"model": "resnet20", "workers": WORKERS, "lr": 0.1}
        named |= self.chosen(2560, 1000)
        named |= {"batch": GLOBAL_BATCH // WORKERS, "epochs": self.epochs, "eval-every": 1}
        named |= {"measure-every": 0, "measure-variance": 10 if self.quick else 500}
        return Run(scheme, options(**(named | SCHEMES[scheme])))

    def run(self) -> dict:
        wanted = {scheme: self.one(scheme) for scheme in SCHEMES}
        runs = self.make(list(wanted.values()))
        outcomes = {scheme: runs.outcome(r) for scheme, r in wanted.items() if runs.has(r)}
        series = {scheme: series_of(outcome) for scheme, outcome in outcomes.items()}
        # Processes share two cores, so that what all of them took to compute is noise.
        computing = min(
            (o.summary["seconds"]["compute"] / o.summary["steps"] for o in outcomes.values()),
            default=0,
        )
        for scheme, of in series.items():
            sent = outcomes[scheme].summary["bytes_up"] / outcomes[scheme].summary["steps"]
            seconds = computing + 8 * sent / LINK
            of["seconds"] = [seconds * step for step in of["steps"]]
        return self.result(claims(series), runs, series=series)

    def left_out(self) -> list[str]:
        return [
            f"18 devices: these are {WORKERS} workers",
            "ImageNet and ResNet-50 and -110: this is ResNet-20",
            f"epochs after number {self.epochs}",
        ]


def series_of(outcome: Outcome) -> dict[str, list[float]]:
    """By epoch: steps so far, mean loss of training, accuracy; and the variances, by step."""
    summary = outcome.summary
    epochs = summary["epochs"]
    measured = [line for line in outcome.steps if "variance" in line]
    return {
        "steps": [summary["steps_per_epoch"] * (e + 1) for e in range(len(epochs))],
        "loss": [epoch["train_loss"] for epoch in epochs],
        "accuracy": [epoch["test_accuracy"] for epoch in epochs],
        "variance_steps": [line["step"] for line in measured],
        "variance": [line["variance"]["compressed"] for line in measured],
        "variance_exact": [line["variance"]["exact"] for line in measured],
    }


def claims(series: dict[str, dict]) -> list[Claim]:
    if not {"FP-SGD", "QSGD", "QSGD-V", "4-bit"} <= set(series):
        return []  # of each they say something

    def last(scheme: str, what: str) -> float:
        return series[scheme][what][-1]

    loss = [_change(last("4-bit", "loss"), last(s, "loss")) for s in ("QSGD", "QSGD-V")]
    gain = [last("4-bit", "accuracy") - last(s, "accuracy") for s in ("QSGD", "QSGD-V")]
    return [
        Claim(
            "4-bit has a training loss 2 to 11 % below QSGD's",
            -11 <= loss[0] <= -2,
            f"{loss[0]:+.1f} %; against QSGD-V {loss[1]:+.1f} %",
        ),
        Claim(
            "4-bit is 1 to 4 points more accurate than QSGD",
            1 <= gain[0] <= 4,
            f"{gain[0]:+.2f} points; against QSGD-V {gain[1]:+.2f}",
        ),
        *_claims_of_variance(series),
        Claim(
            "4-bit reaches FP-SGD's accuracy within a point, and QSGD does not",
            last("4-bit", "accuracy") >= last("FP-SGD", "accuracy") - 1
            and last("QSGD", "accuracy") < last("FP-SGD", "accuracy") - 1,
            f"FP-SGD {last('FP-SGD', 'accuracy'):.2f}, 4-bit {last('4-bit', 'accuracy'):.2f}, "
            f"QSGD {last('QSGD', 'accuracy'):.2f} %",
        ),
    ]


def _claims_of_variance(series: dict[str, dict]) -> list[Claim]:
    """None, if one of the schemes has no variance: estimates with a NaN or infinity are not
    told."""
    means = [_mean(series[scheme]["variance"]) for scheme in ("4-bit", "QSGD", "QSGD-V")]
    if None in means:
        return []
    noise = [_change(means[0], rival) for rival in means[1:]]
    return [
        Claim(
            "4-bit has 4 to 22 % less variance than QSGD",
            -22 <= noise[0] <= -4,
            f"{noise[0]:+.1f} %; against QSGD-V {noise[1]:+.1f} %",
        )
    ]


def _change(a: float, b: float) -> float:
    return 100 * (a / b - 1)


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def text(result: dict) -> str:
    def mean(values: list[float]) -> str:
        return f"{statistics.fmean(values):.3g}" if values else ""

    rows = [
        [
            scheme,
            f"{of['loss'][-1]:.4f}",
            f"{of['accuracy'][-1]:.2f}",
            mean(of["variance"]),
            mean(of["variance_exact"]),
            f"{of['seconds'][-1]:,.0f}",
        ]
        for scheme, of in result["series"].items()
    ]
    heads = ["scheme", "training loss", "accuracy %", "variance", "of batches alone", "seconds"]
    return words.page(
        "The figures of ElastiQuant, rebuilt",
        "After the last epoch; variances are means over the run.",
        words.table(heads, rows),
        result,
    )


PANELS = (
    ("loss", "steps", "steps", "training loss"),
    ("accuracy", "steps", "steps", "test accuracy, %"),
    ("accuracy", "seconds", "seconds, computed", "test accuracy, %"),
    ("variance", "variance_steps", "steps", "variance of the mean gradient"),
)


def draw(result: dict, stem: Path) -> None:
    import elastiquant_plot as look

    series = result["series"]
    with look.style():
        fig, panels = look.figure(
            _point(series),
            f"ResNet-20 on {WORKERS} workers. Seconds: computing, and bytes over "
            f"{LINK / 1e6:.0f} Mbit/s. Variance: at fixed weights, with the noise of batches, "
            "which FP-SGD has alone.",
            columns=len(PANELS),
            width=14,
            height=4.4,
        )
        colours = look.colours(len(series), baseline=0)
        for axes, (what, along, x, y) in zip(panels, PANELS, strict=True):
            for (scheme, of), colour in zip(series.items(), colours, strict=True):
                axes.plot(of[along], of[what], color=colour, marker="o", ms=3, label=scheme)
            axes.set_xlabel(x)
            axes.set_title(y)
        panels[3].set_yscale("log")
        panels[0].legend(frameon=False, fontsize=8)
        look.layout(fig, spacing=0.3)
        look.save(fig, stem)
    _write_csv(series, stem.with_suffix(".csv"))


def _point(series: dict[str, dict]) -> str:
    measured = {scheme: _mean(of["variance"]) for scheme, of in series.items()}
    mean = {scheme: value for scheme, value in measured.items() if value is not None}
    full = mean.pop("FP-SGD", None)
    if not (full and mean):
        return "Training loss, accuracy, time and variance"
    times = ", ".join(f"{scheme} {v / full:.2f}" for scheme, v in mean.items())
    return f"Variance of the mean gradient, in times that of full precision: {times}"


def _write_csv(series: dict[str, dict], path: Path) -> None:
    with open(path, "w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["scheme", "what", "step", "value"])
        for scheme, of in series.items():
            for what in ("loss", "accuracy"):
                rows.writerows(
                    [scheme, what, s, v] for s, v in zip(of["steps"], of[what], strict=True)
                )
            for what in ("variance", "variance_exact"):
                pairs = zip(of["variance_steps"], of[what], strict=True)
                rows.writerows([scheme, what, s, v] for s, v in pairs)
