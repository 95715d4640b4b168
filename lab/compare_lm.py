#!/usr/bin/env python3
r"""Language models under AdamW: the validation loss of each scheme at its own best rate.

    lab/compare_lm.py --out runs/lm
    lab/compare_lm.py --out runs/corpus --data corpus.txt --steps 1000 \
        --model gpt:layers=6,width=384,heads=6

Trains a GPT for each scheme, learning rate and seed by `elastiquant train`, one run after the
other, and writes OUT/table.md, OUT/loss.png and OUT/loss.svg: the validation loss against the
bytes that a worker sent; with --links also what a step takes over these. A run that is there
already is not run again, so that an interrupted comparison goes on where it was; --table-only
makes do with the runs that are there.
"""

import argparse
import json
import math
import pathlib
import statistics
import sys
from typing import NamedTuple

import frontier_rows
import settings
import trainings

from elastiquant_testbed import stopping

ROOT = trainings.ROOT
PROGRAM = ROOT / "build/release/bin/elastiquant"

ADAMW = ["--optimizer", "adamw", "--beta2", 0.95, "--clip-norm", 1]
PLAIN = [*ADAMW, "--metric", "plain"]


class Scheme(NamedTuple):
    """What `train` is told of a scheme. It is tried at the rates times `rate`."""

    codec: str | None
    options: list = ADAMW
    rate: float = 1


# The first ones are ours; the others are what they are compared with.
SCHEMES = {
    "fp32": Scheme("fp32"),
    "2 bits": Scheme("dither:bits=2"),
    "1 bit": Scheme("dither:bits=1"),
    "1/2 bit": Scheme("dither:bits=0.5"),
    "4 bits elastic": Scheme("elastic:bits=4"),
    "1 bit, feedback": Scheme("dither:bits=1|ef"),
    "2 bits, plain": Scheme("dither:bits=2", PLAIN),
    "1 bit, plain": Scheme("dither:bits=1", PLAIN),
    "1/2 bit, plain": Scheme("dither:bits=0.5", PLAIN),
    "4 bits elastic, plain": Scheme("elastic:bits=4", PLAIN),
    "fp16": Scheme("fp16", PLAIN),
    "PowerSGD 4": Scheme("powersgd:rank=4|ef", PLAIN),
    "top-k 1 %": Scheme("topk:ratio=0.01|ef", PLAIN),
    "EF-sign": Scheme("efsign|ef:lr=outside", PLAIN),
    "1-bit Adam": Scheme(None, [*ADAMW, "--algorithm", "onebit-adam:freeze={warm-up}"]),
    "0/1 Adam": Scheme(None, [*ADAMW, "--algorithm", "zeroone-adam"]),
    # Steps of one size, as of Adam's where all gradients agree, need smaller rates.
    "DeMo": Scheme(None, ["--momentum", 0, "--algorithm", "demo"], rate=0.25),
}


