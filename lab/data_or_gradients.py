#!/usr/bin/env python3
"""Bytes to an accuracy: samples in place of gradients, against compressed gradients.

    lab/data_or_gradients.py --data CIFAR_FOLDER --out runs/data
    lab/data_or_gradients.py --data CIFAR_FOLDER --model resnet18 --epochs 2 --out OUT \\
        --schemes fp32 "jpeg 50" "local 32, 1/2 bit"

Trains by `elastiquant train` on 4 workers (--workers) with each scheme of --schemes, evaluates
after each epoch, and writes OUT/table.md and OUT/accuracy.png: the accuracy against the bytes
that all workers have sent together. A run is a folder in OUT/runs; what is there is not run
again. Where samples travel, worker 0 alone computes (central=1), which has the same weights as
all computing would: the table tells both prices, in bytes and in gradients.
Where samples are refined or skipped, all compute.
"""

import argparse
import pathlib
import sys
from typing import NamedTuple

import settings
import trainings

from elastiquant_testbed import stopping

ROOT = trainings.ROOT
PROGRAM = ROOT / "build/release/bin/elastiquant"

HEADER_BYTES = 16  # before each message
LOCAL = ["--algorithm", "local-sgd", "--codec", "dither:bits=0.5", "--exact", "none"]


class Scheme(NamedTuple):
    options: list[str]  # for `elastiquant train`
    sends_data: bool = False
    central: bool = False  # whether worker 0 alone computes
    more: int = 0  # gradients of its own batch that a worker computes beside all others


def samples(spec: str) -> Scheme:
    words = ["--algorithm", "quantised-data:central=1", "--samples", spec]
    return Scheme(words, sends_data=True, central=True)


def refined(spec: str, codec: str) -> Scheme:
    """All compute, and send what their own gradient lacks in few bits."""
    words = ["--algorithm", "quantised-data:refine=1", "--samples", spec, "--codec", codec]
    return Scheme(words, sends_data=True, more=1)


def skipping(spec: str, options: str) -> Scheme:
    """All compute, as they must have a model to tell which samples matter."""
    words = ["--algorithm", f"quantised-data:{options}", "--samples", spec]
    return Scheme(words, sends_data=True)


SCHEMES = {
    "fp32": Scheme(["--codec", "fp32"]),
    "QSGD, 4 bits": Scheme(["--codec", "qsgd:bits=4"]),
    "top-k 0.1 %": Scheme(["--codec", "topk:ratio=0.001|ef"]),
    "dither, 1 bit": Scheme(["--codec", "dither:bits=1"]),
    "local 32, 1/2 bit": Scheme([*LOCAL, "--every", "32"]),
    "local 128, 1/2 bit": Scheme([*LOCAL, "--every", "128"]),
    "8 bits a pixel": samples("pixels:bits=8"),
    "4 bits a pixel": samples("pixels:bits=4"),
    "2 bits a pixel": samples("pixels:bits=2"),
    "2 bits a pixel, refined by 1/2 bit": refined("pixels:bits=2", "dither:bits=0.5"),
    "2 bits a pixel, refined by 2 bits": refined("pixels:bits=2", "dither:bits=2"),
    "jpeg 50, a third skipped": skipping("jpeg:quality=50", "skip=0.33"),
    "jpeg 50, a third skipped by chance": skipping("jpeg:quality=50", "skip=0.33,unbiased=1"),
    "jpeg 90": samples("jpeg:quality=90"),
    "jpeg 50": samples("jpeg:quality=50"),
    "jpeg 20": samples("jpeg:quality=20"),
    "jpeg 5": samples("jpeg:quality=5"),
}


class Row(NamedTuple):
    scheme: str
    accuracies: list[float]  # after each epoch, in per cent
    sent: list[float]  # bytes of all workers together until then
    everywhere: float  # bytes of the whole run if all compute
    gradients: int  # that a worker computes in a step, if all do
    seconds: float  # of a step's computing, on the worker that computes

    def bytes_to(self, accuracy: float) -> float | None:
        """What had been sent after the first epoch that reached the accuracy."""
        pairs = zip(self.accuracies, self.sent, strict=True)
        return next((sent for reached, sent in pairs if reached >= accuracy), None)


def row_of(scheme: str, summary: dict) -> Row:
    epochs, workers = summary["epochs"], summary["world_size"]
    sent, total = [], 0.0
    for epoch in epochs:
        total += epoch["bytes_up"] * workers
        sent.append(total)
    central = SCHEMES[scheme].central
    # Worker 0 does not send its own samples to itself; to all others it would.
    messages = summary["samples"] if central else None
    everywhere = total
    if messages:
        bits = messages["label_bits"] + messages["number_bits"]
        headers = HEADER_BYTES * summary["steps"] * (workers - 1)
        # What these N - 1 workers send to worker 0, each of N would send to N - 1 others.
        everywhere = (messages["pixel_bytes"] + bits / 8 + headers) * workers
    return Row(
        scheme,
        [epoch["test_accuracy"] for epoch in epochs],
        sent,
        everywhere,
        workers + SCHEMES[scheme].more if SCHEMES[scheme].sends_data else 1,
        summary["seconds"]["compute"] / summary["steps"],
    )


