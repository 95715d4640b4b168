"""Rates, delays and losses as text, for the lab too. Each function returns None for text that
is no such quantity, or for one that cannot be emulated because it would be rounded to 0 or
lab_switch would refuse it."""

from __future__ import annotations

import math
import re

MOST_DELAY = 1000  # seconds: microseconds of a delay and its jitter are counted in 32 bits
DELAYS = f"a delay such as 10ms (0us, or 1us to {MOST_DELAY}s)"
LOSSES = "a loss such as 1% (0%, or 0.0001% to 99.9999%)"


def rate(text: str) -> int | None:
    """Bits a second of "20mbit", "1.5gbit" or "800kbit"."""
    bits = _quantity(text, {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9})
    return round(bits) if bits is not None and round(bits) >= 1 else None


def delay(text: str) -> int | None:
    """Microseconds of "10ms", "0.5ms" or "250us"."""
    found = seconds(text)
    if found is None or found > MOST_DELAY:
        return None
    microseconds = round(1e6 * found)
    return None if microseconds == 0 and found > 0 else microseconds


def seconds(text: str) -> float | None:
    """Those of "10s", "500ms" or "250us"."""
    microseconds = _quantity(text, {"us": 1, "ms": 1e3, "s": 1e6})
    return None if microseconds is None else microseconds / 1e6


def loss(text: str) -> float | None:
    """The fraction that "1%" stands for, which is below 1. It is counted in millionths."""
    part = _quantity(text, {"%": 0.01})
    if part is None or round(1e6 * part) >= 1e6:
        return None
    return None if part > 0 and round(1e6 * part) == 0 else part


def _quantity(text: str, units: dict[str, float]) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z%]+)", text, re.ASCII)
    if not match or match[2] not in units:
        return None
    value = float(match[1]) * units[match[2]]
    return value if math.isfinite(value) else None