def command(args: argparse.Namespace, scheme: str, rate: float, steps: int) -> list:
    codec, options, factor = SCHEMES[scheme]
    words = [PROGRAM, "train", "--model", args.model, "--data", args.data]
    words += ["--lr", rate * factor, "--weight-decay", 0.1, "--no-decay-1d"]
    words += ["--warmup", steps // 10, "--steps", steps, "--precision", args.precision]
    words += ["--workers", args.workers, "--batch", args.batch, "--eval-every", 0]
    words += [] if codec is None else ["--codec", codec]
    # As its authors advise, 1-bit Adam freezes after 15 % of the steps.
    freeze = str(max(1, steps * 15 // 100))
    return words + [str(option).replace("{warm-up}", freeze) for option in options]


def folder(args: argparse.Namespace, scheme: str, rest: str) -> pathlib.Path:
    return args.out / ("".join(c if c.isalnum() else "-" for c in scheme) + rest)


def train(args: argparse.Namespace, scheme: str, rate: float, seed: int) -> dict | None:
    words = command(args, scheme, rate, args.steps)
    words += ["--seed", seed, "--generated-test", args.tested]
    out = folder(args, scheme, f"_lr{rate:g}_seed{seed}")
    return trainings.summary_of(words, out, args.table_only)


def seconds(args: argparse.Namespace, scheme: str, link: str) -> float | None:
    """The median of a step over an emulated link, once first steps that differ are over."""
    # At a rate that moves next to nothing: 1-bit Adam needs a longer warm-up at others.
    words = command(args, scheme, 1e-6, 40)
    words += ["--link", link, "--generated-test", 1]
    if SCHEMES[scheme].options is ADAMW:
        words += ["--exact-steps", 1]
    # Its steps that update second moments soon get rare enough for the median.
    words = ["zeroone-adam:growth=1" if word == "zeroone-adam" else word for word in words]
    out = folder(args, scheme, "_" + link.replace(",", "-"))
    run = trainings.summary_of(words, out, args.table_only)
    return run and run.get("median_seconds_per_step")


def best(args: argparse.Namespace, scheme: str) -> dict | None:
    """The scheme's row of the table, or None if there are no runs of it."""
    found: dict[float, dict[int, dict]] = {}  # summaries by rate and seed
    for rate in args.rates:
        for seed in range(1, args.seeds + 1):
            run = train(args, scheme, rate, seed)
            if run is None:
                continue
            found.setdefault(rate, {})[seed] = run
            said = frontier_rows.loss_cell(frontier_rows.loss_of(run))
            print(f"{scheme}, lr {rate:g}, seed {seed}: {said}", file=sys.stderr)
    if not found:
        return None
    losses = {
        rate: {seed: frontier_rows.loss_of(run) for seed, run in runs.items()}
        for rate, runs in found.items()
    }
    rate = best_rate(losses)
    ended = [run for run in found[rate].values() if "failed" not in run]

    def mean(what: str) -> float:
        return statistics.fmean(run[what] for run in ended) if ended else math.nan

    return {
        "scheme": scheme,
        "losses": losses,  # by rate and seed
        "rate": rate,
        "loss": statistics.fmean(losses[rate].values()),
        "bits": mean("bits_per_coordinate"),  # at that rate, and so are the bytes
        "bytes": mean("bytes_up"),
        "seconds": {link: seconds(args, scheme, link) for link in args.links},
    }


def best_rate(losses: dict[float, dict[int, float]]) -> float:
    """The rate of the least mean loss over the seeds that all rates have, if there are any."""
    shared = set.intersection(*(set(by_seed) for by_seed in losses.values()))
    return min(
        losses, key=lambda r: statistics.fmean(losses[r][s] for s in shared or losses[r])
    )


def _above(row: dict, fp32: dict) -> float:
    """Per cent by which a loss is above full precision's, over the seeds that both have, each
    at its best rate; infinite if there is none."""
    losses, base = (of["losses"][of["rate"]] for of in (row, fp32))
    both = losses.keys() & base.keys()
    if not both:
        return math.inf
    mean, of = (statistics.fmean(found[seed] for seed in both) for found in (losses, base))
    return 100 * (mean / of - 1)


def table(args: argparse.Namespace, rows: list[dict]) -> str:
    heads = ["scheme", "bits a value", "MB sent", *(f"lr {r:g}" for r in args.rates)]
    heads += ["best", "against fp32", *(f"s at {link}" for link in args.links)]
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    for row in rows:
        factor = SCHEMES[row["scheme"]].rate
        name = row["scheme"] + (f" (rates × {factor:g})" if factor != 1 else "")
        cells = [name, *map(_number, (row["bits"], row["bytes"] / 1e6), (".2f", ".1f"))]
        firsts = [row["losses"].get(rate, {}).get(1) for rate in args.rates]
        cells += map(frontier_rows.loss_cell, firsts)
        cells.append(frontier_rows.mean_cell(row["losses"][row["rate"]].values()))
        cells.append(frontier_rows.relative_cell(_above(row, rows[0])))
        times = [row["seconds"][link] for link in args.links]
        cells += ["" if time is None else f"{time:.2f}" for time in times]
        lines.append("| " + " | ".join(cells) + " |")
    note = "Losses by rate are of seed 1; bits, MB and the last losses are at the best rate."
    return "\n".join([*lines, "", note]) + "\n"


def _number(value: float, form: str) -> str:
    return "" if math.isnan(value) else f"{value:{form}}"


def draw(args: argparse.Namespace, rows: list[dict], stem: pathlib.Path) -> None:
    """Ours are round and blue. What failed is left out."""
    import elastiquant_plot as look

    rows = [row for row in rows if row["loss"] < math.inf]
    lowest = min(rows, key=lambda row: _above(row, rows[0]))
    with look.style():
        figure, (axes,) = look.figure(
            f"The lowest validation loss is that of {lowest['scheme']}",
            f"{args.model}, {args.workers} workers, {args.steps} steps, each scheme at its "
            "best learning rate. Blue: compressed in AdamW's metric. Dotted: full precision.",
        )
        for row in rows:
            ours = SCHEMES[row["scheme"]].options is ADAMW and row["scheme"] != "fp32"
            at = (row["bytes"] / 1e6, row["loss"])
            colour, mark = (look.SERIES[0], "o") if ours else (look.BASELINE, "D")
            axes.plot(*at, mark, color=colour, ms=7)
            place = label_place(row, rows)
            axes.annotate(row["scheme"], at, textcoords="offset points", size=9, **place)
        axes.axhline(rows[0]["loss"], color=look.QUIET, linewidth=0.8, linestyle=":")
        axes.set_xscale("log")
        axes.margins(x=0.12)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_xlabel("MB that a worker sent")
        axes.set_title("validation loss, nats a byte")
        look.layout(figure)
        look.save(figure, stem)


def label_place(row: dict, rows: list[dict]) -> dict:
    """To the right of a point, or below it if the next point would cover the label."""
    losses = [other["loss"] for other in rows]
    near = 0.02 * (max(losses) - min(losses))
    covered = any(
        1 < other["bytes"] / row["bytes"] < 1.5 and abs(other["loss"] - row["loss"]) < near
        for other in rows
    )
    return {"xytext": (0, -16), "ha": "center"} if covered else {"xytext": (8, -4)}


def _finite(value: object) -> object:
    """None in place of numbers that JSON does not have, anywhere in lists and dicts."""
    if isinstance(value, dict):
        return {key: _finite(of) for key, of in value.items()}
    if isinstance(value, list):
        return [_finite(of) for of in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/lm"))
    parser.add_argument("--data", default="generated-text", help="a file or folder of text")
    parser.add_argument("--model", default="gpt")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=8, help="samples a worker and step")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--tested", type=int, default=500, help="samples of generated-text")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--rates", type=float, nargs="+", default=[2e-3, 4e-3, 8e-3])
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--links", nargs="*", default=[], help="to time steps over: 20mbit")
    parser.add_argument("--table-only", action="store_true", help="train nothing")
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    args = parser.parse_args()
    if args.schemes[0] != "fp32":
        parser.error("the first of --schemes is what the others are compared with: fp32")
    args.out.mkdir(parents=True, exist_ok=True)
    names = ("data", "model", "workers", "batch", "steps", "tested", "precision")
    settings.keep_arguments(args, names, adopt=args.table_only)
    rows = [row for row in (best(args, scheme) for scheme in args.schemes) if row]
    if not rows or rows[0]["scheme"] != "fp32" or rows[0]["loss"] == math.inf:
        sys.exit("compare_lm: there is no run of fp32, with which the others are compared")
    text = table(args, rows)
    (args.out / "table.md").write_text(text)
    (args.out / "rows.json").write_text(json.dumps(_finite(rows), indent=1) + "\n")
    draw(args, rows, args.out / "loss")
    print(text)


if __name__ == "__main__":
    stopping.on_signals()
    main()
