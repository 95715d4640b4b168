"""Which part of the data lay on which worker: shares.*."""

from __future__ import annotations

from pathlib import Path

from elastiquant_report.runs import Run

_ACROSS = 3  # panels side by side
_COLOURED = 10  # classes that have a colour each; of more, only the volumes are drawn
# Paul Tol's "muted" scheme (2021), told apart under every common form of colour blindness, in
# an order that sets dark beside light.
_CLASSES = (
    "#332288",
    "#88CCEE",
    "#117733",
    "#DDCC77",
    "#CC6677",
    "#44AA99",
    "#882255",
    "#C9C9C9",
    "#AA4499",
    "#999933",
)
_LIGHT = ("#88CCEE", "#DDCC77", "#C9C9C9")  # which need dark words


def dealt(runs: list[Run]) -> list[Run]:
    """The runs whose workers had shares of their own, one for each way the data was dealt."""
    unlike: dict[str, Run] = {}
    for run in runs:
        if (run["partition"] or {}).get("volumes"):
            unlike.setdefault(str((run["data"], run["partition"])), run)
    return list(unlike.values())


def finding(runs: list[Run]) -> str:
    """One sentence about the run whose largest class fills the greatest part of a share."""
    run = max(runs, key=_top_class)
    volumes = run["partition"]["volumes"]
    ratio = max(volumes) / min(volumes)
    sizes = "shares are about equally large"
    if ratio >= 1.1:
        sizes = f"the largest share is {ratio:.3g}× the smallest"
    return (
        f"{run['partition']['spec']}: {sizes}, and on average "
        f"{_top_class(run):.0%} of a worker's samples are of one class"
    )


def _top_class(run: Run) -> float:
    """The part of a share that its most frequent class makes up, on average over workers."""
    shares = run["partition"]["classes"]
    return sum(max(counts) / sum(counts) for counts in shares) / len(shares)


def draw(runs: list[Run], folder: Path) -> list[Path]:
    """A panel for each of dealt(runs), with a bar for each worker, in as few files as hold
    them."""
    import elastiquant_plot as look

    unlike = dealt(runs)
    written = []
    with look.style():
        for begin in range(0, len(unlike), _ACROSS):
            name = "shares" if begin == 0 else f"shares-{begin // _ACROSS + 1}"
            written += _figure(look, unlike[begin : begin + _ACROSS], folder / name)
    return written


def _figure(look, runs: list[Run], stem: Path) -> list[Path]:
    most = max(len(run["partition"]["volumes"]) for run in runs)
    classes = max(len(run["partition"]["classes"][0]) for run in runs)
    has_key = classes <= _COLOURED
    colours = "Colours and numbers are classes. " if has_key else ""
    fig, panels = look.figure(
        finding(runs),
        f"Training samples by worker. {colours}Beside bars: samples, and their part of all.",
        columns=len(runs),
        width=max(8.4, 4.5 * len(runs)),
        height=2.0 + 0.3 * has_key + 0.27 * max(most, 4),
    )
    for run, axes in zip(runs, panels, strict=True):
        _panel(
            look, run, axes, room=(0.25 if has_key else 0.5) * (1 if len(runs) == 1 else 1.8)
        )
    panels[0].set_ylabel("worker")
    look.layout(fig, spacing=0.1)
    if has_key:
        _class_key(fig, classes)
    return look.save(fig, stem)


def _class_key(fig, classes: int) -> None:
    """Names the colours, below the panels."""
    from matplotlib.patches import Patch

    height = fig.get_figheight()
    fig.subplots_adjust(bottom=0.9 / height)
    names = ["class 0", *(str(c) for c in range(1, classes))]
    fig.legend(
        handles=[Patch(color=_CLASSES[c], label=name) for c, name in enumerate(names)],
        loc="lower left",
        bbox_to_anchor=(0.5 / fig.get_figwidth(), 0.06 / height),
        ncols=classes,
        frameon=False,
        fontsize=9,
        handlelength=0.9,
        handleheight=0.9,
        columnspacing=1.4,
        borderpad=0,
    )


def _panel(look, run: Run, axes, room: float) -> None:
    """`room`, for the words beside the bars, is a part of the longest."""
    partition = run["partition"]
    volumes, longest = partition["volumes"], max(partition["volumes"])
    for worker, counts in enumerate(partition["classes"]):
        _bar(look, axes, worker, counts, longest)
        part = 100 * volumes[worker] / sum(volumes)
        words = f" {volumes[worker]:,} · {part:{'.1f' if part >= 1 else '.2g'}} %"
        if len(counts) > _COLOURED:
            words += f" · {sum(n > 0 for n in counts)} of {len(counts)} classes"
        axes.text(volumes[worker], worker, words, va="center", size=8.5, color=look.QUIET)
    axes.set_title(partition["spec"])
    axes.set_yticks(range(len(volumes)), [str(w) for w in range(len(volumes))])
    axes.set_ylim(len(volumes) - 0.5, -0.5)
    axes.set_xlim(0, longest * (1 + room))
    axes.set_xlabel("samples")
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.set_xticks([t for t in _few_ticks(longest) if t <= longest])
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def _few_ticks(longest: int) -> list[float]:
    from matplotlib.ticker import MaxNLocator

    return list(MaxNLocator(nbins=4, integer=True).tick_values(0, longest))


def _bar(look, axes, worker: int, counts: list[int], longest: int) -> None:
    """A worker's samples, stacked by class, with the numbers of the classes that have room."""
    if len(counts) > _COLOURED:
        axes.barh(worker, sum(counts), 0.78, color=look.SERIES[0])
        return
    left = 0
    for label, count in enumerate(counts):
        colour = _CLASSES[label]
        gap = 0.5 if count > 0.006 * longest else 0  # would hide what is thinner
        axes.barh(worker, count, 0.78, left=left, color=colour, edgecolor="white", lw=gap)
        if count > 0.035 * longest:
            axes.text(
                left + count / 2,
                worker,
                str(label),
                ha="center",
                va="center",
                size=7.5,
                color=look.INK if colour in _LIGHT else "white",
            )
        left += count
