#!/usr/bin/env python3
"""Loss against bytes: what schemes reach that meet every step, or every so many, in few bits.

    lab/frontier.py --out runs/frontier --data corpus.txt --steps 1000 --seeds 3
    lab/frontier.py --out runs/frontier-resnet --model resnet20 --data CIFAR_FOLDER \\
        --steps 2000 --methods DDP local --every 8 32 --bits fp32 "1 bit" "1/8 bit"
    lab/frontier.py --out runs/frontier --schemes fp32 "local 32, 1/2 bit" "SparseLoCo 32"

Trains by `elastiquant train` on 4 workers (--workers): GPT under AdamW, other models under SGD.
Schemes are all combinations of --methods, --every (H: steps from one exchange to the next) and
--bits, or those of --schemes. Each is trained with seed 1 at every learning rate of --rates,
and with the other seeds at the best one of these.

A run is a folder in OUT/runs; what is there is not run again, so that a frontier may be
stopped, gone on with and extended. A run that fails, as at a rate that is too high, is kept as
such: its failed.txt says why, and it is tried again once that is deleted. Writes OUT/table.md,
OUT/rows.json and OUT/frontier.png of all schemes that were asked for and have runs;
--table-only runs nothing.

Seconds at --links are computed: of a step's computing (the least that any run took, or
--computing), and the bytes that were sent at the rate of the link. With --measure they are
measured, over emulated links, in about --measure seconds for each scheme and link.

With --device cuda a GPU trains instead, with all workers in one process and the package's
VirtualWorkers (python/elastiquant_testbed/on_device). It has DDP, local and DiLoCo, for images.
Give the seconds of a step's computing on your boards as --computing, or --links without any.
--jobs 6 trains as many at a time.
"""

import argparse
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys
import time
from typing import NoReturn

import atlas_plan
import frontier_options
import frontier_plot
import frontier_rows
import frontier_schemes
import namespaces
import settings
import trainings
from frontier_rows import Row
from frontier_schemes import BITS, FP32, Scheme
from trainings import ENDED, GAVE_UP

from elastiquant_testbed import stopping

ON_DEVICE = frontier_options.ROOT / "python/elastiquant_testbed/on_device"
# At a rate that moves next to nothing, steps are timed.
STILL = 1e-6


