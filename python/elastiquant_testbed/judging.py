"""Stored numbers judged again, as what is claimed of them may have changed since they were
made."""

from __future__ import annotations

from elastiquant_testbed import choco, curves, dagc, levels_claims, table3, table4, words
from elastiquant_testbed.table3_readings import MORE_STEPS, STEP_COST

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
        return _table3(result)
    numbers, claims = CLAIMS[name]
    return {**result, "checks": words.as_dicts(claims(result[numbers]))}


def _table3(result: dict) -> dict:
    """With those of its other readings, which may be None."""
    cells = result["cells"]
    others = {name: result[name] for name in (STEP_COST, MORE_STEPS) if result[name]}
    return {
        **result,
        "checks": table3.claims_of(cells),
        **{
            name: {**found, "checks": table3.claims_of([c[name] for c in cells])}
            for name, found in others.items()
        },
    }
