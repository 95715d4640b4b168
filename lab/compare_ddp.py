#!/usr/bin/env python3
"""PyTorch's own ways to send gradients beside ElastiQuant's, over several emulated links.

    sudo lab/compare_ddp.py --out runs/compare_ddp
    sudo lab/compare_ddp.py --out runs/compare_ddp --rates 20mbit --methods fp32 dither:bits=2

Each method trains with DistributedDataParallel on 4 workers (--nodes) in network namespaces of
their own (lab/netns.py). What was measured is kept in OUT/measured.jsonl: what is there is not
measured again, so that a comparison may be stopped, and gone on with. Then OUT/table.md and
OUT/seconds.png are made of all that is there, the fastest of --repeats. Where a method hangs
or crashes, the table says so.
"""

import argparse
import collections
import contextlib
import itertools
import json
import math
import os
import pathlib
import re
import subprocess
import sys

import namespaces
import settings

LAB = pathlib.Path(__file__).resolve().parent
ROOT = LAB.parent
BUILT = ROOT / "build/release/python"  # the package, where `make build` leaves it
sys.path.insert(0, str(ROOT / "python"))

METHODS = [
    "fp32",
    "fp16",
    "bf16",
    "torch-powersgd1",
    "torch-powersgd2",
    "torch-powersgd4",
    "elastic:bits=4",
    "elastic:bits=3,levels=uniform,rounding=dither|rans",
    "dither:bits=2",
    "dither:bits=1",
    "powersgd:rank=2|ef",
]
# What netns.py says where it has failed itself, and not a worker with its method.
LABS_OWN = re.compile(r"^netns: (?!worker \d)(.*)", re.MULTILINE)
LEAVING = 30  # seconds for netns.py to take its namespaces down
RATES = ["10mbit", "20mbit", "50mbit", "200mbit", "1gbit", "none"]


def measure(method: str, rate: str, arguments: argparse.Namespace) -> dict:
    steps = arguments.steps
    command = [sys.executable, str(LAB / "netns.py"), "--nodes", str(arguments.nodes)]
    if rate != "none":
        command += ["--rate", rate]
    command += ["--", sys.executable, str(LAB / "ddp_methods.py"), "--method", method]
    command += ["--model", arguments.model, "--batch", str(arguments.batch)]
    command += ["--warm-up", str(arguments.warm_up), "--steps", str(steps)]
    if arguments.switch:
        command.append("--switch")
    if arguments.data:
        command += ["--data", str(arguments.data), "--test"]
    what = {"method": method, "rate": rate, "model": arguments.model}
    try:
        done = run(command, arguments.limit)
    except subprocess.TimeoutExpired:
        hung = f"hung: no result after {arguments.limit} s"
        return {**what, "failed": hung, "limit": arguments.limit}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode != 0 and (said := LABS_OWN.search(done.stderr)):
        raise namespaces.LabError(said[1])
    if done.returncode != 0 or not lines:
        return {**what, "failed": (done.stderr.strip().splitlines() or ["no output"])[-1]}
    return {**json.loads(lines[-1]), **what}


def run(command: list[str], limit: float) -> subprocess.CompletedProcess[str]:
    """Runs netns.py. Raises TimeoutExpired after `limit` seconds. Whatever interrupts it,
    netns.py takes its namespaces down."""
    package = os.pathsep.join([str(BUILT), os.environ.get("PYTHONPATH", "")])
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": package},
        process_group=0,  # so that Ctrl-C does not signal it beside us
    ) as netns:
        try:
            output, errors = netns.communicate(timeout=limit)
        except BaseException:
            netns.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                netns.communicate(timeout=LEAVING)
            netns.kill()
            subprocess.run([sys.executable, str(LAB / "netns.py"), "--clean-up"], check=False)
            raise
    return subprocess.CompletedProcess(command, netns.returncode, output, errors)


def read(path: pathlib.Path) -> list[dict]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def fastest(measured: list[dict]) -> dict[tuple[str, str], dict]:
    """By method and rate: the fastest repeat, as other tenants of a machine only slow it."""
    best: dict[tuple[str, str], dict] = {}
    for result in measured:
        known = best.setdefault((result["method"], result["rate"]), result)
        if seconds_of(result) < seconds_of(known):
            best[result["method"], result["rate"]] = result
    return best


def seconds_of(result: dict) -> float:
    return math.inf if "failed" in result else result["seconds_per_step"]


def bits_per_second(rate: str) -> float:
    return math.inf if rate == "none" else namespaces.parse_rate(rate)


def is_theirs(method: str) -> bool:
    return method in ("fp32", "fp16", "bf16") or method.startswith("torch-")


