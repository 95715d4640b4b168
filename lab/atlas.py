#!/usr/bin/env python3
"""How much of the time workers compute, by the rate of their links, how often they meet (H),
and the codec of what they send.

    sudo .venv/bin/python lab/atlas.py --out runs/atlas
    sudo .venv/bin/python lab/atlas.py --out runs/atlas18 --model resnet18-32px --batch 4 \\
        --links 5mbit 50mbit 1gbit --every 1 128

Each cell trains by `elastiquant train` on 4 workers (--workers) in network namespaces whose
links tc holds to the rate (lab/netns.py). If this does not run as root, --link emulates the
rate, which all that is written then says. H = 1 is `--algorithm allreduce`; above 1 it is
`local-sgd` (--rounds) with `--every H`.

Utilisation = c / w. c is the seconds that a step takes to compute while the same workers, at
the same time and on the same cores, never meet. w is the wall seconds of whole rounds of H
steps and their exchange, divided by the number of steps. So all that an exchange costs counts
as time not computing: waiting, but also what encoding takes from the cores. Both are means. The
first round is not measured if there is more than one. Where it saves time, links are slow from
the second step on only (late_link.py): before the first one worker 0 sends its weights to all.

A cell takes about --cell-seconds, or one round if that is longer. Runs are kept in OUT/cells;
what is there is not run again, so that an atlas may be stopped, gone on with and extended.
Writes OUT/atlas.json, OUT/table.md and OUT/atlas.png of all cells that were asked for and are
there; --table-only runs nothing.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time

import atlas_plan
import atlas_show
import late_link
import namespaces
import settings
from atlas_plan import Cell

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = ROOT / "build/release/bin/elastiquant"
LINKS = ["1mbit", "5mbit", "20mbit", "50mbit", "200mbit", "1gbit"]
CODECS = ["fp32", "elastic:bits=4", "dither:bits=1"]
# A worker that waits for a slow link is not lost, however long it takes.
PATIENCE = ["--timeout", "120", "--stall-timeout", "0"]


def lines(path: pathlib.Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class Lab:
    """Runs what is not there yet, in the folder `out`."""

    def __init__(self, args: argparse.Namespace, common: dict):
        self.args, self.settings = args, common
        self.cells = args.out / "cells"

    def train(self, out: pathlib.Path, every: int, codec: str, steps: int) -> list[str]:
        s = self.settings
        algorithm = s["algorithms"][0] if every == 1 else s["algorithms"][1]
        words = [self.args.program, "train", "--quiet", "--overwrite", "--out", out]
        words += ["--model", s["model"], "--data", s["data"], "--batch", s["batch"]]
        words += ["--threads", 1, "--eval-every", 0, "--generated-test", 1, "--lr", 1e-3]
        words += ["--measure-every", 0, "--steps", steps, "--codec", codec]
        words += ["--algorithm", algorithm, *(["--every", every] if every > 1 else [])]
        return [str(word) for word in [*words, *PATIENCE, *s["options"]]]

    def run(self, command: list[str], link: str | None, late: pathlib.Path | None) -> None:
        """Raises LabError if the training fails. late: the metrics.jsonl of a training whose
        links are held to their rate from the second step on only."""
        s = self.settings
        if link is not None and s["network"] == "tc":
            self.run_by_tc(command, namespaces.parse_rate(link), late)
            return
        command = [*command, "--workers", str(s["workers"])]
        if link is not None:
            command += ["--link", f"{link},{s['delay']}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise namespaces.LabError(f"`{' '.join(command)}` failed: {done.stderr.strip()}")

    def run_by_tc(self, command: list[str], rate: int, late: pathlib.Path | None) -> None:
        s = self.settings
        delay = namespaces.parse_delay(s["delay"])
        with namespaces.Network(s["workers"], None if late else rate, delay) as network:
            slowed = late_link.LateLink(network, rate, late) if late else None
            network.run(command, quiet=True, meanwhile=slowed)
            if slowed:
                slowed.check()

    def starts_fast(self, cell: Cell, reference: dict) -> bool:
        return self.settings["network"] == "tc" and atlas_plan.starts_fast(
            cell,
            reference["coordinates"],
            self.settings["workers"],
            reference["computing_seconds"],
        )

    def reference(self) -> dict:
        """What a step takes to compute: of workers that meet only after the last one."""
        path = self.args.out / "reference.json"
        if path.exists():
            return json.loads(path.read_text())
        if self.args.table_only:
            raise namespaces.LabError(f"there is no {path}: run this once without --table-only")
        out, steps = self.args.out / "reference", 12
        self.run(self.train(out, steps, "fp32", steps), None, None)
        first = lines(out / "metrics.jsonl")
        steps = atlas_plan.steps_of_reference(first, self.args.cell_seconds)
        self.run(self.train(out, steps, "fp32", steps), None, None)
        summary = json.loads((out / "summary.json").read_text())
        computing = atlas_plan.computing_seconds(lines(out / "metrics.jsonl"))
        shutil.rmtree(out)
        found = {
            "computing_seconds": computing,
            "steps": steps,
            "coordinates": summary["coordinates"],
            "cores": summary["machine"]["cores"],
        }
        path.write_text(json.dumps(found, indent=1) + "\n")
        return found

    def plan(self, cell: Cell, reference: dict) -> atlas_plan.Plan:
        s, computing = self.settings, reference["computing_seconds"]
        size = (reference["coordinates"], s["workers"])
        exchange = atlas_plan.exchange_seconds(
            cell, *size, namespaces.parse_delay(s["delay"]) / 1e6
        )
        start = None
        if not self.starts_fast(cell, reference):
            start = atlas_plan.spreading_seconds(cell, *size)
        return atlas_plan.plan(cell.every, computing, exchange, self.args.cell_seconds, start)

    def measured(self, cell: Cell) -> dict | None:
        path = self.cells / f"{cell.name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def measure(self, cell: Cell, todo: atlas_plan.Plan, reference: dict) -> dict:
        out = self.cells / cell.name
        shutil.rmtree(out, ignore_errors=True)  # of a run that was stopped
        command = self.train(out, cell.every, cell.codec, todo.rounds * cell.every)
        metrics = out / "metrics.jsonl"
        self.run(command, cell.link, metrics if self.starts_fast(cell, reference) else None)
        found = atlas_plan.result(cell, todo, lines(metrics), reference["computing_seconds"])
        found |= {"command": command}
        shutil.rmtree(out)
        # Written as a whole, so that a cell that is there is complete.
        (self.cells / "new").write_text(json.dumps(found, indent=1) + "\n")
        os.replace(self.cells / "new", self.cells / f"{cell.name}.json")
        return found

    def measure_all(self, cells: list[Cell]) -> int:
        """Runs those that are not there; returns how many failed."""
        self.cells.mkdir(exist_ok=True)
        reference = self.reference()
        todo = {c: self.plan(c, reference) for c in cells if self.measured(c) is None}
        left, failed = sum(plan.seconds for plan in todo.values()), 0
        print(
            f"{len(cells)} cells, {len(todo)} of them to run in about {minutes(left)}; "
            f"computing a step takes {reference['computing_seconds']:.3g} s",
            flush=True,
        )
        for number, (cell, plan) in enumerate(todo.items(), 1):
            name = f"{atlas_plan.label(cell.codec)}, H {cell.every}, {cell.link}"
            print(f"[{number}/{len(todo)}] {name}: ", end="", flush=True)
            begun = time.monotonic()
            try:
                found = self.measure(cell, plan, reference)
                said = f"{100 * found['utilisation']:.1f} %, "
                said += f"{found['seconds_per_step']:.3g} s a step"
            except (namespaces.LabError, ValueError) as error:
                failed += 1
                said = f"FAILED: {error}"
            left -= plan.seconds
            took = time.monotonic() - begun
            print(f"{said} (took {took:.0f} s, about {minutes(left)} left)", flush=True)
        return failed


def minutes(seconds: float) -> str:
    return f"{max(0, seconds):.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"


def network_of(args: argparse.Namespace) -> str:
    """tc if it can be had and is not declined."""
    if args.network != "auto":
        return args.network
    return "tc" if os.geteuid() == 0 else "link"


def settings_of(args: argparse.Namespace) -> dict:
    """What all cells of an atlas have in common; raises LabError if OUT's are others."""
    data = args.data or ("generated-text" if args.model.startswith("gpt") else "generated")
    common = {
        "model": args.model,
        "data": data,
        "workers": args.workers,
        "batch": args.batch,
        "delay": args.delay,
        "network": network_of(args),
        "algorithms": ["allreduce", args.rounds],
        "options": args.options,
    }
    return settings.keep(args.out, common, adopt=args.table_only)


