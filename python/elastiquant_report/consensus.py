"""What became of the workers' own models where there is no centre: consensus.*."""

from __future__ import annotations

from pathlib import Path

from elastiquant_report.runs import MOST_LINES, Run


def measured(runs: list[Run]) -> list[Run]:
    """Runs whose workers have models of their own, and were evaluated."""
    return [run for run in runs if series(run)]


def series(run: Run) -> list[tuple[int, float, list[float], float]]:
    """For each evaluation: the epoch, the accuracy of the mean of all models, the own
    accuracies of the workers that were there (each on its part of the test set), and the
    models' distance from the mean."""
    return [
        (e["epoch"], e["test_accuracy"], _there(e["own_accuracy"]), e["consensus_distance"])
        for e in run.epochs
        if e["test_accuracy"] is not None and _there(e.get("own_accuracy") or [])
    ]


def _there(by_worker: list[float | None]) -> list[float]:
    return [accuracy for accuracy in by_worker if accuracy is not None]


def gain(run: Run) -> float:
    """How much better the mean of all models is than the workers' own, in the last
    evaluation, in points of accuracy."""
    _, mean, own, _ = series(run)[-1]
    return mean - sum(own) / len(own)


def _title(runs: list[Run]) -> str:
    gains = sorted(gain(run) for run in runs)
    if gains[-1] < 0.1:
        return "In the end the mean of all models is no better than the workers' own"
    if gains[0] < 0:
        return (
            f"Against the workers' own the mean of all models is {-gains[0]:.1f} points worse "
            f"to {gains[-1]:.1f} better"
        )
    least = f"{gains[0]:.1f} to " if len(runs) > 1 else ""
    points = f"{least}{gains[-1]:.1f} points"
    return f"The mean of all models is better than the workers' own by {points}"


def draw(runs: list[Run], folder: Path) -> list[Path]:
    """A figure of all runs without a centre, if there are any."""
    chosen = measured(runs)[:MOST_LINES]
    if not chosen:
        return []
    import elastiquant_plot as look

    with look.style():
        return _figure(look, chosen, folder / "consensus")


def _figure(look, runs: list[Run], stem: Path) -> list[Path]:
    what = "Left: lines are of the mean of all models, bands the range of the workers' own."
    fig, (left, right) = look.figure(_title(runs), what, columns=2, width=11.6)
    drawn, details = [], []
    looks = zip(look.colours(len(runs)), look.MARKERS[: len(runs)], strict=True)
    for run, (colour, marker) in zip(runs, looks, strict=True):
        epochs, means, own, distances = zip(*series(run), strict=True)
        left.fill_between(
            epochs, list(map(min, own)), list(map(max, own)), color=colour, alpha=0.15, lw=0
        )
        drawn += left.plot(epochs, means, color=colour, marker=marker, markersize=5.5)
        right.plot(epochs, distances, color=colour, marker=marker, markersize=5.5)
        algorithm = run["algorithm"] or ""
        details.append(f"{algorithm}, {run['graph']}, {distances[-1]:.2g} apart")
    left.set_title("Test accuracy, %")
    right.set_title("Distance of the models from their mean")
    right.set_yscale("log")
    for axes in (left, right):
        axes.set_xlabel("epoch")
        axes.xaxis.get_major_locator().set_params(integer=True)
    look.layout(fig, key=True)
    look.name_series(fig, drawn, [run.label for run in runs], details)
    return look.save(fig, stem)
