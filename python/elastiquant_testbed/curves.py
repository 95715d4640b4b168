"""ElastiQuant's figures again: training loss, accuracy, time to accuracy, and variance.

The figures are not to be had, only their captions and what the text says of them. The variance
is that of the mean gradient over the workers at fixed weights, over estimates with fresh
batches and fresh rounding (`train --measure-variance`), as the public code has it that these
sources follow; it contains the noise of batches. Seconds are those that a step takes to
compute, and its bytes over a link of LINK, as these runs share two cores.
"""

from __future__ import annotations

import csv
import itertools
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
            of["bytes"] = [sent * step for step in of["steps"]]
        return self.result(claims(series), runs, series=series)

    def left_out(self) -> list[str]:
        return [
            f"18 devices: these are {WORKERS} workers",
            "ImageNet and ResNet-50 and -110: this is ResNet-20",
            f"epochs after number {self.epochs}",
            "a second seed: there is one seed of each scheme",
            "8-bit, E (whose values are those of 4-bit), SGD on one worker and DGC, which the "
            "printed figures have",
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


WITHIN = 1.0  # points, within which an accuracy is reached
OVERLAP = 0.5  # points, within which schemes overlap
BETTER = ("4-bit", "QSGD-V")  # than QSGD, as the sources have it


def claims(series: dict[str, dict]) -> list[Claim]:
    needed = ("FP-SGD", "QSGD", *BETTER)
    if not set(needed) <= set(series) or any(None in series[s]["loss"] for s in needed):
        return []  # of each they say something, and one that diverged has no loss

    def last(scheme: str, what: str) -> float:
        return series[scheme][what][-1]

    loss = [_change(last("4-bit", "loss"), last(s, "loss")) for s in ("QSGD", "QSGD-V")]
    gain = [last("4-bit", "accuracy") - last(s, "accuracy") for s in ("QSGD", "QSGD-V")]
    overlap = last("QSGD-V", "accuracy") - last("4-bit", "accuracy")
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
        _gap_that_grows(series),
        *(claim for scheme in BETTER for claim in _beats_qsgd(series, scheme)),
        Claim(
            f"QSGD-V ends within {OVERLAP:g} points of 4-bit",
            abs(overlap) <= OVERLAP,
            f"{last('QSGD-V', 'accuracy'):.2f} and {last('4-bit', 'accuracy'):.2f} %",
        ),
        Claim(
            "4-bit reaches FP-SGD's accuracy within a point, and QSGD does not",
            last("4-bit", "accuracy") >= last("FP-SGD", "accuracy") - WITHIN
            and last("QSGD", "accuracy") < last("FP-SGD", "accuracy") - WITHIN,
            f"FP-SGD {last('FP-SGD', 'accuracy'):.2f}, 4-bit {last('4-bit', 'accuracy'):.2f}, "
            f"QSGD {last('QSGD', 'accuracy'):.2f} %",
        ),
        *_sooner(series),
    ]


def _beats_qsgd(series: dict[str, dict], scheme: str) -> list[Claim]:
    """In the loss and the accuracy after the last epoch."""
    (loss, of_qsgd), (gained, by_qsgd) = (
        [series[name][what][-1] for name in (scheme, "QSGD")] for what in ("loss", "accuracy")
    )
    return [
        Claim(
            f"{scheme} has a lower training loss than QSGD",
            loss < of_qsgd,
            f"{loss:.4f} and {of_qsgd:.4f}",
        ),
        Claim(
            f"{scheme} is more accurate than QSGD",
            gained > by_qsgd,
            f"{gained:.2f} and {by_qsgd:.2f} %",
        ),
    ]


