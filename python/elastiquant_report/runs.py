"""Reads what `elastiquant train --out RUN` writes: summary.json and metrics.jsonl."""

from __future__ import annotations

import json
import math
import shlex
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

MOST_LINES = 6  # of a plot, each of which has a colour and a mark of its own
PHASES = ("compute", "encode", "transmit", "wait", "decode", "total")
_NEEDED = (
    "model",
    "codec",
    "world_size",
    "steps",
    "bytes_up",
    "bytes_down",
    "bits_per_coordinate",
    "seconds",
    "replicas_identical",
)

# Of a summary, in the order in which differences are named.
_TOLD = ("model", "data", "world_size", "batch", "link", "seed", "steps", "algorithm")
# Options that these or the codec tell of, and those that make no difference to a run.
_NOT_COMPARED = {"--model", "--data", "--workers", "--batch", "--link", "--seed", "--steps"}
_NOT_COMPARED |= {"--epochs", "--algorithm", "--partition", "--codec"}
_NOT_COMPARED |= {"--out", "--overwrite", "--quiet", "--port", "--resume"}
# What `train` chooses by the codec, if nobody asks for anything else.
_OF_CODECS = {"--exchange", "--metric"}


class RunError(Exception):
    """A run that cannot be read; the message names the file and what is wrong."""


@dataclass
class Run:
    folder: Path
    summary: dict
    steps: list[dict]
    label: str = ""

    def __getitem__(self, key: str):
        return self.summary.get(key)

    @property
    def codec(self) -> str:
        return self.summary["codec"]

    def per_step(self, phase: str) -> float:
        """Seconds of one step, on average over the run."""
        return self.summary["seconds"][phase] / max(1, self.summary["steps"])

    @property
    def bytes_per_step(self) -> float:
        """Sent by one worker."""
        return self.summary["bytes_up"] / max(1, self.summary["steps"])

    @property
    def partition(self) -> str:
        """How the data lay on the workers, as `train --partition` names it."""
        return (self.summary.get("partition") or {}).get("spec", "iid")

    @property
    def epochs(self) -> list[dict]:
        """The summary's entries of the epochs."""
        return self.summary.get("epochs") or []

    @property
    def steps_per_epoch(self) -> int | None:
        return self.summary.get("steps_per_epoch")

    def number(self, key: str) -> float:
        """A number of the summary; NaN where the run has none."""
        value = self.summary.get(key)
        return float(value) if value is not None else math.nan

    def series(self, key: str) -> list[float]:
        """One value a step; NaN where a step has none (it was skipped)."""
        return [float(s[key]) if s.get(key) is not None else math.nan for s in self.steps]

    def elapsed(self) -> list[float]:
        """Seconds of training after each step; evaluation and checkpoints do not count."""
        return list(accumulate(s["seconds"]["total"] for s in self.steps))

    def sent(self) -> list[float]:
        """Bytes that a worker has sent after each step, on average over the workers.

        The steps tell of worker 0 alone, and the summary's epochs of all workers: within an
        epoch the others are taken to send when it does.
        """
        own: dict[int, float] = {}
        for step in self.steps:
            own[step.get("epoch")] = own.get(step.get("epoch"), 0) + step["bytes_up"]
        mean = {e["epoch"]: e.get("bytes_up") for e in self.epochs}
        share = {e: mean[e] / sent for e, sent in own.items() if sent and mean.get(e)}
        return list(
            accumulate(s["bytes_up"] * share.get(s.get("epoch"), 1.0) for s in self.steps)
        )

    def epoch_ends(self) -> list[tuple[int, dict]]:
        """(index of the epoch's last step, the epoch's entry in the summary)."""
        last = {s.get("epoch"): i for i, s in enumerate(self.steps)}
        return [(last[e["epoch"]], e) for e in self.epochs if e["epoch"] in last]


