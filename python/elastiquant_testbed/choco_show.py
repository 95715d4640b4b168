"""What CHOCO's table has come to: a table in Markdown, and a plot."""

from __future__ import annotations

from pathlib import Path

from elastiquant_testbed import choco, words


def text(result: dict) -> str:
    rows = result["rows"]
    whole = next((r["bytes_up"] for r in rows if r["algorithm"] == "dpsgd"), None)
    cells = [
        [
            choco.NAMES.get(r["algorithm"], r["algorithm"].upper()),
            r["codec"],
            _accuracy(r),
            _printed(r["published"]),
            "" if r["gossip_step"] is None else f"{r['gossip_step']:g}",
            f"{r['consensus_distance']:.2g}" if r["consensus_distance"] else "",
            "" if r["bytes_up"] is None else f"{r['bytes_up'] / 1e6:,.1f}",
            f"{whole / r['bytes_up']:.1f}" if whole and r["bytes_up"] else "",
        ]
        for r in rows
    ]
    heads = ["algorithm", "codec", "accuracy %", "printed", "gossip step"]
    heads += ["consensus distance", "MB a worker", "times fewer than D-PSGD"]
    where = "a GPU" if result["device"] == "cuda" else "CPUs"
    return words.page(
        "CHOCO-SGD's table, rebuilt",
        f"ResNet-20 on a ring of {choco.WORKERS} workers with batches of {choco.BATCH}, "
        f"{result['length']} on {where}. Accuracies are those of the mean of all models, means "
        "over the seeds, with half of what these differ by.",
        words.table(heads, cells, words=2),
        result,
    )


def _accuracy(row: dict) -> str:
    if row["diverged"]:
        return "diverges"
    return words.accuracy(row)


def _printed(accuracy: float | None) -> str:
    if accuracy is None:
        return ""
    return "diverges" if accuracy == choco.DIVERGED else f"{accuracy:.2f}"


def draw(result: dict, stem: Path) -> None:
    """Accuracy against the bytes that a worker sends; schemes that diverge are named beside."""
    import elastiquant_plot as look

    rows = [r for r in result["rows"] if not r["diverged"]]
    gone = [choco.name_of(r) for r in result["rows"] if r["diverged"]]
    algorithms = ("allreduce", "dpsgd", "choco", "dcd", "ecd")
    with look.style():
        fig, (axes,) = look.figure(
            _point(result),
            "Test accuracy of ResNet-20 against what a worker sends, on a ring of "
            f"{choco.WORKERS}" + (f". Diverge: {'; '.join(gone)}" if gone else ""),
            height=4.8,
        )
        for algorithm, colour, marker in zip(
            algorithms, look.colours(len(algorithms)), look.MARKERS, strict=False
        ):
            own = [r for r in rows if r["algorithm"] == algorithm]
            if own:
                axes.plot(
                    [r["bytes_up"] / 1e6 for r in own],
                    [r["accuracy"] for r in own],
                    linestyle="",
                    marker=marker,
                    color=colour,
                    label=choco.NAMES.get(algorithm, algorithm.upper()),
                )
            for together in _near(own):
                axes.annotate(
                    "\n".join(r["codec"].replace(", ", " ") for r in together),
                    (together[-1]["bytes_up"] / 1e6, together[-1]["accuracy"]),
                    xytext=(6, -3 if algorithm == "dcd" else 3),
                    textcoords="offset points",
                    va="top" if algorithm == "dcd" else "bottom",
                    fontsize=7,
                    color=colour,
                )
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("MB that a worker sends")
        axes.set_ylabel("test accuracy, %")
        axes.legend(frameon=False, fontsize=8)
        look.layout(fig)
        look.save(fig, stem)


def _near(rows: list[dict]) -> list[list[dict]]:
    """Those whose names would cover each other are named together."""
    groups: list[list[dict]] = []
    for r in sorted(rows, key=lambda r: r["bytes_up"]):
        last = groups[-1][-1] if groups else None
        if (
            last
            and r["bytes_up"] < 1.2 * last["bytes_up"]
            and abs(r["accuracy"] - last["accuracy"]) < 4
        ):
            groups[-1].append(r)
        else:
            groups.append([r])
    return groups


def _point(result: dict) -> str:
    """The title: what one dithered bit keeps of full precision's accuracy."""
    by = {(r["algorithm"], r["codec"]): r for r in result["rows"]}
    bit, whole = by.get(("choco", "dither, 1 bit")), by.get(("dpsgd", "fp32"))
    if not bit or not whole or bit["diverged"] or whole["diverged"]:
        return "Gossip under codecs of fewer and fewer bits"
    return (
        f"On a ring, one dithered bit ends at {bit['accuracy']:.1f} % with "
        f"{whole['bytes_up'] / bit['bytes_up']:.0f} times fewer bytes than full precision, "
        f"which ends at {whole['accuracy']:.1f} %"
    )
