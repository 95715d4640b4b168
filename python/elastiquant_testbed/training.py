"""Runs of `elastiquant train` that an experiment needs, each made once and kept."""

from __future__ import annotations

import functools
import hashlib
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, wait
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import (
    cifar,
    emulation,
    files,
    outcomes,
    precisions,
    provenance,
    stopping,
    words,
)
from elastiquant_testbed.checks import Claim
from elastiquant_testbed.say import say
from elastiquant_testbed.testbed import Testbed, TestbedError, UsageError

GENERATED, CIFAR = "generated", "CIFAR-10"
# What an outcome has of a run's summary.json, of each of its epochs, and of lines of
# metrics.jsonl: enough for all experiments, and little enough to be kept in the tree.
OF_SUMMARY = ("test_accuracy", "test_loss", "nmse", "steps", "skipped_steps", "bytes_up")
OF_SUMMARY += ("steps_per_epoch", "world_size", "seconds", "weights_hash")
OF_SUMMARY += ("gossip_step", "consensus_distance", "diverged")
OF_EPOCH = ("test_accuracy", "train_loss", "bytes_up")
OF_STEP = ("step", "variance")
ON_DEVICE = Path(__file__).resolve().parent / "on_device"
GAVE_UP = re.compile("gave up[^.\n]*")  # what trainers say of steps that are not finite
# All workers of a run are on this machine, where one that ends is seen at once. One that is
# late because the machine is busy must not end an experiment of many hours.
PATIENCE = ("--timeout", "600", "--stall-timeout", "0")
ERRORS = "errors.json"  # in the folder of a run with `measured` codecs


class Run(NamedTuple):
    """One of an experiment's runs."""

    name: str  # for people and for folders
    options: tuple[str, ...]  # for `train`, but --out, --seed and a folder of data
    seed: int = 1
    # Codecs whose error is measured on the gradients that the run dumps. In its outcome are
    # the means over these, as "errors" of the summary, by codec.
    measured: tuple[str, ...] = ()
    # Whether it is a result, and not the end of the experiment, that training gives up because
    # numbers are no longer finite. "diverged" in its summary is what the trainer said then.
    may_diverge: bool = False

    def ways(self) -> dict[str, Run]:
        """By precision: it in each that will do."""
        ways = precisions.ways(self.options)
        return {name: self._replace(options=options) for name, options in ways.items()}

    @property
    def folder(self) -> str:
        """A name of its own for each set of options, so that no other run is taken for it."""
        digest = hashlib.sha256(json.dumps(self.options).encode()).hexdigest()[:8]
        plain = "".join(c if c.isalnum() else "-" for c in self.name)
        return f"{plain}_seed{self.seed}_{digest}"


class Outcome(NamedTuple):
    """What a run has come to: parts of its summary.json, and of some lines of
    metrics.jsonl."""

    summary: dict
    steps: list[dict]
    machine: str = ""


class Choice(NamedTuple):
    """What a user chooses of an experiment that trains."""

    quick: bool = False
    data: str = GENERATED  # or a folder with CIFAR-10
    minutes: float | None = None  # after which no run is begun
    known: Path | None = None  # a folder with the outcomes of runs that were made before
    precision: str = precisions.FP32  # or BF16, or EITHER
    device: str = "cpu"  # or "cuda": where models are trained
    jobs: int = 1  # runs at a time


class Sitting:
    """The time that a user gives an experiment: so many minutes, or with None as many as it
    takes."""

    def __init__(self, minutes: float | None):
        self.limit, self.begun, self.said = minutes, time.monotonic(), False

    def minutes(self) -> float:
        """Since it began."""
        return (time.monotonic() - self.begun) / 60

    def has_ended(self) -> bool:
        return self.limit is not None and self.minutes() >= self.limit

    def is_over(self, left: int, what: str) -> bool:
        """Whether nothing more is to be begun; it says once how much is left undone then."""
        if not self.has_ended():
            return False
        if not self.said:
            say(f"{self.limit:g} minutes are over: {left} {what} are left")
        self.said = True
        return True