def train(args: argparse.Namespace, scheme: str) -> dict | None:
    """The summary of a run, which is made if it is not there; None under --table-only."""
    name = "".join(c if c.isalnum() else "-" for c in scheme)
    words = [args.program, "train", "--model", args.model, "--data", args.data]
    words += ["--workers", args.workers, "--batch", args.batch, "--epochs", args.epochs]
    words += ["--lr", args.lr, "--warmup", args.warmup, "--seed", args.seed]
    words += ["--precision", args.precision, *SCHEMES[scheme].options]
    words += ["--threads", args.threads] if SCHEMES[scheme].central else []
    print(scheme, file=sys.stderr, flush=True)
    return trainings.summary_of(words, args.out / "runs" / name, args.table_only)


def megabytes(count: float | None) -> str:
    return "" if count is None else f"{count / 1e6:,.1f}"


def table(rows: list[Row], target: float) -> str:
    heads = ["scheme", "test accuracy %", "MB sent by all", f"MB until {target:g} %"]
    heads += ["fewer than fp32", "MB if all compute", "gradients a worker and step"]
    lines = ["| " + " | ".join(heads) + " |", "| --- |" + " ---: |" * (len(heads) - 1)]
    for row in rows:
        reached, base = row.bytes_to(target), rows[0].bytes_to(target)
        fewer = f"{base / reached:,.0f}×" if base and reached else ""
        sends_data = SCHEMES[row.scheme].sends_data
        cells = [row.scheme, f"{row.accuracies[-1]:.2f}", megabytes(row.sent[-1])]
        cells += [megabytes(reached), fewer]
        cells += [megabytes(row.everywhere) if sends_data else ""]
        central = SCHEMES[row.scheme].central
        cells += [f"0 or {row.gradients}" if central else str(row.gradients)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(rows: list[Row], how: str, target: float, path: pathlib.Path) -> None:
    """Accuracy after each epoch against bytes: solid where gradients travel, dashed where
    samples do."""
    sys.path.insert(0, str(ROOT / "python"))
    import elastiquant_plot as look

    with look.style():
        fig, (axes,) = look.figure(title(rows, target), how, height=5.2)
        lines = []
        for row, colour in zip(rows, look.colours(len(rows), baseline=0), strict=True):
            dashes = "--" if SCHEMES[row.scheme].sends_data else "-"
            megabytes_sent = [sent / 1e6 for sent in row.sent]
            (line,) = axes.plot(
                megabytes_sent, row.accuracies, dashes, color=colour, marker="o", ms=4
            )
            lines.append(line)
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")
        axes.set_xlabel("MB that all workers have sent together")
        axes.set_ylabel("test accuracy, %")
        look.layout(fig, key=True)
        details = [f"{r.accuracies[-1]:.1f} %, {megabytes(r.sent[-1])} MB" for r in rows]
        look.name_series(fig, lines, [row.scheme for row in rows], details)
        fig.savefig(path, dpi=180)


def title(rows: list[Row], target: float) -> str:
    def least(sends_data: bool) -> tuple[float, Row] | None:
        found = [
            (sent, row)
            for row in rows
            if SCHEMES[row.scheme].sends_data == sends_data
            and (sent := row.bytes_to(target)) is not None
        ]
        return min(found, default=None, key=lambda pair: pair[0])

    data, gradients = least(True), least(False)
    if data is None or gradients is None:
        return f"Samples and gradients: not both reach {target:g} %"
    return (
        f"To {target:g} %: {megabytes(data[0])} MB of samples ({data[1].scheme}), or "
        f"{megabytes(gradients[0])} MB of gradients ({gradients[1].scheme})"
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/data"))
    parser.add_argument("--data", required=True, help="a folder of images, as train takes it")
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32, help="samples a worker and step")
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--warmup", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--threads", type=int, default=2, help="of worker 0 where it computes")
    parser.add_argument("--target", type=float, default=70, help="accuracy in per cent")
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--table-only", action="store_true", help="train nothing")
    args = parser.parse_args()
    if args.schemes[0] != "fp32":
        parser.error("the first of --schemes is what the others are compared with: fp32")
    return args


def main() -> None:
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    names = ("data", "model", "workers", "batch", "epochs", "lr", "warmup", "seed", "precision")
    settings.keep_arguments(args, names, adopt=args.table_only)
    summaries = {scheme: train(args, scheme) for scheme in args.schemes}
    for scheme in [s for s, told in summaries.items() if told and "failed" in told]:
        print(f"data_or_gradients: {scheme} failed, and is left out", file=sys.stderr)
        del summaries[scheme]
    rows = [row_of(scheme, told) for scheme, told in summaries.items() if told]
    if not rows or rows[0].scheme != "fp32":
        sys.exit("data_or_gradients: there is no run of fp32 to compare with")
    how = (
        f"{args.model}, {args.workers} workers with batches of {args.batch}, {args.epochs} "
        "epochs, a mark for each. Dashed: samples travel, to worker 0, which alone computes "
        "unless some are refined or skipped"
    )
    text = table(rows, args.target)
    (args.out / "table.md").write_text(text)
    draw(rows, how, args.target, args.out / "accuracy.png")
    print(text, end="")


if __name__ == "__main__":
    stopping.on_signals()
    main()
