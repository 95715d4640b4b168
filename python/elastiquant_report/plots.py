"""The plots of a report: time.*, bytes.*, seconds.*."""

from __future__ import annotations

import math
from itertools import cycle
from pathlib import Path

import elastiquant_plot as look
from elastiquant_report import findings
from elastiquant_report.runs import Run, baseline_index


def draw_all(runs: list[Run], folder: Path) -> list[Path]:
    with look.style():
        times = [run.elapsed() for run in runs]
        unit, name = time_unit(max(time[-1] for time in times))
        time = [[t / unit for t in values] for values in times]
        title = findings.speed(runs)
        written = curves(runs, folder / "time", title, "Training time", time, name)
        if any(run["bytes_up"] for run in runs):
            written += bytes_curves(runs, folder / "bytes")
        written += _seconds(runs, folder / "seconds")
    return written


def bytes_curves(runs: list[Run], stem: Path) -> list[Path]:
    unit, name = byte_unit(max(run["bytes_up"] for run in runs))
    sent = [[b / unit for b in run.sent()] for run in runs]
    return curves(runs, stem, findings.size(runs), "Sent by each worker", sent, name)


def time_unit(longest: float) -> tuple[float, str]:
    """The unit, in seconds and by name, that suits an axis up to `longest` seconds."""
    return (1, "s") if longest < 240 else (60, "min") if longest < 4e4 else (3600, "h")


def byte_unit(most: float) -> tuple[float, str]:
    return (1e6, "MB") if most < 2e9 else (1e9, "GB")


def smooth(values: list[float], window: int) -> list[float]:
    """Means over up to `window` values around each one, without those that are NaN.

    At the beginning, where a loss falls fast, they reach as far back as forward; at the end
    they reach back half a window, so that the last point is no single noisy step.
    """
    result = []
    for i in range(len(values)):
        reach = window // 2
        near = values[max(0, i - reach) : i + min(reach, i) + 1]
        near = [v for v in near if not math.isnan(v)]
        result.append(sum(near) / len(near) if near else math.nan)
    return result


def _window(runs: list[Run]) -> int:
    return max(1, min(len(run.steps) for run in runs) // 25) | 1


def curves(
    runs: list[Run], stem: Path, title: str, quantity: str, xs: list[list[float]], unit: str
) -> list[Path]:
    """Loss and accuracy of each run against xs, a value a step."""
    labels = [run.label for run in runs]
    height = max(4.6, look.key_height(labels) + 1.4)
    fig, (left, right) = look.figure(
        title, findings.setting(runs), columns=2, width=11.2, height=height
    )
    colours = look.colours(len(runs), baseline_index(runs))
    window = _window(runs)
    by_epoch = all(len(_accuracies(run)) > 1 for run in runs)
    for run, x, colour, marker in zip(runs, xs, colours, cycle(look.MARKERS)):
        end = {"color": colour, "marker": marker, "markersize": 5.5}
        left.plot(x, smooth(run.series("loss"), window), markevery=[-1], **end)
        if by_epoch:
            at, accuracy = zip(*_accuracies(run), strict=True)
            right.plot([x[i] for i in at], accuracy, **end)
        else:
            right.plot(x, smooth(run.series("accuracy"), window), markevery=[-1], **end)
    left.set_title("Training loss" + (f", mean of {window} steps" if window > 1 else ""))
    right.set_title("Test accuracy, %" if by_epoch else "Training accuracy, %")
    for axes in (left, right):
        axes.set_xlabel(f"{quantity}, {unit}")
        axes.set_xlim(left=0)
    look.layout(fig, key=True)
    lines = right.get_lines()
    details = [
        f"{x[-1]:.3g} {unit}, {line.get_ydata()[-1]:.1f} %"
        for x, line in zip(xs, lines, strict=True)
    ]
    look.name_series(fig, lines, labels, details)
    return look.save(fig, stem)


def _accuracies(run: Run) -> list[tuple[int, float]]:
    return [
        (i, e["test_accuracy"])
        for i, e in run.epoch_ends()
        if e.get("test_accuracy") is not None
    ]


def _seconds(runs: list[Run], stem: Path) -> list[Path]:
    """Two bars a run: the training thread, whose parts make up the wall time, and below it the
    work done meanwhile beside it."""
    fig, (axes,) = look.figure(
        findings.waiting(runs),
        f"A mean step; {findings.setting(runs)}. Thick bars: the training thread, which "
        "computes and waits. Thin bars: meanwhile, on other threads.",
        height=2.1 + 0.72 * len(runs),
    )
    longest = max(run.per_step("total") for run in runs)
    unit, name = (1000, "ms") if longest < 2 else (1, "s")
    for i, run in enumerate(runs):
        _stack(axes, i, 0.40, run, ("compute", "wait"), unit)
        _stack(axes, i + 0.34, 0.16, run, ("encode", "transmit", "decode"), unit)
        total = run.per_step("total") * unit
        factor = runs[baseline_index(runs)].per_step("total") / run.per_step("total")
        text = f" {total:.0f} {name}" if name == "ms" else f" {total:.2f} {name}"
        if i != baseline_index(runs):
            text += (
                f"  ({factor:.1f}× faster)" if factor >= 1 else f"  ({1 / factor:.1f}× slower)"
            )
        axes.text(total, i, text, va="center", weight="bold", size=9.5)
    axes.set_yticks(range(len(runs)), [look.wrap_name(run.label) for run in runs])
    for tick in axes.get_yticklabels():
        tick.set(color=look.INK, weight="bold", size=9.5)
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"{name} per step")
    axes.set_xlim(0, longest * unit * 1.22)
    _phase_key(axes)
    look.layout(fig)
    look.make_room_for_names(fig, axes)
    return look.save(fig, stem)


def _stack(
    axes, y: float, height: float, run: Run, phases: tuple[str, ...], unit: float
) -> None:
    left = 0.0
    for phase in phases:
        width = run.per_step(phase) * unit
        axes.barh(
            y, width, height, left=left, color=look.PHASES[phase], edgecolor="white", lw=0.6
        )
        left += width


def _phase_key(axes) -> None:
    handles = [
        axes.barh(
            [0], [0], color=colour, label="wait for gradients" if phase == "wait" else phase
        )
        for phase, colour in look.PHASES.items()
    ]
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=5,
        frameon=False,
        fontsize=9,
        handlelength=0.9,
        handleheight=0.9,
        columnspacing=1.4,
        borderaxespad=0.2,
        borderpad=0,
    )