def load_run(folder: Path) -> Run:
    summary_file = folder / "summary.json"
    if not folder.is_dir():
        raise RunError(f"{folder}: no such folder; give folders written by `elastiquant train`")
    if not summary_file.exists():
        raise RunError(
            f"{summary_file} is missing: the run has not ended, or ended in an error"
        )
    try:
        summary = json.loads(summary_file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunError(f"{summary_file} is not valid JSON: {error}") from error
    if not isinstance(summary, dict):
        raise RunError(f"{summary_file} is no JSON object")
    missing = [key for key in _NEEDED if key not in summary]
    seconds = summary.get("seconds")
    phases = seconds if isinstance(seconds, dict) else {}
    missing += [f"seconds.{p}" for p in PHASES if phases.get(p) is None]
    if missing:
        raise RunError(f"{summary_file} lacks {', '.join(missing)}")
    return Run(folder, summary, _load_steps(folder / "metrics.jsonl"))


def _load_steps(file: Path) -> list[dict]:
    if not file.exists():
        raise RunError(f"{file} is missing: it is written beside summary.json")
    steps = []
    for number, line in enumerate(lines_of(file), start=1):
        try:
            step = json.loads(line)
            step["seconds"]["total"], step["bytes_up"]  # what the curves stand on
        except (ValueError, TypeError, KeyError) as error:
            raise RunError(
                f"{file}, line {number} is not a step's JSON object: {error}"
            ) from error
        steps.append(step)
    if not steps:
        raise RunError(f"{file} has no steps")
    return steps


def lines_of(file: Path) -> list[str]:
    """The lines of a file. Raises RunError if it is not text in UTF-8."""
    try:
        return file.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise RunError(f"{file} is damaged: {error}") from error


def shown(path: Path) -> str:
    """The path as text; what is not UTF-8 in it becomes a question mark."""
    return str(path).encode("utf-8", "replace").decode()


def load_runs(folders: list[Path]) -> list[Run]:
    runs = [load_run(folder) for folder in folders]
    label_runs(runs)
    return runs


def label_runs(runs: list[Run]) -> None:
    """Gives each run the shortest name that tells it from the others."""
    for run, label in zip(runs, _labels(runs), strict=True):
        run.label = label


def baseline_index(runs: list[Run]) -> int:
    """What the others are compared with: the first fp32 run, else the first."""
    return next((i for i, run in enumerate(runs) if run.codec == "fp32"), 0)


def differences(runs: list[Run]) -> list[str]:
    """In what else than the codec the runs differ, so that a comparison may mislead."""
    told = {key.replace("_", " "): [str(run[key]) for run in runs] for key in _TOLD}
    told["partition"] = [run.partition for run in runs]
    told["machine"] = [_machine(run) for run in runs]
    told |= _options(runs)
    return [
        f"{what} ({', '.join(dict.fromkeys(values))})"
        for what, values in told.items()
        if len(set(values)) > 1
    ]


def _machine(run: Run) -> str:
    """What a run's seconds depend on beside its options."""
    machine, versions = run["machine"] or {}, run["versions"] or {}
    words = [f"{machine.get('processor', 'unknown processor')}"]
    words += [f"{machine[key]} {key}" for key in ("cores", "threads") if key in machine]
    return ", ".join(words + [f"{name} {version}" for name, version in versions.items()])


def _options(runs: list[Run]) -> dict[str, list[str]]:
    """By option that matters, what each run had."""
    given = [_given(run) for run in runs]
    had = [{**words, **(run["options"] or {})} for run, words in zip(runs, given, strict=True)]
    found: dict[str, list[str]] = {}
    for name in sorted({name for options in had for name in options} - _NOT_COMPARED):
        values = [options.get(name) for options in had]
        if any(name in words for words in given) or not _follows(name, values):
            found[name] = [_value(value) for value in values]
    plain = {name for name in found if not name.startswith("--no-")}
    return {
        n: of for n, of in found.items() if n in plain or n.replace("--no-", "--") not in plain
    }


def _follows(name: str, values: list) -> bool:
    """Whether an option that nobody asked for is as it is because of the codec, or is the
    default of those algorithms that have it: both are told of in their own words."""
    there = {_value(value) for value in values if value is not None}
    return name in _OF_CODECS or (None in values and len(there) < 2)


def _value(value: object) -> str:
    """Of an option, as people write it."""
    if isinstance(value, list):
        return " ".join(map(_value, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not given" if value is None else str(value)


def _given(run: Run) -> dict[str, str | bool]:
    """The options of a run's command; a flag is True."""
    found: dict[str, list[str]] = {}
    name = ""
    for word in _words(run):
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            found[name] = [value] if equals else []
        elif name:
            found[name].append(word)
    return {name: " ".join(values) or True for name, values in found.items()}


def _words(run: Run) -> list[str]:
    try:
        return shlex.split(run["command"] or "")
    except ValueError:
        return []


def _split(spec: str) -> tuple[str, list[str], str]:
    head, bar, modifiers = spec.partition("|")
    name, _, pairs = head.partition(":")
    return name, pairs.split(",") if pairs else [], bar + modifiers


def _given_codec(run: Run) -> str:
    """The codec as the command named it: the canonical spec spells out every default."""
    words = _words(run)
    return words[words.index("--codec") + 1] if "--codec" in words[:-1] else run.codec


def _labels(runs: list[Run]) -> list[str]:
    """The algorithm, if there are several, then the codec, then what else differs."""
    specs = [_split(_given_codec(run)) for run in runs]
    labels = []
    for name, pairs, modifiers in specs:
        same_name = [set(other[1]) for other in specs if other[0] == name]
        common = set.intersection(*same_name)
        kept = [p for i, p in enumerate(pairs) if p not in common or i == 0]
        labels.append(name + (":" + ",".join(kept) if kept else "") + modifiers)
    algorithms = [run["algorithm"] or "allreduce" for run in runs]
    if len(set(algorithms)) > 1:
        one_codec = len(set(labels)) == 1
        labels = [
            algorithm if one_codec else f"{algorithm}, {label}"
            for algorithm, label in zip(algorithms, labels, strict=True)
        ]
    told = {"world_size": "{} workers", "link": "{}", "seed": "seed {}", "steps": "{} steps"}
    for key, text in told.items():
        if len(set(labels)) == len(labels):
            return labels
        if len({str(run[key]) for run in runs}) > 1:
            labels = [
                f"{label}, {text.format('no limit' if run[key] is None else run[key])}"
                for label, run in zip(labels, runs, strict=True)
            ]
    if len(set(labels)) < len(labels):
        tails = _tails([run.folder for run in runs])
        labels = [f"{label} ({tail})" for label, tail in zip(labels, tails, strict=True)]
    return labels


def _tails(folders: list[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart, with as many folders each."""
    paths = [Path(shown(folder.resolve())).parts for folder in folders]
    for count in range(1, max(map(len, paths)) + 1):
        tails = ["/".join(parts[-count:]) for parts in paths]
        if len(set(tails)) == len(set(paths)):
            break
    return tails