def _gap_that_grows(series: dict[str, dict]) -> Claim:
    """Between the losses of QSGD and 4 bits: after the first, the middle and the last epoch."""
    gaps = [a - b for a, b in zip(series["QSGD"]["loss"], series["4-bit"]["loss"], strict=True)]
    at = sorted({0, len(gaps) // 2 - 1, len(gaps) - 1} - {-1})
    told = [gaps[epoch] for epoch in at]
    return Claim(
        "QSGD's training loss is above 4-bit's by a gap that grows with the epochs",
        0 < told[0] < told[-1] and all(a < b for a, b in itertools.pairwise(told)),
        ", ".join(f"{gap:.3f}" for gap in told)
        + f" after epoch{'s' * (len(at) > 1)} {', '.join(str(epoch + 1) for epoch in at)}",
    )


def _sooner(series: dict[str, dict]) -> list[Claim]:
    target = series["FP-SGD"]["accuracy"][-1] - WITHIN
    ours, full = (seconds_to(series[s], target) for s in ("4-bit", "FP-SGD"))
    told = "never" if ours is None else f"{ours:,.0f} s"
    return [
        Claim(
            "4-bit reaches an accuracy a point below FP-SGD's last one sooner than FP-SGD",
            ours is not None and ours < full,
            f"{told} and {full:,.0f} s to {target:.2f} %, over {LINK / 1e6:.0f} Mbit/s",
        )
    ]


def seconds_to(of: dict, target: float) -> float | None:
    """Until the first epoch after which the accuracy is there. None if it never is."""
    pairs = zip(of["seconds"], of["accuracy"], strict=True)
    return next((seconds for seconds, accuracy in pairs if accuracy >= target), None)


def _claims_of_variance(series: dict[str, dict]) -> list[Claim]:
    """Of means over the steps at which all of these schemes have an estimate, as variances grow
    over a run, and estimates with a NaN or infinity are not told."""
    means = _mean_variances(series, ("QSGD", *BETTER))
    range_, less = "4-bit has 4 to 22 % less variance than QSGD", "has less variance than QSGD"
    if not means:
        told = "no step has a variance of all of them"
        return [Claim(range_, None, told), *(Claim(f"{s} {less}", None, told) for s in BETTER)]
    four, qsgdv = (_change(means[scheme], means["QSGD"]) for scheme in BETTER)
    beside = _change(means["4-bit"], means["QSGD-V"])
    return [
        Claim(range_, -22 <= four <= -4, f"{four:+.1f} %; against QSGD-V {beside:+.1f} %"),
        Claim(f"4-bit {less}", four < 0, f"{four:+.1f} %"),
        Claim(f"QSGD-V {less}", qsgdv < 0, f"{qsgdv:+.1f} %"),
    ]


def _mean_variances(series: dict[str, dict], schemes: tuple[str, ...]) -> dict[str, float]:
    """Over the steps that all of them have; empty if there is none."""
    at = {
        scheme: dict(
            zip(series[scheme]["variance_steps"], series[scheme]["variance"], strict=True)
        )
        for scheme in schemes
    }
    shared = set.intersection(*(set(of) for of in at.values()))
    if not shared:
        return {}
    return {scheme: statistics.fmean(of[step] for step in shared) for scheme, of in at.items()}


def _change(a: float, b: float) -> float:
    return 100 * (a / b - 1)


def _mean(values: list[float]) -> float | None:
    return statistics.fmean(values) if values else None


def targets(series: dict[str, dict]) -> list[float]:
    """Accuracies to which seconds are told: what all schemes reach, and a point below the last
    of full precision, if that is more."""
    all_reach = min(max(of["accuracy"]) for of in series.values())
    near_full = series.get("FP-SGD", {"accuracy": [0]})["accuracy"][-1] - WITHIN
    return sorted({all_reach, max(all_reach, near_full)})


def text(result: dict) -> str:
    def mean(values: list[float]) -> str:
        return f"{statistics.fmean(values):.3g}" if values else ""

    def seconds(value: float | None) -> str:
        return "" if value is None else f"{value:,.0f}"

    aims = targets(result["series"])
    rows = [
        [
            scheme,
            "" if of["loss"][-1] is None else f"{of['loss'][-1]:.4f}",
            f"{of['accuracy'][-1]:.2f}",
            mean(of["variance"]),
            mean(of["variance_exact"]),
            seconds(of["seconds"][-1]),
            *(seconds(seconds_to(of, aim)) for aim in aims),
        ]
        for scheme, of in result["series"].items()
    ]
    heads = ["scheme", "training loss", "accuracy %", "variance", "of batches alone", "seconds"]
    heads += [f"seconds to {aim:.2f} %" for aim in aims]
    return words.page(
        "The figures of ElastiQuant, rebuilt",
        "After the last epoch; variances are means over the run. Seconds are those of "
        f"computing and of sending over {LINK / 1e6:.0f} Mbit/s, until the end, and until the "
        "first epoch after which an accuracy is there.",
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
    write_csv(series, stem.with_suffix(".csv"))


def _point(series: dict[str, dict]) -> str:
    measured = {scheme: _mean(of["variance"]) for scheme, of in series.items()}
    mean = {scheme: value for scheme, value in measured.items() if value is not None}
    full = mean.pop("FP-SGD", None)
    if not (full and mean):
        return "Training loss, accuracy, time and variance"
    times = ", ".join(f"{scheme} {v / full:.2f}" for scheme, v in mean.items())
    return f"Variance of the mean gradient, in times that of full precision: {times}"


def write_csv(series: dict[str, dict], path: Path) -> None:
    """A line for each point of the figures: with the step, and the seconds and the bytes of a
    worker until then, over which it can be drawn."""
    with open(path, "w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["scheme", "what", "step", "seconds", "bytes", "value"])
        for scheme, of in series.items():
            seconds, sent = (of[name][0] / of["steps"][0] for name in ("seconds", "bytes"))
            for what, along in POINTS:
                for step, value in zip(of[along], of[what], strict=True):
                    if value is None:  # a loss that is not finite
                        continue
                    until = [f"{step * seconds:.1f}", f"{step * sent:.0f}"]
                    rows.writerow([scheme, what, step, *until, f"{value:.6g}"])


# What the table of points has, and the steps at which it was measured.
POINTS = (
    ("loss", "steps"),
    ("accuracy", "steps"),
    ("variance", "variance_steps"),
    ("variance_exact", "variance_steps"),
)
