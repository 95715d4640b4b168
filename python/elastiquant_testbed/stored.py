"""Results that are kept in the tree: those of `testbed run`, and their pictures."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from elastiquant_testbed import outcomes
from elastiquant_testbed.experiments import EXPERIMENTS
from elastiquant_testbed.testbed import TestbedError

DOCS = Path(__file__).resolve().parent.parent.parent / "docs"
FOLDER = DOCS / "results/reproduction"


def load(folder: Path = FOLDER) -> dict[str, dict]:
    """By experiment; those that were not run yet are not there."""
    paths = {name: folder / f"{name}.json" for name in EXPERIMENTS}
    return {name: json.loads(path.read_text()) for name, path in paths.items() if path.exists()}


def pictures(name: str, folder: Path = FOLDER) -> list[Path]:
    return sorted(folder.glob(f"{name}*.png"))


def take(runs: Path, folder: Path = FOLDER) -> list[str]:
    """Copies what `testbed run --out RUNS` has left, draws it, and returns the names. Outcomes
    of other runs, such as those at length beside those of --quick, stay."""
    results = load(runs)
    for name, result in results.items():
        if "machine" not in result:
            raise TestbedError(
                f"{name}.json does not say how it was made: `testbed run {name}` writes it "
                "again, from what it has kept"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name, result in results.items():
        (folder / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
        outcomes.merge(outcomes.path_of(name, runs), outcomes.path_of(name, folder))
        _draw(name, result, folder)
    return list(results)


def _draw(name: str, result: dict, folder: Path) -> None:
    """Keeps the pixels alone: drawings of vectors, and tables of points, can be made again."""
    _, show = EXPERIMENTS[name]
    for old in pictures(name, folder):
        old.unlink()
    with tempfile.TemporaryDirectory() as drawn:
        show.draw(result, Path(drawn) / name)
        for path in pictures(name, Path(drawn)):
            shutil.copy(path, folder)


def tells_accuracy(result: dict) -> bool:
    """A quick run, or one on generated images, does not. Table 3 trains nothing."""
    return "data" not in result or not (result["quick"] or result["data"] == "generated")
