"""What a run writes down as it goes: a line of JSON for each step that is recorded."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from elastiquant._stats import LayerStats, Stats


@dataclasses.dataclass(frozen=True)
class Record:
    """One line: sums since the last reset, as of a step, so that any steps may be recorded."""

    step: int
    """Of the training script, growing from line to line."""
    seconds: float
    """Since compress(), DiLoCo or what else records was called."""
    stats: Stats
    layers: tuple[LayerStats, ...] = ()
    resets: int | None = None
    """How often sums have begun anew before; None of a run that was recorded without it."""

    def to_json(self) -> str:
        """A line of JSON, without its end. Rates that follow from Stats stand in it too."""
        stats = self.stats
        names = ("ratio", "bits_per_coordinate", "nmse")
        rates = {name: getattr(stats, name) for name in names}
        fields = {"step": self.step, "seconds": self.seconds, **dataclasses.asdict(stats)}
        layers = [dataclasses.asdict(layer) for layer in self.layers]
        return json.dumps({**fields, **rates, "resets": self.resets, "layers": layers})

    @staticmethod
    def from_json(line: str) -> Record:
        """What to_json() wrote. Raises ValueError, which says what is missing."""
        fields = json.loads(line)
        try:
            layers = tuple(_pick(LayerStats, layer) for layer in fields["layers"])
            stats, resets = _pick(Stats, fields), fields.get("resets")
            return Record(fields["step"], fields["seconds"], stats, layers, resets)
        except (KeyError, TypeError) as error:
            raise ValueError(f"no record of elastiquant's: {error}") from error

    def append_to(self, path: str | os.PathLike) -> None:
        """Appends a line, behind the one that a killed run has left unfinished, if it has."""
        with open(path, "a+b") as file:
            if file.seek(0, os.SEEK_END) > 0:
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(self.to_json().encode() + b"\n")


# Of a line, by which an unfinished one is known.
_BEGINNING = '{"step": '


def _pick(kind: type, fields: dict) -> Stats | LayerStats:
    known = {field.name for field in dataclasses.fields(kind)} & fields.keys()
    return kind(**{name: fields[name] for name in known})  # TypeError for what is missing


def read_records(path: Path) -> list[Record]:
    """The lines of a recorded run. Those that killed runs have left unfinished are not read.

    Raises ValueError, which names file and line, for anything else, or less than two lines.
    """
    *whole, _unfinished = path.read_text().split("\n")
    records = []
    for number, line in enumerate(whole, start=1):
        try:
            records.append(Record.from_json(line))
        except ValueError as error:
            is_torn = isinstance(error, json.JSONDecodeError) and line.startswith(_BEGINNING)
            if not is_torn:
                raise ValueError(f"{path}:{number}: {error}") from error
    if len(records) < 2:
        raise ValueError(f"{path} has {len(records)} whole records; a report needs two")
    return records


def of_the_run(records: Sequence[Record]) -> Iterator[Stats]:
    """The sums as of each record since the first began, over resets and restarts of the script.
    What was counted between a record and a reset behind it is in no record."""
    before = None
    for record, last in zip(records, [None, *records], strict=False):
        if last is not None and _began_anew(last, record):
            before = last.stats if before is None else before + last.stats
        yield record.stats if before is None else before + record.stats


def _began_anew(before: Record, after: Record) -> bool:
    """Whether sums began at zero between two records: after a reset, or in another process,
    whose clock and, if it went on from a checkpoint, steps are behind."""
    return (
        after.resets != before.resets
        or after.stats.steps < before.stats.steps
        or after.seconds < before.seconds
        or after.step < before.step
    )


@dataclasses.dataclass(frozen=True)
class Interval:
    """A mean step between two records."""

    step: int  # at its end
    seconds: float
    encode: float
    wire: float
    wait: float
    decode: float


def intervals(records: Sequence[Record]) -> Iterator[Interval]:
    """What lies between records, but where the script was started again or did nothing. Steps
    are the script's, of which those of DiLoCo exchange something only now and then."""
    for before, after in itertools.pairwise(records):
        reset = _began_anew(before, after)
        steps = after.step - before.step
        if steps <= 0 or after.seconds <= before.seconds:
            continue
        phases = {}
        for phase in ("encode", "wire", "wait", "decode"):
            sums = [getattr(r.stats, f"{phase}_seconds") for r in (before, after)]
            phases[phase] = (sums[1] - (0 if reset else sums[0])) / steps
        yield Interval(after.step, (after.seconds - before.seconds) / steps, **phases)
