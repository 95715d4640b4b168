#!/usr/bin/env python3
"""Holds `elastiquant train --link RATE` against links that the kernel truly shapes.

    sudo lab/link_agreement.py --rates 20mbit 200mbit --out runs/link_agreement

Runs the same short training twice for each codec and rate: once as local processes that pace
their own traffic, once in network namespaces whose links tc holds to the rate. Prints the
seconds per step side by side with their ratio, and writes them to agreement.md and
agreement.json. The paced link counts TCP, IP and Ethernet headers as tc does, but not TCP's
acknowledgements or its slow start, so a ratio a little above 1 is right.
"""

import argparse
import json
import pathlib
import subprocess
import sys

import netns

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/elastiquant"


def train(arguments: argparse.Namespace, codec: str, out: pathlib.Path) -> list[str]:
    return [
        *(str(PROGRAM), "train", "--quiet", "--overwrite", "--data", "generated"),
        *("--model", arguments.model, "--codec", codec, "--out", str(out)),
        *("--steps", str(arguments.steps), "--batch", str(arguments.batch), "--threads", "1"),
    ]


def seconds_per_step(out: pathlib.Path) -> float:
    return json.loads((out / "summary.json").read_text())["seconds_per_step"]


def paced(arguments: argparse.Namespace, codec: str, rate: str, out: pathlib.Path) -> float:
    command = [*train(arguments, codec, out), "--workers", str(arguments.nodes), "--link", rate]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise netns.LabError(f"`{' '.join(command)}` failed:\n{done.stderr}")
    return seconds_per_step(out)


def shaped(arguments: argparse.Namespace, codec: str, rate: str, out: pathlib.Path) -> float:
    with netns.Network(arguments.nodes, netns.parse_rate(rate)) as network:
        network.run(train(arguments, codec, out))
    return seconds_per_step(out)


def compare(arguments: argparse.Namespace) -> list[dict]:
    rows = []
    for number, codec in enumerate(arguments.codecs):
        for rate in arguments.rates:
            out = arguments.out / f"codec{number}_{rate}"
            row = {
                "codec": codec,
                "rate": rate,
                "paced_seconds_per_step": paced(arguments, codec, rate, out / "paced"),
                "shaped_seconds_per_step": shaped(arguments, codec, rate, out / "shaped"),
            }
            row["ratio"] = row["shaped_seconds_per_step"] / row["paced_seconds_per_step"]
            rows.append(row)
            print(f"{codec} at {rate}: tc / --link = {row['ratio']:.3f}", file=sys.stderr)
    return rows


def markdown(rows: list[dict]) -> str:
    lines = [
        "| codec | link | `--link`, s per step | `tc`, s per step | ratio |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        times = f"{row['paced_seconds_per_step']:.4f} | {row['shaped_seconds_per_step']:.4f}"
        lines.append(f"| `{row['codec']}` | {row['rate']} | {times} | {row['ratio']:.3f} |")
    # The bar of a spec such as elastic|rans would end the table's cell.
    return "\n".join(line.replace("|rans", "\\|rans") for line in lines) + "\n"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rates", nargs="+", default=["20mbit", "50mbit", "200mbit"])
    parser.add_argument("--codecs", nargs="+", default=["fp32", "elastic:bits=4"])
    parser.add_argument("--nodes", type=int, default=4, help="workers (4)")
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--batch", type=int, default=16, help="images a worker a step (16)")
    parser.add_argument("--steps", type=int, default=30, help="steps of each run (30)")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "runs/link_agreement")
    arguments = parser.parse_args()
    for rate in arguments.rates:
        try:
            netns.parse_rate(rate)
        except argparse.ArgumentTypeError as error:
            parser.error(str(error))
    return arguments


def main() -> None:
    arguments = parse_arguments()
    netns.stop_on_signals()
    try:
        netns.require_privileges()
        if not PROGRAM.exists():
            raise netns.LabError(f"{PROGRAM} is missing: run make build")
        rows = compare(arguments)
    except netns.LabError as error:
        sys.exit(f"link_agreement: {error}")
    except KeyboardInterrupt:
        sys.exit("link_agreement: stopped; the namespaces are gone")
    table = markdown(rows)
    print(table, end="")
    (arguments.out / "agreement.md").write_text(table)
    (arguments.out / "agreement.json").write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
