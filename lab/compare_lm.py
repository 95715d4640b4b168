#!/usr/bin/env python3
"""Language models under AdamW: the validation loss of each scheme at its own best rate.

    lab/compare_lm.py --out runs/lm
    lab/compare_lm.py --data corpus.txt --model gpt:layers=6,width=384,heads=6 --steps 1000

Trains a GPT for each scheme, learning rate and seed by `elastiquant train`, one run after the
other, and writes OUT/table.md and OUT/loss.png: the validation loss against the bytes that a
worker sent. A run that is there already is not run again, so that an interrupted comparison
goes on where it was.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/elastiquant"

# Name, codec, and the options that make it what it is.
SCHEMES = {
    "fp32": ("fp32", []),
    "2 bits": ("dither:bits=2", []),
    "1 bit": ("dither:bits=1", []),
    "1/2 bit": ("dither:bits=0.5", []),
    "2 bits, plain": ("dither:bits=2", ["--metric", "plain"]),
    "1 bit, plain": ("dither:bits=1", ["--metric", "plain"]),
    "1/2 bit, plain": ("dither:bits=0.5", ["--metric", "plain"]),
    "1 bit, feedback": ("dither:bits=1|ef", []),
    "4 bits elastic": ("elastic:bits=4", []),
    "4 bits elastic, plain": ("elastic:bits=4", ["--metric", "plain"]),
    "PowerSGD 4, plain": ("powersgd:rank=4|ef", ["--metric", "plain"]),
    "top-k 1 %, plain": ("topk:ratio=0.01|ef", ["--metric", "plain"]),
    "EF-sign, plain": ("efsign|ef:lr=outside", ["--metric", "plain"]),
}


def train(args: argparse.Namespace, scheme: str, rate: float, seed: int) -> dict:
    """The summary of a run, which is made if it is not there."""
    codec, options = SCHEMES[scheme]
    name = "".join(c if c.isalnum() else "-" for c in scheme)
    out = args.out / f"{name}_lr{rate:g}_seed{seed}"
    summary = out / "summary.json"
    if not summary.exists():
        command = [PROGRAM, "train", "--model", args.model, "--optimizer", "adamw"]
        command += ["--lr", rate, "--beta2", 0.95, "--weight-decay", 0.1, "--no-decay-1d"]
        command += ["--clip-norm", 1, "--warmup", args.steps // 10, "--data", args.data]
        command += ["--workers", args.workers, "--batch", args.batch, "--steps", args.steps]
        command += ["--eval-every", 0, "--seed", seed, "--codec", codec, *options]
        command += ["--generated-test", args.tested]
        command += ["--out", out, "--overwrite", "--quiet"]
        subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL)
    return json.loads(summary.read_text())


def best(args: argparse.Namespace, scheme: str) -> dict:
    """The scheme's row of the table."""
    losses, bits, sent = {}, [], []
    for rate in args.rates:
        runs = []
        for seed in range(1, args.seeds + 1):
            runs.append(train(args, scheme, rate, seed))
            loss = runs[-1]["validation_loss"]
            print(f"{scheme}, lr {rate:g}, seed {seed}: {loss:.4f}", file=sys.stderr)
        losses[rate] = [run["validation_loss"] for run in runs]
        bits += [run["bits_per_coordinate"] for run in runs]
        sent += [run["bytes_up"] for run in runs]
    rate = min(losses, key=lambda r: statistics.fmean(losses[r]))
    return {
        "scheme": scheme,
        "losses": losses,
        "rate": rate,
        "loss": statistics.fmean(losses[rate]),
        "spread": statistics.stdev(losses[rate]) if args.seeds > 1 else None,
        "bits": statistics.fmean(bits),
        "bytes": statistics.fmean(sent),
    }


def table(args: argparse.Namespace, rows: list[dict]) -> str:
    lines = [
        "| scheme | bits a value | MB sent | " + " | ".join(f"lr {r:g}" for r in args.rates)
    ]
    lines[0] += " | best | of fp32 |"
    lines.append("| --- | " + "---: | " * (len(args.rates) + 4))
    base = rows[0]["loss"]
    for row in rows:
        cells = [row["scheme"], f"{row['bits']:.2f}", f"{row['bytes'] / 1e6:.1f}"]
        cells += [f"{statistics.fmean(row['losses'][rate]):.4f}" for rate in args.rates]
        spread = "" if row["spread"] is None else f" ± {row['spread']:.4f}"
        cells += [f"{row['loss']:.4f}{spread}", f"{100 * (row['loss'] / base - 1):+.2f} %"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(rows: list[dict], path: pathlib.Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7.5, 4.5), layout="constrained")
    for row in rows:
        plain = "plain" in row["scheme"]
        axes.plot(row["bytes"] / 1e6, row["loss"], "o" if not plain else "x", markersize=8)
        axes.annotate(
            row["scheme"],
            (row["bytes"] / 1e6, row["loss"]),
            textcoords="offset points",
            xytext=(7, 3),
            fontsize=9,
        )
    axes.axhline(rows[0]["loss"], color="grey", linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.set_xlabel("MB that a worker sent")
    axes.set_ylabel("validation loss at the best learning rate, nats a byte")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


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
    parser.add_argument("--schemes", nargs="+", choices=SCHEMES, default=list(SCHEMES))
    args = parser.parse_args()
    if args.schemes[0] != "fp32":
        parser.error("the first of --schemes is what the others are compared with: fp32")
    args.out.mkdir(parents=True, exist_ok=True)
    rows = [best(args, scheme) for scheme in args.schemes]
    text = table(args, rows)
    (args.out / "table.md").write_text(text)
    (args.out / "rows.json").write_text(json.dumps(rows, indent=1))
    draw(rows, args.out / "loss.png")
    print(text)


if __name__ == "__main__":
    main()
