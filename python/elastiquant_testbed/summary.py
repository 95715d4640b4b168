"""Every published claim that could be tested, and what came of it.

claims.toml lists them. The state of those that an experiment checks is what its stored result
says; the others were measured elsewhere, or cannot be tested, and say where and why.
"""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from elastiquant_testbed import stored, words

CLAIMS = Path(__file__).resolve().parent / "claims.toml"
REPRODUCED, FAILED = "reproduced", "not reproduced"
NOT_RUN, UNTESTABLE = "not run yet", "cannot be tested"
STATES = (REPRODUCED, FAILED, NOT_RUN, UNTESTABLE)


class Row(NamedTuple):
    source: str
    claim: str
    state: str
    seen: str  # our number, or why there is none
    link: str


def sources() -> list[dict]:
    return tomllib.loads(CLAIMS.read_text())["source"]


def rows(results: dict[str, dict]) -> list[Row]:
    found = []
    for source in sources():
        name, section = source["name"], source["section"]
        result = results.get(source.get("experiment", ""))
        for claim in source.get("claims", []):
            found.append(Row(name, claim, *_state(claim, result), section))
        for other in source.get("other", []):
            link = other.get("link", section)
            found.append(Row(name, other["claim"], other["state"], other["seen"], link))
    return found


def _state(claim: str, result: dict | None) -> tuple[str, str]:
    """By what an experiment has found, and what it saw."""
    checks = {check["claim"]: check for check in result["checks"]} if result else {}
    if claim not in checks:
        return NOT_RUN, ""
    check = checks[claim]
    if not stored.tells_accuracy(result):
        return NOT_RUN, f"quick or on generated images, which tells little: {check['seen']}"
    return REPRODUCED if check["holds"] else FAILED, check["seen"]


def _page(link: str) -> str:
    return "below" if link.startswith("#") else link.partition(".md")[0]


def text(results: dict[str, dict]) -> str:
    found = rows(results)
    count = Counter(row.state for row in found)
    told = ", ".join(f"{count[state]} {state}" for state in STATES)
    heads = ["source", "claim", "state", "ours, or why not", "where"]
    cells = [
        [
            row.source,
            row.claim,
            row.state if row.state != FAILED else f"**{FAILED}**",
            row.seen,
            f"[{_page(row.link)}]({row.link})",
        ]
        for row in found
    ]
    return f"Of {len(found)} claims: {told}.\n\n" + words.table(heads, cells, words=5)
