"""What the numbers say, in plain words: the titles of plots and the report's first lines."""

from __future__ import annotations

import math

from elastiquant_report.runs import Run, baseline_index


def _others(runs: list[Run]) -> tuple[Run, list[Run]]:
    at = baseline_index(runs)
    return runs[at], [run for i, run in enumerate(runs) if i != at]


def _speed_up(base: Run, run: Run) -> float:
    return base.per_step("total") / run.per_step("total")


def _fewer(base: Run, run: Run) -> float:
    return base.bytes_per_step / run.bytes_per_step if run.bytes_per_step else math.nan


def rate_of(link: str) -> str:
    """ "20mbit,10ms" as people write its rate: "20 Mbit/s"."""
    rate = link.split(",")[0]
    for unit, name in (("kbit", "kbit/s"), ("mbit", "Mbit/s"), ("gbit", "Gbit/s")):
        rate = rate.replace(unit, f" {name}")
    return rate


def _link(runs: list[Run]) -> str:
    links = {run["link"] for run in runs}
    link = links.pop() if len(links) == 1 else None
    return f" over {rate_of(link)}" if link else ""


def _accuracy_words(base: Run, run: Run) -> str:
    accuracies = [each.number("test_accuracy") for each in (run, base)]
    if any(math.isnan(accuracy) for accuracy in accuracies):
        return ""
    return f", with {accuracies[0]:.1f} % accuracy against {accuracies[1]:.1f} %"


def speed(runs: list[Run]) -> str:
    base, others = _others(runs)
    if not others:
        return f"{base.label}: a step takes {base.per_step('total'):.3f} s{_link(runs)}"
    best = max(others, key=lambda run: _speed_up(base, run))
    factor = _speed_up(base, best)
    words = _accuracy_words(base, best)
    if factor < 1.05:
        return f"Compression does not pay here: no codec beats {base.label}{_link(runs)}"
    return f"{best.label} trains {factor:.1f}× faster than {base.label}{_link(runs)}{words}"


def size(runs: list[Run]) -> str:
    base, others = _others(runs)
    sending = [run for run in others if run.bytes_per_step]
    if not sending or not base.bytes_per_step:
        return f"Each worker sends {base.bytes_per_step / 1e6:.2f} MB a step"
    best = max(sending, key=lambda run: _fewer(base, run))
    if _fewer(base, best) < 1.05:
        return f"No run sends fewer bytes than {base.label}"
    words = _accuracy_words(base, best)
    return f"{best.label} sends {_fewer(base, best):.1f}× fewer bytes than {base.label}{words}"


def waiting(runs: list[Run]) -> str:
    base, others = _others(runs)
    share = base.per_step("wait") / base.per_step("total")
    first = f"{base.label} waits for the network {share:.0%} of its time"
    if not others:
        return first
    best = min(others, key=lambda run: run.per_step("total"))
    return f"{first}, {best.label} {best.per_step('wait') / best.per_step('total'):.0%}"


def conclusion(runs: list[Run]) -> str:
    """One sentence for the end of a demonstration."""
    base, others = _others(runs)
    if not others:
        return speed(runs) + "."
    best = max(others, key=lambda run: _speed_up(base, run))
    fewer = _fewer(base, best)
    sends = f"each worker sends {fewer:.1f}× fewer bytes, and " if fewer > 1 else ""
    return (
        f"{speed(runs)}: {sends}a step takes {best.per_step('total'):.3f} s instead of "
        f"{base.per_step('total'):.3f} s."
    )


def mishaps(runs: list[Run]) -> list[str]:
    """A sentence for each run whose numbers are not those of the training that was asked
    for."""
    found = []
    for run in runs:
        if skipped := run["skipped_steps"]:
            found.append(
                f"WARNING: {run.label} skipped {skipped} of {run['steps']} steps, whose "
                "gradients were not finite."
            )
        if lost := run["losses"]:
            found.append(
                f"WARNING: {run.label} lost a worker"
                + (f" {len(lost)} times." if len(lost) > 1 else ".")
            )
    return found


def _reads_text(run: Run) -> bool:
    return str(run["model"]).startswith("gpt")


def setting(runs: list[Run]) -> str:
    """What the runs have in common, for a plot's second line."""
    parts = []
    for key, text in (
        ("model", "{}"),
        ("data", "{}" if any(_reads_text(run) for run in runs) else "{} images"),
        ("world_size", "{} workers"),
        ("batch", "batch {} each"),
        ("link", "link {}"),
    ):
        values = {run[key] for run in runs}
        if len(values) == 1 and None not in values:
            parts.append(text.format(str(values.pop()).rstrip("/").split("/")[-1]))
    return ", ".join(parts)