class Lab:
    """Runs what is not there yet."""

    def __init__(self, args: argparse.Namespace, schemes: list[Scheme]):
        self.args, self.schemes = args, schemes
        self.runs = args.out / "runs"
        self.bits = BITS | args.codecs
        self.done, self.began = 0, time.monotonic()

    def command(self, scheme: Scheme, rate: float, steps: int, out: pathlib.Path) -> list[str]:
        args = self.args
        on_cpu = args.device == "cpu"
        trainer = [args.program, "train"]
        words = trainer if on_cpu else [sys.executable, ON_DEVICE, "--device", args.device]
        words += ["--quiet", "--overwrite", "--out", out]
        words += ["--model", args.model, "--data", args.data, "--precision", args.precision]
        words += ["--workers", args.workers, "--batch", args.batch, "--eval-every", 0]
        words += ["--steps", steps, "--warmup", steps // 10, "--lr", rate]
        words += [*args.optimizer, *scheme.options(self.bits), *args.options]
        return [str(word) for word in words]

    def run(self, command: list[str], out: pathlib.Path) -> dict | None:
        """A run's summary, {"failed": why}, or None if it is not there under --table-only."""
        table_only = self.args.table_only
        return trainings.result_of(out, table_only, lambda: self._trained(command))

    def _trained(self, command: list[str]) -> str:
        """Trains, and returns what the training said if it gave up."""
        done = subprocess.run(command, capture_output=True, text=True)
        self.done += 1
        if done.returncode == 0:
            return ""
        if not GAVE_UP.search(done.stderr):
            raise_why(done, command)
        return done.stderr

    def train(self, scheme: Scheme, rate: float, seed: int) -> dict | None:
        out = self.runs / f"{folder(scheme)}_lr{rate:g}_seed{seed}"
        words = [*self.command(scheme, rate, self.args.steps, out), "--seed", str(seed)]
        if self.args.device == "cpu":
            words += ["--generated-test", str(self.args.tested)]
        is_there = any((out / ended).exists() for ended in ENDED)
        summary = self.run(words, out)
        if summary is not None and not is_there:
            said = "FAILED" if "failed" in summary else f"{frontier_rows.loss_of(summary):.4f}"
            print(f"{scheme.name}, lr {rate:g}, seed {seed}: {said}{self.left()}", flush=True)
        return summary

    def train_at_once(self) -> None:
        """Makes all runs, so many at a time; what comes after finds them there."""
        with stopping.pool(self.args.jobs) as pool:
            firsts = [(s, rate, 1) for s in self.schemes for rate in self.args.rates]
            made = zip(firsts, pool.map(lambda run: self.train(*run), firsts), strict=True)
            by: dict[Scheme, dict[float, dict]] = {}
            for (scheme, rate, _), summary in made:
                by.setdefault(scheme, {})[rate] = summary
            seeds = range(2, self.args.seeds + 1)
            others = [(s, frontier_rows.best_rate(by[s]), n) for n in seeds for s in by]
            list(pool.map(lambda run: self.train(*run), others))

    def left(self) -> str:
        """What is left to do, going by how long runs have taken so far."""
        runs = len(self.schemes) * (len(self.args.rates) + self.args.seeds - 1)
        there = sum(
            1
            for scheme in self.schemes
            for ended in ENDED
            for _ in self.runs.glob(f"{folder(scheme)}_*/{ended}")
        )
        seconds = (time.monotonic() - self.began) / self.done * max(0, runs - there)
        return f" (run {there} of {runs}, about {seconds / 60:.0f} min left)"

    def row(self, scheme: Scheme) -> Row | None:
        """None if there are no runs of it, or all have failed."""
        by_rate = {
            rate: summary
            for rate in self.args.rates
            if (summary := self.train(scheme, rate, 1)) is not None
        }
        if not by_rate:
            return None
        rate = frontier_rows.best_rate(by_rate)
        others = {
            seed: summary
            for seed in range(2, self.args.seeds + 1)
            if (summary := self.train(scheme, rate, seed))
        }
        try:
            return frontier_rows.row(scheme, by_rate, others, self.args.seeds)
        except ValueError as error:
            print(error, file=sys.stderr)
            return None

    def measured_seconds(self, row: Row, link: str, computing: float) -> float | None:
        """Of a step over an emulated link: the mean over whole rounds, but for the first."""
        scheme = row.scheme
        exchange = frontier_rows.exchange_seconds(row, link)
        plan = atlas_plan.plan(scheme.every, computing, exchange, self.args.measure, start=0)
        # The first step of DDP in a metric is one of full precision.
        unmeasured = max(plan.unmeasured, 1 if scheme.method == frontier_schemes.DDP else 0)
        steps = (unmeasured + plan.measured) * scheme.every
        out = self.args.out / "timed" / f"{folder(scheme)}_{link.replace(',', '_')}"
        words = self.command(scheme, STILL, steps, out)
        words += ["--link", link, "--generated-test", "1"]
        if scheme.method == frontier_schemes.DDP and "adamw" in words:
            words += ["--exact-steps", "1"]
        words += ["--timeout", "120", "--stall-timeout", "0"]
        summary = self.run(words, out)
        if summary is None or "failed" in summary:
            return None
        lines = (out / "metrics.jsonl").read_text().splitlines()
        # The run may be one of another plan, but the first of several rounds never counts.
        first = scheme.every if len(lines) > scheme.every else 0
        return statistics.fmean(json.loads(line)["seconds"]["total"] for line in lines[first:])

    def computing(self, rows: list[Row]) -> float:
        """Seconds that a step takes to compute: the least of all runs, as what else runs on the
        machine only slows it."""
        if self.args.computing:
            return self.args.computing
        summaries = []
        for row in rows:
            path = self.runs / f"{folder(row.scheme)}_lr{row.rate:g}_seed1" / "summary.json"
            summaries.append(json.loads(path.read_text()))
        return min(s["seconds"]["compute"] / s["steps"] for s in summaries)

    def seconds(self, rows: list[Row], computing: float) -> dict[str, list[float | None]]:
        found = {}
        for row in rows:
            found[row.scheme.name] = [
                self.measured_seconds(row, link, computing)
                if self.args.measure
                else frontier_rows.computed_seconds(row, link, computing)
                for link in self.args.links
            ]
        return found


def check_settings(args: argparse.Namespace) -> None:
    """Raises LabError if OUT has runs that are not like those asked for."""
    common = {key: getattr(args, key) for key in frontier_options.KEPT}
    common |= {"codecs": {bits: codec.codec for bits, codec in (BITS | args.codecs).items()}}
    settings.keep(args.out, common, adopt=args.table_only, before=frontier_options.BEFORE)


def raise_why(done: subprocess.CompletedProcess, command: list[str]) -> NoReturn:
    """Ends the script where a training was ended or could not run: it is to be made again."""
    # A signal has ended it, such as that of Ctrl-C, of which `train` and `on_device` tell.
    if done.returncode < 0 or re.search(r"stopped by SIG|^stopped$", done.stderr, re.MULTILINE):
        raise KeyboardInterrupt
    words = done.stderr.strip() or f"exit code {done.returncode}"
    raise namespaces.LabError(f"a training failed: {words}\nIts command: {' '.join(command)}")


def folder(scheme: Scheme) -> str:
    return "".join(c if c.isalnum() else "-" for c in scheme.name)


def notes(args: argparse.Namespace, rows: list[Row], computing: float) -> str:
    """What the table's reader must know."""
    how = (
        f"computed: {computing:.3g} s of computing, and the bytes at the link's rate"
        if not args.measure
        else "measured over links that --link emulates"
    )
    lines = [
        f"\n{describe(args)}. In bold: no other scheme has a lower loss with as few bytes. "
        "Losses by rate are of seed 1. "
        + (f"Seconds are of a step and {how}." if args.links else "")
    ]
    if few := [row.scheme.name for row in rows if len(row.losses) < row.seeds]:
        lines.append(
            f"\n**Not all {args.seeds} seeds count**, as runs failed or are not there: "
            f"{'; '.join(few)}. Failed runs are in means neither of losses nor of bytes."
        )
    for per_cent, times in frontier_plot.TARGETS:
        best = frontier_rows.reached(rows, per_cent)
        text = "no scheme"
        if best is not rows[0]:
            text = (
                f"{best.scheme.name}, with {frontier_rows.fewer(best, rows[0]):.0f} times fewer"
            )
        lines.append(
            f"\nWithin {per_cent:g} % of fp32's loss (target: {times} times fewer bytes): "
            f"{text}."
        )
    return "\n".join(lines) + "\n"


def describe(args: argparse.Namespace) -> str:
    optimizer = "AdamW" if args.optimizer is frontier_options.ADAMW else "SGD"
    seeds = f"up to {args.seeds} seeds" if args.seeds > 1 else "1 seed"
    rates = f"a learning rate of {args.rates[0]:g}"
    if len(args.rates) > 1:
        rates = f"each scheme at the best of {len(args.rates)} learning rates"
    return (
        f"{args.model} under {optimizer}, {args.workers} workers with batches of {args.batch}, "
        f"{args.steps} steps, {rates}, {seeds}"
    )


def write(args: argparse.Namespace, lab: Lab, rows: list[Row]) -> None:
    computing = lab.computing(rows) if args.links else 0.0
    seconds = lab.seconds(rows, computing)
    text = frontier_rows.table(
        rows,
        args.rates,
        args.links,
        seconds,
        accuracy=args.optimizer is not frontier_options.ADAMW,
    )
    text += notes(args, rows, computing)
    (args.out / "table.md").write_text(text)
    whole = [
        row._asdict() | {"scheme": row.scheme.name, "seconds": seconds[row.scheme.name]}
        for row in rows
    ]
    (args.out / "rows.json").write_text(json.dumps(whole, indent=1) + "\n")
    frontier_plot.draw(rows, describe(args), args.out / "frontier.png")
    print(text, end="")


def main() -> None:
    args = frontier_options.parse(__doc__)
    if not args.table_only and not args.program.exists():
        sys.exit(f"frontier: {args.program} is missing: run make build")
    args.out.mkdir(parents=True, exist_ok=True)
    schemes = args.schemes or frontier_schemes.grid(args.methods, args.every, args.bits)
    lab = Lab(args, schemes)
    try:
        check_settings(args)
        if args.jobs > 1 and not args.table_only:
            lab.train_at_once()
        rows = [row for row in map(lab.row, schemes) if row]
        if not rows or rows[0].scheme != FP32 or rows[0].loss == math.inf:
            sys.exit("frontier: there is no run of fp32, with which the others are compared")
        write(args, lab, rows)
    except namespaces.LabError as error:
        sys.exit(f"frontier: {error}")
    except KeyboardInterrupt:
        sys.exit("frontier: stopped; run it again to go on")


if __name__ == "__main__":
    stopping.on_signals()
    main()
