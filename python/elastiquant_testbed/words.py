"""Pieces of Markdown that the pages of experiments have in common."""

from __future__ import annotations

from elastiquant_testbed import precisions
from elastiquant_testbed.checks import Claim

QUICK = (
    "**A quick run**: it shows that everything works. After so little training the accuracies, "
    "and what they say of the claims, are mostly noise.\n"
)


def table(heads: list[str], rows: list[list[object]], words: int = 1) -> str:
    """The first `words` columns are words, the others numbers."""
    rule = "| --- " * words + "| ---: " * (len(heads) - words) + "|"
    lines = ["| " + " | ".join(heads) + " |", rule]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def accuracy(row: dict) -> str:
    """In per cent, with half of what the seeds differ by."""
    reached = row["accuracy_by_seed"]
    spread = f" ± {(max(reached) - min(reached)) / 2:.2f}" if len(reached) > 1 else ""
    return f"{row['accuracy']:.2f}{spread}"


def claims(checks: list[dict]) -> str:
    if not checks:
        return "No claim has all of its runs yet.\n"
    judged = [check for check in checks if check["holds"] is not None]
    held = sum(check["holds"] for check in judged)
    rows = [[check["claim"], holds(check), check["seen"]] for check in checks]
    head = f"Of {len(checks)} claims {held} hold here"
    if unjudged := len(checks) - len(judged):
        head += f", and {unjudged} need more than was run"
    return f"{head}.\n\n" + table(["claim", "holds", "seen"], rows, words=3)


def holds(check: dict) -> str:
    """Whether a claim does, for people."""
    return {True: "yes", False: "**no**", None: "not judged"}[check["holds"]]


def page(title: str, about: str, rows: str, result: dict) -> str:
    """Of an experiment that trains; `rows` is its table."""
    data = f"Data: {result['data']}. {precisions.told(result)}".strip()
    parts = [f"# {title}\n", f"{about} {data}\n", rows]
    parts += [QUICK] if result["quick"] else []
    return "\n".join([*parts, claims(result["checks"]), left_out(result)])


def left_out(result: dict) -> str:
    if not result["left_out"]:
        return ""
    return "Left out:\n\n" + "\n".join(f"- {word}" for word in result["left_out"]) + "\n"


def as_dicts(found: list[Claim]) -> list[dict]:
    return [claim._asdict() for claim in found]
