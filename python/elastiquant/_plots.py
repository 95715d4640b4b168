"""The plots of report(). A title says what was found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib import ticker

import elastiquant_plot as plot
from elastiquant._record import Interval, Record, intervals, of_the_run
from elastiquant._stats import LayerStats


def draw(records: Sequence[Record], folder: Path) -> list[Path]:
    """Writes the plots, each as PNG and SVG, but those for which nothing was measured."""
    steps = list(intervals(records))
    measured = [layer for layer in records[-1].layers if layer.name and layer.nmse]
    with plot.style():
        written = plot.save(_bytes(records), folder / "bytes")
        if steps:
            written += plot.save(_seconds(steps), folder / "seconds")
        if measured:
            written += plot.save(_layers(measured), folder / "layers")
    return written


def _bytes(records: Sequence[Record]):
    sums = list(of_the_run(records))
    last = sums[-1]
    sent, alike = last.bytes_up / 1e6, last.fp32_bytes_up / 1e6
    times = f"{last.fp32_ratio:.3g} times as much"
    title = f"{sent:.3g} MB sent where fp32 sends {alike:.3g} MB, {times}"
    figure, (axis,) = plot.figure(title, "what this worker has sent, headers included")
    steps = [record.step for record in records]
    colours = plot.colours(2, baseline=1)
    (a,) = axis.plot(steps, [s.bytes_up / 1e6 for s in sums], color=colours[0])
    (b,) = axis.plot(steps, [s.fp32_bytes_up / 1e6 for s in sums], color=colours[1])
    axis.set_ylim(bottom=0)
    axis.set_xlabel("step")
    axis.set_title("MB sent")
    plot.layout(figure, key=True)
    bits = f"{last.bits_per_coordinate:.3g} bits for 32"
    plot.name_series(figure, (a, b), ["compressed", "fp32"], [bits, "32 bits"])
    return figure


def _seconds(steps: Sequence[Interval]):
    """`steps` are not empty."""
    series = {
        "step": (plot.INK, [step.seconds for step in steps]),
        "wait": (plot.PHASES["wait"], [step.wait for step in steps]),
        "encode": (plot.PHASES["encode"], [step.encode for step in steps]),
        "transmit": (plot.PHASES["transmit"], [step.wire for step in steps]),
        "decode": (plot.PHASES["decode"], [step.decode for step in steps]),
    }
    means = [f"{sum(values) / len(values) * 1e3:.3g} ms" for _, values in series.values()]
    title = f"A step takes {means[0]}, of which {means[1]} waiting for means"
    note = "encode, transmit and decode run beside training; only what it must wait for adds"
    figure, (axis,) = plot.figure(title, note)
    ends = [step.step for step in steps]
    lines = [
        axis.plot(ends, [value * 1e3 for value in values], color=colour)[0]
        for colour, values in series.values()
    ]
    axis.set_ylim(bottom=0)
    axis.set_xlabel("step")
    axis.set_title("ms a step")
    plot.layout(figure, key=True)
    plot.name_series(figure, lines, list(series), means)
    return figure


def _layers(layers: Sequence[LayerStats]):
    """Of layers that were measured, and not exact."""
    above = [layer.name for layer in layers if layer.verdict == "exceeded"]
    title = f"No layer of {len(layers)} errs more than its bound, beyond chance"
    if above:
        title = f"{len(above)} of {len(layers)} layers err more than their bound: {above[0]} …"
    counts = [layer.messages for layer in layers]
    note = f"mean |Q(v)-v|² / |v|² of {min(counts)} to {max(counts)} messages of each layer"
    height = max(1.6 + 0.2 * len(layers), 3.0)
    figure, (axis,) = plot.figure(title, note, height=height)
    measured = bounds = None
    for row, layer in enumerate(layers):
        colour = plot.SERIES[1 if layer.verdict == "exceeded" else 0]
        (mark,) = axis.plot([layer.nmse], [row], "o", color=colour, ms=5)
        measured = measured or mark
        if layer.bound:
            (bounds,) = axis.plot([layer.bound], [row], "|", color=plot.QUIET, ms=9)
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter("{x:g}")
    axis.xaxis.set_minor_formatter(ticker.NullFormatter())
    axis.set_yticks(range(len(layers)), [plot.shorten(layer.name, 60) for layer in layers])
    axis.invert_yaxis()
    axis.grid(axis="x")
    plot.layout(figure, key=True)
    plot.make_room_for_names(figure, axis)
    named = [(measured, "measured", "orange: above the bound" if above else "")]
    if bounds:
        named.append((bounds, "bound", "of the expectation"))
    plot.name_series(figure, *map(list, zip(*named, strict=True)))
    return figure
