"""Stored numbers judged again, as what is claimed of them may have changed since they were
made."""

from __future__ import annotations

from elastiquant_testbed import choco, curves, dagc, levels_claims, table3, table4, words

# By experiment: the numbers in its result that claims are made of, and what makes them.
CLAIMS = {
    "table4": ("cells", table4.claims),
    "curves": ("series", curves.claims),
    "dagc": ("rows", dagc.claims),
    "levels": ("rows", levels_claims.claims),
    "choco": ("rows", choco.claims),
}


def judged(name: str, result: dict) -> dict:
    """A result with the checks that today's code makes of its numbers."""
    if name == "table3":
        return table3.judged(result)
    numbers, claims = CLAIMS[name]
    return {**result, "checks": words.as_dicts(claims(result[numbers]))}
