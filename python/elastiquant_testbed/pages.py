"""Writes what docs/reproduction.md has of stored results, and leaves its words as they are."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from elastiquant_testbed import curves, files, judging, provenance, stored, summary
from elastiquant_testbed.experiments import EXPERIMENTS, require_plots
from elastiquant_testbed.testbed import TestbedError

PAGE = stored.DOCS / "reproduction.md"
POINTS = stored.FOLDER / "curves.csv"  # of the figures, for those who draw them otherwise
SUMMARY = "summary"


def marks(name: str) -> tuple[str, str]:
    return (
        f"<!-- begin of what make reproduction writes: {name} -->",
        f"<!-- end of what make reproduction writes: {name} -->",
    )


def render(page: str, results: dict[str, dict]) -> str:
    parts = {SUMMARY: summary.text(results)}
    parts |= {name: section(name, results.get(name)) for name in EXPERIMENTS}
    for name, text in parts.items():
        page = insert(page, name, text)
    return page


def insert(page: str, name: str, text: str) -> str:
    begin, end = marks(name)
    before, found, rest = page.partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise TestbedError(f"the page has no place for {name}: add the lines\n{begin}\n{end}")
    return f"{before}{begin}\n\n{text.rstrip()}\n\n{end}{after}"


def section(name: str, result: dict | None) -> str:
    if result is None:
        wanted = provenance.command(name, {"quick": False, "data": "a folder"})
        return (
            f"**Not run yet**: `{wanted}`, then `make reproduction RUNS={provenance.OUT}`. "
            "`--quick` shows in minutes that it works."
        )
    _, show = EXPERIMENTS[name]
    _, _, body = show.text(result).partition("\n\n")  # the page has a heading of its own
    shown = [
        f"![{path.stem}]({path.relative_to(stored.DOCS).as_posix()})"
        for path in stored.pictures(name)
    ]
    return "\n\n".join([made(result), *shown, body])


def made(result: dict) -> str:
    seeds = ", ".join(map(str, result["seeds"]))
    several = "seeds" if len(result["seeds"]) > 1 else "seed"
    where = f"Measured on: {result['machine']}; {several} {seeds}."
    return f"```sh\n{result['command']}\n```\n\n{where}"


def judge_again(folder: Path = stored.FOLDER) -> dict[str, dict]:
    """Stored results by experiment. Their files get the checks that today's code makes."""
    results = {}
    for name, result in stored.load(folder).items():
        results[name] = judging.judged(name, result)
        if results[name] != result:
            files.write_json(folder / f"{name}.json", results[name])
    return results


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="scripts/reproduction.py", description=__doc__)
    parser.add_argument(
        "--runs", type=Path, help="folder of `testbed run`, whose results are stored first"
    )
    options = parser.parse_args(arguments)
    try:
        if options.runs:
            require_plots()  # before anything is stored
            print(f"stored: {', '.join(stored.take(options.runs)) or 'nothing'}")
        results = judge_again()
        files.replace(PAGE, render(PAGE.read_text(), results))
        if "curves" in results:
            curves.write_csv(results["curves"]["series"], POINTS)
    except TestbedError as error:
        print(f"scripts/reproduction.py: {error}", file=sys.stderr)
        return 1
    return 0
