"""What policies decided from step to step: decisions.*."""

from __future__ import annotations

from pathlib import Path

from elastiquant_report.runs import MOST_LINES, Run

_KINDS = {"bits": "bits a value", "ratios": "ratio", "thresholds": "threshold"}


def decided(runs: list[Run]) -> list[Run]:
    return [run for run in runs if any("decisions" in step for step in run.steps)]


def series(run: Run) -> tuple[str, list[int], dict[str, list[list[float]]]]:
    """What was decided: the kind, the steps, and by the name of each line what the workers
    decided in each of these steps. Bits have a line for each group of layers, over all workers;
    the other kinds have one for each worker. Steps of another kind are left out."""
    steps = [step for step in run.steps if "decisions" in step]
    kinds = [next(iter(step["decisions"])) for step in steps]
    kind = max(dict.fromkeys(kinds), key=kinds.count)
    steps = [step for step, own in zip(steps, kinds, strict=True) if own == kind]
    values = [step["decisions"][kind] for step in steps]
    if kind == "bits":
        names = [_short(name) for name in (run["policy"] or {}).get("groups", [])]
        names = names or [f"group {g}" for g in range(len(values[0][0]))]
        lines = {
            f"{g}: {name}": [[worker[g] for worker in step] for step in values]
            for g, name in enumerate(names)
        }
    else:
        lines = {f"worker {w}": [[step[w]] for step in values] for w in range(len(values[0]))}
    return kind, [step["step"] for step in steps], lines


def _short(name: str) -> str:
    """ "layer1.0.conv1.weight ... conv1.weight, 7 tensors" by its first layer."""
    return name.split(" ... ")[0].split(",")[0].removesuffix(".weight")


def finding(run: Run) -> str:
    """How the mean decision moved from the first tenth of a run to the last."""
    kind, steps, lines = series(run)
    tenth = max(1, len(steps) // 10)
    means = [
        _mean(_mean(values) for line in lines.values() for values in line[part])
        for part in (slice(tenth), slice(-tenth, None))
    ]
    begin, end = (f"{value:.3g}" for value in means)
    name = ((run["policy"] or {}).get("bits") or run["algorithm"] or run.label).split(":")[0]
    if begin == end:
        return f"{name}: {_KINDS[kind]} {end} throughout"
    word = "rose" if means[1] > means[0] else "fell"
    return f"{name}: mean {_KINDS[kind]} {word} from {begin} to {end}"


def _mean(values) -> float:
    values = list(values)
    return sum(values) / len(values)


def draw(runs: list[Run], folder: Path) -> list[Path]:
    """A figure for each run whose steps have decisions."""
    import elastiquant_plot as look

    written = []
    with look.style():
        for number, run in enumerate(decided(runs), start=1):
            name = "decisions" if number == 1 else f"decisions-{number}"
            written += _figure(look, run, folder / name)
    return written


def _figure(look, run: Run, stem: Path) -> list[Path]:
    kind, steps, lines = series(run)
    shown = _few(list(lines))
    note = f" {len(shown)} of {len(lines)} lines." if len(shown) < len(lines) else ""
    what = (
        "Lines are means over the workers, bands the range among them."
        if kind == "bits"
        else "A line for each worker."
    )
    fig, (axes,) = look.figure(finding(run), f"{run.label}. {what}{note}", width=10.4)
    drawn, details = [], []
    looks = zip(look.colours(len(shown)), look.MARKERS[: len(shown)], strict=True)
    for name, (colour, marker) in zip(shown, looks, strict=True):
        means = [_mean(values) for values in lines[name]]
        least, most = ([pick(values) for values in lines[name]] for pick in (min, max))
        if least != most:
            axes.fill_between(steps, least, most, step="post", color=colour, alpha=0.15, lw=0)
        drawn += axes.plot(
            steps,
            means,
            drawstyle="steps-post",
            color=colour,
            marker=marker,
            markersize=5.5,
            markevery=[-1],
        )
        details.append(f"{means[0]:.3g} to {means[-1]:.3g}")
    axes.set_title(_KINDS[kind].capitalize())
    axes.set_xlabel("step")
    axes.set_xlim(left=0)
    if kind == "thresholds":
        axes.set_yscale("log")  # workers differ by constant factors
    else:
        axes.set_ylim(bottom=0)
    look.layout(fig, key=True)
    look.name_series(fig, drawn, shown, details)
    return look.save(fig, stem)


def _few(names: list[str]) -> list[str]:
    """Up to MOST_LINES of the names, the first and the last among them."""
    if len(names) <= MOST_LINES:
        return names
    last = len(names) - 1
    places = [round(i * last / (MOST_LINES - 1)) for i in range(MOST_LINES)]
    return [names[place] for place in places]
