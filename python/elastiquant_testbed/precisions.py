"""What matrices are multiplied in where an experiment trains: fp32, bf16, or either.

A processor with instructions for bf16 is up to twice as fast in it as in fp32, and one without
them less than half as fast. An experiment that is continued on another machine can therefore
say that either precision will do: a run counts in the one in which it was made, and a missing
run is made in the one in which this machine is faster.
"""

from __future__ import annotations

from pathlib import Path

FP32, BF16, EITHER = "fp32", "bf16", "either"
OPTION = "--precision"  # of `train`, whose own default is fp32
# What Linux calls the instructions that multiply matrices or vectors in bf16, on x86 and Arm.
INSTRUCTIONS = {"amx_bf16", "avx512_bf16", "bf16"}


def faster(device: str, processor: Path) -> str:
    """The precision in which a device multiplies faster; `processor` is /proc/cpuinfo."""
    if device != "cpu":
        return BF16
    said = processor.read_text().split() if processor.exists() else []
    return BF16 if INSTRUCTIONS & set(said) else FP32


def of(options: tuple[str, ...]) -> str:
    """That of a run with these options of `train`."""
    return options[options.index(OPTION) + 1] if OPTION in options else FP32


def ways(options: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """By precision, the options of the same run in it: one, or two if either will do."""
    if of(options) != EITHER:
        return {of(options): options}
    at = options.index(OPTION)
    before, after = options[:at], options[at + 2 :]
    return {BF16: (*before, OPTION, BF16, *after), FP32: before + after}


def told(result: dict) -> str:
    """A sentence on that of an experiment's result, or nothing if all is in fp32."""
    counts = result.get("runs_by_precision", {})
    if len(counts) > 1:
        runs = " and ".join(f"{name} ({count} runs)" for name, count in counts.items())
        return f"Matrices are multiplied in {runs}."
    name = next(iter(counts), result.get("precision", FP32))
    return "" if name == FP32 else f"Matrices are multiplied in {name}."