def options(**named: object) -> tuple[str, ...]:
    """options(eval_every=1) is --eval-every 1."""
    words: list[str] = []
    for name, value in named.items():
        words += ["--" + name.replace("_", "-"), str(value)]
    return tuple(words)


class Experiment:
    """One that trains, and times nothing: it has no use for a testbed.

    Its result is of the runs that are there. A claim is checked once all that it needs are.
    """

    name = ""  # of its folder
    trains_on_gpu = False  # whether on_device.py has all that its runs need

    def __init__(self, testbed: Testbed | None, out: Path, choice: Choice):
        if testbed is not None:
            raise UsageError(
                f"{self.name} trains networks and times nothing: leave out --testbed, which "
                "would have no effect"
            )
        self.choice, self.quick = choice, choice.quick
        self.out = out
        if choice.device != "cpu" and not self.trains_on_gpu:
            raise UsageError(f"{self.name} needs what only `train` has, which is for the CPU")
        if choice.device != "cpu" and choice.data == GENERATED:
            raise UsageError("on a GPU it trains on CIFAR-10 only: give its folder as --data")

    @property
    def data(self) -> str:
        return GENERATED if self.choice.data == GENERATED else CIFAR

    def chosen(self, train: int, test: int) -> dict[str, object]:
        """Options of `train` that the user has chosen: the data, so many images if they are
        generated, and the precision."""
        named: dict[str, object] = {"data": self.data}
        if self.data == GENERATED:
            named |= {"generated-train": train, "generated-test": test}
        if self.choice.precision != precisions.FP32:
            named |= {"precision": self.choice.precision}
        return named

    def make(self, wanted: list[Run], shown: Sequence[Run] = ()) -> Runs:
        """Makes the runs that are not there, in this order, and writes all outcomes to
        OUT/NAME.runs.jsonl. `shown` are not made, but are there if they were made before.
        Raises TestbedError if --data is no folder with CIFAR-10."""
        if self.data == CIFAR:
            cifar.require(self.choice.data)
        runs = Runs(self.folder, wanted, self.choice, shown)
        runs.outcomes |= self.known
        self._tell_known([*wanted, *shown])
        runs.make()
        runs.write(outcomes.path_of(self.name, self.out))
        return runs

    def _tell_known(self, of: list[Run]) -> None:
        """Says how many runs need not be made; raises TestbedError if that is none, because
        whoever gives a folder expects something of it."""
        if self.choice.known is None:
            return
        ways = {way.folder for run in of for way in run.ways().values()}
        tell_known(
            outcomes.path_of(self.name, self.choice.known),
            len(self.known),
            len(self.known.keys() & ways),
            "give --data, --precision, --device and --quick as they were given for them",
        )

    @property
    def folder(self) -> Path:
        """Of the runs' own folders."""
        return self.out / ("quick" if self.quick else "full") / self.name

    def is_made(self, run: Run) -> bool:
        """Whether the run was made before, here or where `--known` says."""
        folders = [way.folder for way in run.ways().values()]
        return any(f in self.known or is_complete(self.folder / f) for f in folders)

    @functools.cached_property
    def known(self) -> dict[str, Outcome]:
        """By the run's folder: outcomes of runs that were made before. Raises TestbedError if
        one has not the fields of an outcome."""
        if self.choice.known is None:
            return {}
        path = outcomes.path_of(self.name, self.choice.known)
        return {name: _known(name, told, path) for name, told in outcomes.read(path).items()}

    def result(
        self, claims: list[Claim], runs: Runs, of: Sequence[Run] | None = None, **found: object
    ) -> dict:
        """What every experiment tells, after what this one has found. `of` are the runs that
        it should show, if these are not all that it makes. Raises TestbedError if that is
        nothing."""
        if not all(found.values()):
            raise TestbedError(
                f"too few runs of {self.name} are there for anything to be shown: run it again "
                "to go on, with more --minutes"
            )
        of = runs.wanted if of is None else of
        there = [run for run in of if runs.has(run)]
        missing = len(of) - len(there)
        if self.choice.precision == precisions.EITHER:
            made_in = Counter(precisions.of(runs.as_made(run).options) for run in there)
            found["runs_by_precision"] = dict(sorted(made_in.items()))
        return {
            **found,
            "checks": words.as_dicts(claims),
            "data": self.data,
            "precision": self.choice.precision,
            "device": self.choice.device,
            "seeds": sorted({run.seed for run in there}),
            "machines": sorted({runs.outcome(run).machine for run in there} - {""}),
            "quick": self.quick,
            "left_out": self.left_out()
            + ([f"{missing} of {len(of)} runs, not made yet"] if missing else []),
        }

    def left_out(self) -> list[str]:
        raise NotImplementedError