def write(args: argparse.Namespace, lab: Lab, cells: list[Cell]) -> None:
    found = [cell for cell in map(lab.measured, cells) if cell]
    if not found:
        raise namespaces.LabError("no cell is there")
    reference = lab.reference()
    atlas = atlas_show.Atlas(lab.settings, reference, found)
    whole = {"settings": lab.settings, "reference": reference, "cells": found}
    (args.out / "atlas.json").write_text(json.dumps(whole, indent=1) + "\n")
    text = atlas_show.table(atlas)
    (args.out / "table.md").write_text(text)
    atlas_show.draw(atlas, args.out / "atlas.png")
    print(text, end="")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/atlas"))
    parser.add_argument("--links", nargs="+", default=LINKS, help="rates of a worker's link")
    parser.add_argument("--every", type=int, nargs="+", default=[1, 8, 32, 128], help="H")
    parser.add_argument("--codecs", nargs="+", default=CODECS)
    parser.add_argument("--delay", default="0ms", help="between any two workers (0ms)")
    parser.add_argument("--model", default="resnet20", help="see `elastiquant models`")
    parser.add_argument("--data", help="of --model (generated, generated-text for gpt)")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16, help="samples a worker a step (16)")
    parser.add_argument("--rounds", default="local-sgd", help="--algorithm where H is above 1")
    parser.add_argument("--network", choices=["auto", "tc", "link"], default="auto")
    parser.add_argument("--cell-seconds", type=float, default=40, help="of a cell (40)")
    parser.add_argument("--program", type=pathlib.Path, default=PROGRAM)
    parser.add_argument("--table-only", action="store_true", help="run nothing")
    parser.add_argument("options", nargs="*", help="more for `elastiquant train`, after --")
    args = parser.parse_args()
    try:
        namespaces.parse_delay(args.delay)
        for link in args.links:
            namespaces.parse_rate(link)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    if min(args.every) < 1 or args.workers < 2:
        parser.error("--every takes numbers of 1 or more, --workers 2 or more")
    return args


def main() -> None:
    args = parse_arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    namespaces.stop_on_signals()
    cells = [
        Cell(codec, every, link)
        for every, codec, link in itertools.product(args.every, args.codecs, args.links)
    ]
    failed = 0
    try:
        lab = Lab(args, settings_of(args))
        if not args.table_only:
            if not args.program.exists():
                raise namespaces.LabError(f"{args.program} is missing: run make build")
            if lab.settings["network"] == "tc":
                namespaces.require_privileges()
            else:
                print("links are EMULATED by --link, not shaped by tc", flush=True)
            failed = lab.measure_all(cells)
        write(args, lab, cells)
    except namespaces.LabError as error:
        sys.exit(f"atlas: {error}")
    except KeyboardInterrupt:
        sys.exit("atlas: stopped; run it again to go on")
    if failed:
        sys.exit(f"atlas: {failed} cells failed; run it again to try them again")


if __name__ == "__main__":
    main()
