"""What compression did: counts of a worker, and of each layer."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stats:
    """Sums over the steps since the last reset, of this worker."""

    steps: int
    skipped: int
    """Compressed steps, which fp32_steps are not, whose gradient was NaN or infinite on some
    worker, and so became NaN on all."""
    fp32_steps: int
    """Steps left to the model's own process group, uncompressed, because that was measured to
    be faster (compress(switch=...))."""
    early_buckets: int
    """Parts (compress(bucket_kib=...)) that were sent before DDP's own bucket was full."""
    bytes_up: int
    """Bytes sent, headers included; of steps that were left to the model's process group, what
    an all-reduce sends."""
    bytes_down: int
    fp32_bytes_up: int
    """Bytes that an all-reduce of fp32 would have sent: 2 (N - 1) / N of the gradient."""
    coordinates: int
    """Values averaged."""
    encode_seconds: float
    wire_seconds: float
    """The time that the uplink was busy."""
    wait_seconds: float
    """From the last gradient until all had been averaged: what backward did not hide."""
    decode_seconds: float
    squared_error: float
    """Of messages that were measured (compress(measure_every=...)) against what they encode."""
    squared_norm: float
    """Of what those encode."""
    skip_reason: str = ""
    """Of the last step skipped: the worker, layer and kind of value."""
    uncompressed_bytes_up: int | None = None
    """Bytes that DDP's own all-reduce would have sent, in the gradients' own types; None, of a
    run that was recorded without it, if all were fp32."""

    def __add__(self, later: Stats) -> Stats:
        """Sums of both, of which the other ones began when these had ended."""
        names = [f.name for f in dataclasses.fields(Stats) if f.type in ("int", "float")]
        sums = {name: getattr(self, name) + getattr(later, name) for name in names}
        return Stats(
            **sums,
            skip_reason=later.skip_reason or self.skip_reason,
            uncompressed_bytes_up=self._without_us + later._without_us,
        )

    @property
    def _without_us(self) -> int:
        without_us = self.uncompressed_bytes_up
        return self.fp32_bytes_up if without_us is None else without_us

    @property
    def ratio(self) -> float:
        """How many times fewer bytes were sent than by DDP's own all-reduce, in the gradients'
        own types; 1 before the first step has ended."""
        return _ratio(self._without_us, self.bytes_up)

    @property
    def fp32_ratio(self) -> float:
        """How many times fewer bytes were sent than by an all-reduce of fp32, whatever the
        gradients' own types are; 1 before the first step has ended."""
        return _ratio(self.fp32_bytes_up, self.bytes_up)

    @property
    def bits_per_coordinate(self) -> float:
        """Bits sent for each 32 of fp32, headers included; 32 before a first step has ended."""
        return 32 * _ratio(self.bytes_up, self.fp32_bytes_up)

    @property
    def nmse(self) -> float | None:
        """The variance that encoding adds, relative to the gradient's squared norm; under a
        metric, of what is sent in it. None if no compressed step has been measured yet
        (compress(measure_every=...)), or only gradients of zeros."""
        return self.squared_error / self.squared_norm if self.squared_norm else None

    def summary(self) -> str:
        """One line, as for tqdm's set_postfix_str."""
        per_step = 1 / max(self.steps, 1)
        nmse = "-" if self.nmse is None else f"{self.nmse:.2g}"
        text = (
            f"{self.bytes_up * per_step / 1e3:.1f} kB up a step ({self.ratio:.1f}x fewer), "
            f"wait {self.wait_seconds * per_step:.3f} s, nmse {nmse}"
        )
        if self.fp32_steps:
            text += f", {self.fp32_steps} of {self.steps} steps as fp32"
        if self.skipped:
            text += f", {self.skipped} skipped ({self.skip_reason})"
        return text


def _ratio(of: int, to: int) -> float:
    """1 where there is nothing to compare: bytes are counted as they are sent, and what they
    are compared with at the end of the step."""
    return of / to if of and to else 1.0


@dataclass(frozen=True)
class LayerStats:
    """One layer's messages that were measured since the last reset, of this worker."""

    name: str
    """The parameter's name; "" for all that are compressed."""
    messages: int
    coordinates: int
    nmse: float | None
    """The measured variance, relative to the squared norm; None of a gradient of zeros."""
    spread: float | None
    """How uncertain nmse is, as a standard deviation."""
    bound: float | None
    """The most that nmse can be on average, where the codec's theory gives that."""
    bits: float
    """Bits of frames for each value."""
    verdict: str
    """"holds", "loose" (bound > 10 nmse), "exceeded" (beyond chance: a bug), "unbounded"."""
    noise: float | None = None
    """The measured variance of a value: in the metric, relative to its second moment; else in
    squared units of the gradient. None in records from before there was such a field."""

    @property
    def is_mostly_noise(self) -> bool:
        """Whether what this worker sent of the layer was more noise than gradient."""
        return self.nmse is not None and self.nmse > 1


def layer_stats(line: dict[str, Any]) -> LayerStats:
    """From a line of an engine's certificate, whose sums are all floating point."""
    names = ("nmse", "noise", "spread", "bound", "bits", "verdict")
    counts = {name: int(line[name]) for name in ("messages", "coordinates")}
    return LayerStats(name=line["layer"], **counts, **{name: line[name] for name in names})
