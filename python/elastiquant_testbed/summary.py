"""Every published claim that could be tested, and what came of it.

claims.toml lists them. A claim is as printed if its source has the number, the order or the
very statement. It is our reading if what is compared, or how near is near enough, is our
choice. The state of those that an experiment checks is what its stored result says. The
others were measured elsewhere, or cannot be tested, and say where and why.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import stored, words

CLAIMS = Path(__file__).resolve().parent / "claims.toml"
REPRODUCED, FAILED = "reproduced", "not reproduced"
# The third is also the state of what was run too briefly, or in too few settings, to be judged.
NOT_RUN, UNTESTABLE = "not run in full", "cannot be tested"
STATES = (REPRODUCED, FAILED, NOT_RUN, UNTESTABLE)


class Row(NamedTuple):
    source: str
    claim: str
    state: str
    seen: str  # our number, or why there is none
    link: str
    reading: bool  # ours, of words that say less


def sources() -> list[dict]:
    return tomllib.loads(CLAIMS.read_text())["source"]


def rows(results: dict[str, dict]) -> list[Row]:
    found = []
    for source in sources():
        name, section = source["name"], source["section"]
        result = results.get(source.get("experiment", ""))
        for key in ("claims", "readings"):
            for claim in source.get(key, []):
                state, seen = _state(claim, result)
                found.append(Row(name, claim, state, seen, section, key == "readings"))
        for other in source.get("other", []):
            link, reading = other.get("link", section), other.get("reading", False)
            found.append(
                Row(name, other["claim"], other["state"], other["seen"], link, reading)
            )
    return found


def _state(claim: str, result: dict | None) -> tuple[str, str]:
    """By what an experiment has found, and what it saw."""
    checks = {check["claim"]: check for check in result["checks"]} if result else {}
    if claim not in checks:
        return NOT_RUN, "not all that it needs was measured"
    check = checks[claim]
    if check["holds"] is None:
        return NOT_RUN, check["seen"]
    if lacks := stored.lacks(result):
        return NOT_RUN, f"{' and '.join(sorted(lacks))}, which tells little: {check['seen']}"
    return REPRODUCED if check["holds"] else FAILED, check["seen"]


def _page(link: str) -> str:
    return "below" if link.startswith("#") else link.partition(".md")[0]


def text(results: dict[str, dict]) -> str:
    found = rows(results)
    heads = ["source", "claim", "kind", "state", "ours, or why not", "where"]
    cells = [
        [
            row.source,
            row.claim,
            "our reading" if row.reading else "printed",
            row.state if row.state != FAILED else f"**{FAILED}**",
            row.seen,
            f"[{_page(row.link)}]({row.link})",
        ]
        for row in found
    ]
    return counts(found) + "\n\n" + words.table(heads, cells, words=6)


def counts(found: list[Row]) -> str:
    """The page's first sentences."""
    readings = [row for row in found if row.reading]
    printed = [row for row in found if not row.reading]
    return (
        f"Of {len(found)} claims {len(printed)} are printed in their sources: "
        f"{_by_state(printed)}.\n"
        f"The other {len(readings)} are our reading of vaguer words: {_by_state(readings)}."
    )


def _by_state(found: list[Row]) -> str:
    count = Counter(row.state for row in found)
    return ", ".join(f"{count[state]} {state}" for state in STATES)