def cell(result: dict | None, base: dict | None) -> str:
    """Seconds a step, and how many times as fast as fp32 that is."""
    if result is None:
        return ""
    if "failed" in result:
        return "hangs" if result["failed"].startswith("hung") else "fails"
    seconds = result["seconds_per_step"]
    if base is None or base is result or "failed" in base:
        return f"{seconds:.3f}"
    return f"{seconds:.3f} ({base['seconds_per_step'] / seconds:.1f}×)"


def table(measured: list[dict], rates: list[str], methods: list[str]) -> str:
    known = fastest(measured)
    heads = ["KB/step", *rates]
    if any(r.get("test_accuracy") for r in measured):
        heads.append("test accuracy %")
    lines = [
        "| method | " + " | ".join(heads) + " |",
        "| --- |" + " ---: |" * len(heads),
    ]
    for method in methods:
        results = [known.get((method, rate)) for rate in rates]
        sizes = [r["bytes_per_step"] for r in results if r and "failed" not in r]
        cells = [f"{min(sizes) / 1e3:.0f}" if sizes else ""]
        cells += [
            cell(r, known.get(("fp32", rate))) for r, rate in zip(results, rates, strict=True)
        ]
        if len(heads) > len(cells):
            found = [r["test_accuracy"] for r in results if r and r.get("test_accuracy")]
            cells.append(f"{found[0]:.1f}" if found else "")
        name = method.replace("|", "\\|")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def draw(
    measured: list[dict], rates: list[str], methods: list[str], stem: pathlib.Path
) -> None:
    """PyTorch's methods are grey, told apart by their marks."""
    import elastiquant_plot as look

    known = {k: m for k, m in fastest(measured).items() if "failed" not in m}
    if not known:
        return
    workers = next(iter(known.values()))["world_size"]
    lines, names, details = [], [], []
    colours, marks = itertools.cycle(look.SERIES), itertools.cycle(look.MARKERS)
    with look.style():
        fig, (axes,) = look.figure(
            "Seconds per step over slow links, by how gradients are sent",
            f"DistributedDataParallel, {measured[0]['model']}, {workers} workers "
            f"on one machine of {os.cpu_count()} cores, links held to a rate by tc; grey: "
            "PyTorch's own",
            height=5.4,
        )
        for method in methods:
            results = [known.get((method, rate)) for rate in rates]
            if not any(results):
                continue
            theirs = is_theirs(method)
            (line,) = axes.plot(
                [x for x, r in enumerate(results) if r],
                [r["seconds_per_step"] for r in results if r],
                marker=next(marks) if theirs else "o",
                color=look.BASELINE if theirs else next(colours),
                linestyle=":" if theirs else "-",
            )
            lines.append(line)
            names.append(method)
            details.append(
                f"{min(r['bytes_per_step'] for r in results if r) / 1e3:.0f} KB a step"
            )
        axes.set_yscale("log")
        for which in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
            which("{x:.2g}")
        axes.set_xticks(range(len(rates)), ["no limit" if r == "none" else r for r in rates])
        axes.set_title("seconds per step")
        look.layout(fig, key=True)
        look.name_series(fig, lines, names, details)
        look.save(fig, stem)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--rates", nargs="+", default=RATES, help="of tc, or none")
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--warm-up", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=1, help="of each, in turn (1)")
    parser.add_argument("--limit", type=int, default=300, help="seconds for a method (300)")
    parser.add_argument("--switch", action="store_true", help="send fp32 where that is faster")
    parser.add_argument("--data", type=pathlib.Path, help="train and test on CIFAR-10")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    names = ("model", "nodes", "batch", "steps", "warm_up", "switch", "data")
    settings.keep_arguments(arguments, names, adopt=False)
    namespaces.stop_on_signals()
    log = arguments.out / "measured.jsonl"
    # What hung may end within a longer limit.
    kept = [m for m in read(log) if m.get("limit", math.inf) >= arguments.limit]
    have = collections.Counter((m["method"], m["rate"]) for m in kept)
    every = itertools.product(range(arguments.repeats), arguments.rates, arguments.methods)
    for repeat, rate, method in every:
        if have[method, rate] > repeat:
            continue
        try:
            result = measure(method, rate, arguments)
        except namespaces.LabError as error:
            sys.exit(f"compare_ddp: {error}")
        with log.open("a") as file:
            file.write(json.dumps(result) + "\n")
        shown = result.get("failed") or f"{result['seconds_per_step']:.3f} s a step"
        print(f"{rate:>8}  {method:52}  {shown}", flush=True)
    measured = read(log)
    rates = sorted(arguments.rates, key=bits_per_second)
    text = table(measured, rates, arguments.methods)
    (arguments.out / "table.md").write_text(text)
    print(text)
    draw(measured, rates, arguments.methods, arguments.out / "seconds")
    return 0


if __name__ == "__main__":
    sys.exit(main())