class Runs:
    """Of one experiment, in a folder."""

    def __init__(
        self, folder: Path, wanted: list[Run], choice: Choice, shown: Sequence[Run] = ()
    ):
        self.folder, self.wanted, self.choice, self.shown = folder, wanted, choice, shown
        self.outcomes: dict[str, Outcome] = {}  # by the run's folder
        folder.mkdir(parents=True, exist_ok=True)
        self.sitting, self.made = Sitting(choice.minutes), 0

    def there(self) -> list[Run]:
        return [run for run in (*self.wanted, *self.shown) if self.has(run)]

    def write(self, path: Path) -> None:
        """Adds the outcomes to those that the file has of other options already."""
        there = {self.as_made(run).folder: self.outcome(run) for run in self.there()}
        outcomes.add(path, {name: outcome._asdict() for name, outcome in there.items()})

    def as_made(self, run: Run) -> Run:
        """It in the precision in which it was made, or else will be."""
        ways = run.ways()
        if len(ways) == 1:
            return run
        there = [way for way in ways.values() if self._is_trained(way)]
        return (there or [ways[precisions.faster(self.choice.device, provenance.CPUS)]])[0]

    def _is_trained(self, run: Run) -> bool:
        return run.folder in self.outcomes or is_complete(self.folder / run.folder)

    def has(self, run: Run) -> bool:
        """Whether it was made, and the errors of all its codecs were measured."""
        run = self.as_made(run)
        if not self._is_trained(run):
            return False
        return set(run.measured) <= self.outcome(run).summary.get("errors", {}).keys()

    def present(self, runs: list[Run]) -> list[Outcome]:
        """Of those that are there."""
        return [self.outcome(run) for run in runs if self.has(run)]

    def seeds(self, runs: list[Run]) -> list[int]:
        """The seeds of those that are there, in the order of present()."""
        return [run.seed for run in runs if self.has(run)]

    def make(self) -> None:
        """Trains what is not there. Raises TestbedError with what the trainer says."""
        missing = [run for run in self.wanted if not self.has(run)]
        if self.choice.jobs == 1:
            try:
                for run in missing:
                    self._make(run)
            except BaseException:
                stopping.end_children()  # a child whose start was interrupted still runs
                raise
            return
        with stopping.pool(self.choice.jobs) as pool:
            with stopping.afterwards():
                tasks = {pool.submit(self._make, run) for run in missing}
            # The system may give a signal to another thread. Python then raises its
            # KeyboardInterrupt here only once this thread wakes up.
            while tasks:
                done, tasks = wait(tasks, timeout=0.2, return_when=FIRST_COMPLETED)
                for task in done:
                    task.result()

    def _make(self, run: Run) -> None:
        if not self.sitting.is_over(self._left(), "runs"):
            self._train(self.as_made(run))

    def outcome(self, run: Run) -> Outcome:
        """Of a run that is there."""
        run = self.as_made(run)
        if run.folder not in self.outcomes:
            self.outcomes[run.folder] = _read(self.folder / run.folder)
        return self.outcomes[run.folder]

    def _left(self) -> int:
        return sum(not self.has(run) for run in self.wanted)

    def _train(self, run: Run) -> None:
        out = self.folder / run.folder
        chosen = [self.choice.data if word == CIFAR else word for word in run.options]
        words = [*self._trainer(), *chosen, "--seed", run.seed, "--out", out]
        begun = time.monotonic()
        # An interrupted analysis of its gradients does not cost a training again.
        is_trained = run.measured and is_complete(out) and (out / "gradients").exists()
        try:
            if not is_trained:
                _call(run, [*words, *self._patience(), "--overwrite", "--quiet"])
        except TestbedError as error:
            shutil.rmtree(out, ignore_errors=True)
            gave_up = GAVE_UP.search(str(error))
            if not (run.may_diverge and gave_up):
                raise
            _write_diverged(out, gave_up[0])
        if run.measured:
            files.replace(out / ERRORS, json.dumps(_errors(run, out)))
        self.outcomes.pop(run.folder, None)  # one that lacked errors
        self.made += 1
        said = f"{run.name}, seed {run.seed}: {time.monotonic() - begun:.0f} s"
        if left := self._left():
            said += f"; {left} more, about {left * self.sitting.minutes() / self.made:.0f} min"
        say(said)

    def _trainer(self) -> list[object]:
        if self.choice.device == "cpu":
            return [emulation.program(), "train"]
        return [sys.executable, ON_DEVICE]

    def _patience(self) -> Sequence[str]:
        return PATIENCE if self.choice.device == "cpu" else ()


