#!/usr/bin/env python3
"""Holds `elastiquant train --link RATE[,DELAY]` against links that the kernel truly shapes.

    sudo lab/link_agreement.py --links 20mbit 20mbit,10ms --out runs/link_agreement

Runs the same short training twice for each codec and link: once as local processes that pace
their own traffic, once in network namespaces whose links tc holds to the rate, with a switch
that delays every frame. The two take turns; each number is the median over these runs of the
runs' median seconds per step. Prints them side by side with their ratio, and writes them to
agreement.md and agreement.json. The batch is small, because the workers of both runs share this
machine's cores, but only in the namespaces does the kernel's work on frames take part of them.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import namespaces

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/elastiquant"
LINKS = ["20mbit", "20mbit,10ms", "100mbit", "100mbit,10ms", "200mbit", "200mbit,10ms"]
CODECS = [
    "fp32",
    "elastic:bits=4",
    "elastic:bits=4,levels=uniform,rounding=dither,bucket=4096|rans",
]


def train(arguments: argparse.Namespace, codec: str, out: pathlib.Path) -> list[str]:
    return [
        *(str(PROGRAM), "train", "--quiet", "--overwrite", "--data", "generated"),
        *("--model", arguments.model, "--codec", codec, "--out", str(out), "--eval-every", "0"),
        *("--steps", str(arguments.steps), "--batch", str(arguments.batch), "--threads", "1"),
    ]


def seconds_per_step(out: pathlib.Path) -> float:
    return json.loads((out / "summary.json").read_text())["median_seconds_per_step"]


def paced(arguments: argparse.Namespace, codec: str, link: str, out: pathlib.Path) -> float:
    command = [*train(arguments, codec, out), "--workers", str(arguments.nodes), "--link", link]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise namespaces.LabError(f"`{' '.join(command)}` failed:\n{done.stderr}")
    return seconds_per_step(out)


def shaped(arguments: argparse.Namespace, codec: str, link: str, out: pathlib.Path) -> float:
    with namespaces.Network(arguments.nodes, *namespaces.parse_link(link)) as network:
        network.run(train(arguments, codec, out))
    return seconds_per_step(out)


def compare(arguments: argparse.Namespace) -> list[dict]:
    rows = []
    for number, codec in enumerate(arguments.codecs):
        for link in arguments.links:
            out = arguments.out / f"codec{number}_{link.replace(',', '_')}"
            seconds: dict = {paced: [], shaped: []}
            for _ in range(arguments.repeats):
                for way, measured in seconds.items():
                    measured.append(way(arguments, codec, link, out / way.__name__))
            row = {
                "codec": codec,
                "link": link,
                "paced_seconds_per_step": statistics.median(seconds[paced]),
                "shaped_seconds_per_step": statistics.median(seconds[shaped]),
            }
            row["ratio"] = row["shaped_seconds_per_step"] / row["paced_seconds_per_step"]
            rows.append(row)
            print(f"{codec} at {link}: tc / --link = {row['ratio']:.3f}", file=sys.stderr)
    return rows


def markdown(rows: list[dict]) -> str:
    lines = [
        "| codec | link | `--link`, s per step | `tc`, s per step | ratio |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        times = f"{row['paced_seconds_per_step']:.4f} | {row['shaped_seconds_per_step']:.4f}"
        codec = row["codec"].replace("|", "\\|")  # a bar would end the table's cell
        lines.append(f"| `{codec}` | {row['link']} | {times} | {row['ratio']:.3f} |")
    return "\n".join(lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--links", nargs="+", default=LINKS, help="each RATE or RATE,DELAY")
    parser.add_argument("--codecs", nargs="+", default=CODECS)
    parser.add_argument("--nodes", type=int, default=4, help="workers (4)")
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch", type=int, default=2, help="images a worker a step (2)")
    parser.add_argument("--steps", type=int, default=30, help="steps of each run (30)")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each kind (3)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "runs/link_agreement")
    arguments = parser.parse_args()
    for link in arguments.links:
        try:
            namespaces.parse_link(link)
        except argparse.ArgumentTypeError as error:
            parser.error(str(error))
    return arguments


def main() -> None:
    arguments = parse_arguments()
    namespaces.stop_on_signals()
    try:
        namespaces.require_privileges()
        if not PROGRAM.exists():
            raise namespaces.LabError(f"{PROGRAM} is missing: run make build")
        rows = compare(arguments)
    except namespaces.LabError as error:
        sys.exit(f"link_agreement: {error}")
    except KeyboardInterrupt:
        sys.exit("link_agreement: stopped; the namespaces are gone")
    table = markdown(rows)
    print(table, end="")
    (arguments.out / "agreement.md").write_text(table)
    (arguments.out / "agreement.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
