#!/usr/bin/env python3
"""Holds `elastiquant train --compute TIME --replay` against training that truly computes.

    lab/compute_agreement.py --links 20mbit,10ms --out runs/compute_agreement

Records gradients of a real run of 2 workers without a link, and how long its steps compute.
Then each codec and link is run both ways, in turns: with forward and backward, and with waits
of that length and the recorded gradients. Prints the median seconds per step side by side with
their ratio, and writes them to agreement.md and agreement.json. It exits with 1 if a ratio is
off by more than --within.

Nothing else may run meanwhile, and there must be a core for each worker: where workers share
cores, real ones compute for longer the more of them there are, and those that wait do not.
"""

import argparse
import json
import pathlib
import statistics
import sys

import trainings

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/elastiquant"
WORKERS = 2


def train(args: argparse.Namespace, out: pathlib.Path, *more: str) -> dict:
    words = [args.program, "train", "--quiet", "--overwrite", "--data", "generated"]
    words += ["--model", args.model, "--batch", args.batch, "--steps", args.steps]
    words += ["--workers", WORKERS, "--threads", 1, "--eval-every", 0, "--measure-every", 0]
    words += ["--generated-test", 16, "--out", out, *more]
    trainings.train(words)
    return json.loads((out / "summary.json").read_text())


def computing(out: pathlib.Path) -> float:
    """The median of a step's computing, without the first steps."""
    lines = (out / "metrics.jsonl").read_text().splitlines()[3:]
    return statistics.median(json.loads(line)["seconds"]["compute"] for line in lines)


def compare(args: argparse.Namespace) -> list[dict]:
    recorded = args.out / "recorded"
    train(args, recorded, "--dump-gradients", "4,8", "--codec", "fp32")
    rows = []
    for codec in args.codecs:
        for link in args.links:
            seconds: dict[str, list[float]] = {"real": [], "emulated": []}
            for _ in range(args.repeats):
                options = ["--codec", codec, "--link", link]
                out = args.out / "real"
                real = train(args, out, *options)
                # Encoding takes a part of the cores while workers compute, so it is this run's.
                wait = f"{1e3 * computing(out):.3f}ms"
                replay = ["--compute", wait, "--replay", str(recorded / "gradients")]
                emulated = train(args, args.out / "emulated", *options, *replay)
                seconds["real"].append(real["median_seconds_per_step"])
                seconds["emulated"].append(emulated["median_seconds_per_step"])
            row = {"codec": codec, "link": link, "computing": wait}
            row |= {way: statistics.median(values) for way, values in seconds.items()}
            row["ratio"] = row["emulated"] / row["real"]
            rows.append(row)
            print(f"{codec} at {link}: emulated / real = {row['ratio']:.3f}", file=sys.stderr)
    return rows


def markdown(rows: list[dict]) -> str:
    lines = [
        "| codec | link | computing | real, s per step | emulated, s per step | ratio |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for r in rows:
        times = f"{r['real']:.4f} | {r['emulated']:.4f} | {r['ratio']:.3f}"
        codec = r["codec"].replace("|", "\\|")  # a bar would end the table's cell
        lines.append(f"| `{codec}` | {r['link']} | {r['computing']} | {times} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--links", nargs="+", default=["20mbit,10ms", "100mbit,10ms"])
    parser.add_argument("--codecs", nargs="+", default=["fp32", "dither:bits=1"])
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch", type=int, default=16, help="images a worker a step (16)")
    parser.add_argument("--steps", type=int, default=30, help="steps of each run (30)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind (3)")
    parser.add_argument("--within", type=float, default=0.1, help="of 1, for each ratio (0.1)")
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "runs/compute_agreement")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows = compare(args)
    table = markdown(rows)
    print(table, end="")
    (args.out / "agreement.md").write_text(table)
    (args.out / "agreement.json").write_text(json.dumps(rows, indent=2) + "\n")
    off = [row for row in rows if abs(row["ratio"] - 1) > args.within]
    if off:
        sys.exit(f"compute_agreement: {len(off)} of {len(rows)} differ by more than allowed")


if __name__ == "__main__":
    main()
