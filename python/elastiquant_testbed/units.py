"""Rates, delays and losses as text, for the lab too. Each function returns None for text that
is no such quantity."""

from __future__ import annotations

import re


def rate(text: str) -> int | None:
    """Bits a second of "20mbit", "1.5gbit" or "800kbit"."""
    bits = _quantity(text, {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9})
    return round(bits) if bits is not None and round(bits) >= 1 else None


def delay(text: str) -> int | None:
    """Microseconds of "10ms", "0.5ms" or "250us"."""
    microseconds = _quantity(text, {"us": 1, "ms": 1e3, "s": 1e6})
    return None if microseconds is None else round(microseconds)


def loss(text: str) -> float | None:
    """The fraction that "1%" stands for, which is below 1."""
    part = _quantity(text, {"%": 0.01})
    return part if part is not None and part < 1 else None


def _quantity(text: str, units: dict[str, float]) -> float | None:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z%]+)", text, re.ASCII)
    return float(match[1]) * units[match[2]] if match and match[2] in units else None
