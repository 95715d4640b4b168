"""Runs of `elastiquant train` that an experiment needs, each made once and kept."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import emulation, words
from elastiquant_testbed.checks import Claim
from elastiquant_testbed.say import say
from elastiquant_testbed.testbed import Testbed, TestbedError


class Run(NamedTuple):
    """One of an experiment's runs."""

    name: str  # for people and for folders
    options: tuple[str, ...]  # for `train`, but --out and --seed
    seed: int = 1

    @property
    def folder(self) -> str:
        """A name of its own for each set of options, so that no other run is taken for it."""
        print_of = hashlib.sha256(json.dumps(self.options).encode()).hexdigest()[:8]
        plain = "".join(c if c.isalnum() else "-" for c in self.name)
        return f"{plain}_seed{self.seed}_{print_of}"


class Outcome(NamedTuple):
    summary: dict
    steps: list[dict]  # lines of metrics.jsonl


def options(**named: object) -> tuple[str, ...]:
    """options(eval_every=1) is --eval-every 1."""
    words: list[str] = []
    for name, value in named.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    return tuple(words)


class Experiment:
    """One that trains, and times nothing: it has no use for a testbed."""

    name = ""  # of its folder

    def __init__(self, testbed: Testbed | None, out: Path, quick: bool, data: str):
        del testbed
        self.quick, self.data = quick, data
        self.folder = out / ("quick" if quick else "full") / self.name

    def images(self, train: int, test: int) -> dict[str, object]:
        """Options of `train`: so many images, if they are generated."""
        generated = {"generated-train": train, "generated-test": test}
        return {"data": self.data, **(generated if self.data == "generated" else {})}

    def result(self, claims: list[Claim], runs: Runs, **found: object) -> dict:
        """What every experiment tells, after what this one has found."""
        return {
            **found,
            "checks": words.as_dicts(claims),
            "data": "generated" if self.data == "generated" else "CIFAR-10",
            "seeds": sorted({run.seed for run in runs.wanted}),
            "quick": self.quick,
            "left_out": self.left_out(),
        }

    def left_out(self) -> list[str]:
        raise NotImplementedError


class Runs:
    """Of one experiment, in a folder."""

    def __init__(self, folder: Path, wanted: list[Run]):
        self.folder, self.wanted = folder, wanted
        folder.mkdir(parents=True, exist_ok=True)
        self.begun, self.made = time.monotonic(), 0

    def outcome(self, run: Run) -> Outcome:
        """Trains, unless the run is there. Raises TestbedError with what `train` says."""
        out = self.folder / run.folder
        if not (out / "summary.json").exists():
            self._train(run, out)
        lines = (out / "metrics.jsonl").read_text().splitlines()
        return Outcome(
            json.loads((out / "summary.json").read_text()), [json.loads(line) for line in lines]
        )

    def _train(self, run: Run, out: Path) -> None:
        words = [emulation.program(), "train", *run.options, "--seed", run.seed, "--out", out]
        begun = time.monotonic()
        done = subprocess.run(
            [str(w) for w in [*words, "--overwrite", "--quiet"]], capture_output=True, text=True
        )
        if done.returncode != 0:
            shutil.rmtree(out, ignore_errors=True)
            raise TestbedError(f"{run.name}: {done.stderr.strip()}")
        self.made += 1
        left = sum(not (self.folder / r.folder / "summary.json").exists() for r in self.wanted)
        each = (time.monotonic() - self.begun) / self.made
        say(
            f"{run.name}, seed {run.seed}: {time.monotonic() - begun:.0f} s"
            + (f"; {left} more runs, about {left * each / 60:.0f} min" if left else "")
        )
