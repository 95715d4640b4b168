"""Results that are kept in the tree: those of `testbed run`, and their pictures."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from elastiquant_testbed import files, outcomes, provenance
from elastiquant_testbed.experiments import EXPERIMENTS
from elastiquant_testbed.say import say
from elastiquant_testbed.testbed import TestbedError, is_of_sources

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
FOLDER = DOCS / "results/reproduction"


def load(folder: Path = FOLDER) -> dict[str, dict]:
    """By experiment; those that were not run yet are not there."""
    paths = {name: folder / f"{name}.json" for name in EXPERIMENTS}
    return {name: files.read_json(path) for name, path in paths.items() if path.exists()}


def pictures(name: str, folder: Path = FOLDER) -> list[Path]:
    return sorted(folder.glob(f"{name}*.png"))


def take(runs: Path, folder: Path = FOLDER) -> list[str]:
    """Copies what `testbed run --out RUNS` has left, draws it, and returns the names. Outcomes
    of other runs, such as those at length beside those of --quick, stay. A result that tells
    less than the one that is stored is skipped, and so is one of another testbed than the
    sources', with whose numbers it cannot be compared; that is said."""
    results, there = load(runs), load(folder)
    for name, result in results.items():
        if "machine" not in result:
            raise TestbedError(
                f"{name}.json does not say how it was made: `testbed run {name}` writes it "
                "again, from what it has kept"
            )
    for name in [name for name in results if not is_of_sources(results[name])]:
        file = results[name]["testbed"]["file"]
        say(f"{name} is not stored: it is of the testbed {file}, not that of the sources")
        del results[name]
    for name in [name for name in results if name in there]:
        if less := _less(results[name], there[name]):
            say(
                f"{name} is not stored: {less}. To store it all the same, first delete "
                f"{folder / name}.json"
            )
            del results[name]
    folder.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        _draw(name, result, folder)  # first, as it may fail
        outcomes.merge(outcomes.path_of(name, runs), outcomes.path_of(name, folder))
        files.write_json(folder / f"{name}.json", result)
    return list(results)


def _less(result: dict, there: dict) -> str:
    """In what a result tells less than the one that is stored; empty if in nothing."""
    ours, theirs = lacks(result), lacks(there)
    if more := ours - theirs:
        return f"it is {' and '.join(sorted(more))}, and what is stored is not"
    if theirs - ours:
        return ""
    judged = [{check["claim"] for check in of["checks"]} for of in (result, there)]
    if left := len(judged[1] - judged[0]):
        return (
            f"it does not judge {left} of {len(judged[1])} claims that are judged by what is "
            "stored, which `testbed run --known` extends"
        )
    for what in ("cells", "rows", "series", "seeds"):
        ours, theirs = (len(of.get(what, [])) for of in (result, there))
        if ours < theirs:
            return f"it has {ours} {what}, and what is stored has {theirs}"
    ours, theirs = map(_accuracies, (result, there))
    if ours < theirs:
        return f"it rests on {ours} accuracies of single seeds, and what is stored on {theirs}"
    if result.get("device", "cpu") == "cpu" and there.get("device") == "cuda":
        return "it was trained on CPUs, for fewer epochs, and what is stored on a GPU"
    return ""


def _accuracies(result: dict) -> int:
    """How many accuracies of single seeds there are, or numbers of rounds in DAGC's rows."""
    rows = result.get("rows", []) + result.get("cells", [])
    return sum(len(row.get("accuracy_by_seed", row.get("rounds_by_seed", []))) for row in rows)


def lacks(result: dict) -> set[str]:
    """The reasons why the numbers of a result say little of its claims."""
    found = {
        "of --quick": result["quick"],
        "of generated images": result.get("data") == "generated",
        # As table 3 has it that was run without root.
        "of links that each process paces": result.get("network", provenance.NAMESPACES)
        != provenance.NAMESPACES,
        "of a fit that failed": (result.get("fit") or {}).get("fitted") is False,
    }
    return {words for words, holds in found.items() if holds}


def _draw(name: str, result: dict, folder: Path) -> None:
    """Keeps the pixels alone: drawings of vectors, and tables of points, can be made again."""
    _, show = EXPERIMENTS[name]
    with tempfile.TemporaryDirectory() as drawn:
        show.draw(result, Path(drawn) / name)
        for old in pictures(name, folder):
            old.unlink()
        for path in pictures(name, Path(drawn)):
            shutil.copy(path, folder)