def tell_known(path: Path, known: int, useful: int, advice: str) -> None:
    """Says how many of the known runs of a file need not be made; raises TestbedError, with
    the advice, if that is none."""
    if known == 0:
        raise UsageError(f"--known: there are no runs in {path}")
    if useful == 0:
        raise UsageError(
            f"--known: none of the {known} runs of {path} has these options: {advice}"
        )
    say(f"{useful} of the {known} known runs are of these options")


def is_complete(folder: Path) -> bool:
    """Whether a run's training has come to its end."""
    return (folder / "summary.json").exists()


def _write_diverged(out: Path, said: str) -> None:
    """The outcome of a run that has no other."""
    out.mkdir(parents=True)
    (out / "metrics.jsonl").write_text("")
    files.replace(out / "summary.json", json.dumps({"diverged": said}))


def _call(run: Run, words: list[object]) -> str:
    """What the program writes to stdout. Raises TestbedError with what it says if it fails."""
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True)
    if done.returncode != 0:
        raise TestbedError(f"{run.name}: {done.stderr.strip()}")
    return done.stdout


def _errors(run: Run, folder: Path) -> dict[str, float]:
    """Relative squared errors by codec: means over the gradients in a run's folder."""
    words = [emulation.program(), "analyze", "--json", "--draws", 8, folder / "gradients"]
    words += [word for codec in run.measured for word in ("--codec", codec)]
    found: dict[str, list[float]] = {}
    for gradient in json.loads(_call(run, words))["inputs"]:
        for result in gradient["results"]:
            codec = result["codec"]
            if "error" in result:
                raise TestbedError(f"{run.name}: error of {codec}: {result['error']}")
            found.setdefault(codec, []).append(result["nmse"])
    return {codec: statistics.fmean(errors) for codec, errors in found.items()}


def _known(name: str, told: dict, path: Path) -> Outcome:
    fields, summary = set(told), told.get("summary")
    if (
        {"summary", "steps"} <= fields <= set(Outcome._fields)
        and isinstance(summary, dict)
        and ("diverged" in summary or {"test_accuracy", "steps"} <= set(summary))
    ):
        return Outcome(**told)
    raise TestbedError(
        f"{path}: what is there of the run {name} is not the outcome of a training: delete its "
        "line, and the run is made again"
    )


def _read(folder: Path) -> Outcome:
    summary = json.loads((folder / "summary.json").read_text())
    kept = {key: summary[key] for key in OF_SUMMARY if key in summary}
    if (folder / ERRORS).exists():
        kept["errors"] = json.loads((folder / ERRORS).read_text())
    kept["epochs"] = [
        {key: epoch[key] for key in OF_EPOCH if key in epoch}
        for epoch in summary.get("epochs", [])
    ]
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    steps = [{key: line[key] for key in OF_STEP} for line in lines if "variance" in line]
    return Outcome(kept, steps, summary.get("device_machine") or provenance.machine())
