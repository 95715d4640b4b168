"""What is claimed of the error and the accuracy of BinGrad and ORQ, without a memory."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from elastiquant_testbed import words
from elastiquant_testbed.checks import Claim
from elastiquant_testbed.seeds import agreed, in_common

LEVELS = (3, 5, 9)
Key = tuple[str, int, bool]  # scheme, levels, clipped


def name_of(row: dict) -> str:
    several = row["levels"] in LEVELS and row["scheme"] != "TernGrad"
    return row["scheme"] + (f"-{row['levels']}" if several else "")


def error_of(row: dict) -> str:
    """On the gradients of full precision, where that was measured."""
    return "" if row["error"] is None else f"{row['error']:.3g}"


def own_error_of(row: dict) -> str:
    """On the gradients of the scheme's own run."""
    return "diverged" if row["nmse"] is None else f"{row['nmse']:.3g}"


class Rows:
    """Those of one network. Groups of schemes are compared, the better ones first."""

    def __init__(self, rows: list[dict], network: str):
        self.network = network
        self.by = {
            (r["scheme"], r["levels"], r["clipped"]): r
            for r in rows
            if r["network"] == network and not r["memory"]
        }

    def _there(self, groups: tuple[list[Key], ...]) -> list[dict]:
        return [self.by[key] for group in groups for key in group if key in self.by]

    def less_error(self, claim: str, *groups: list[Key]) -> Claim | None:
        if any(row["error"] is None for row in self._there(groups)):
            return None
        return self._ordered(claim, groups, lambda row: [-row["error"]], error_of)

    def more_accurate(self, claim: str, *groups: list[Key]) -> Claim | None:
        def told(row: dict) -> str:
            return words.accuracy(row) + " %"

        return self._ordered(claim, groups, lambda row: row["accuracy_by_seed"], told)

    def _ordered(
        self,
        claim: str,
        groups: tuple[list[Key], ...],
        merits: Callable[[dict], list[float]],
        told: Callable[[dict], str],
    ) -> Claim | None:
        """Each scheme of a group is better than all of the next group by each of its merits,
        of which there is one, or one for each of the seeds that all of them have. None, if one
        of them was not run; not judged, if the seeds disagree."""
        if len(self._there(groups)) < sum(map(len, groups)):
            return None
        if not (there := in_common(self._there(groups))):
            return None
        one_by_one = iter(there)
        rows = [[next(one_by_one) for _ in group] for group in groups]
        verdicts = (
            _falls([[merits(row)[of] for row in group] for group in rows])
            for of in range(len(merits(there[0])))
        )
        seen = "; ".join(
            ", ".join(f"{name_of(row)} {told(row)}" for row in group) for group in rows
        )
        holds, seen = agreed(verdicts, seen)
        return Claim(f"{self.network}: {claim}", holds, seen)


def _falls(groups: list[list[float]]) -> bool:
    return all(min(better) > max(worse) for better, worse in itertools.pairwise(groups))


def claims(rows: list[dict]) -> list[Claim]:
    """Those whose schemes were all run."""
    found = []
    for network in dict.fromkeys(r["network"] for r in rows):
        found += [claim for claim in _of_network(Rows(rows, network)) if claim]
    return found


def _of_network(rows: Rows) -> list[Claim | None]:
    found = []
    for n in LEVELS:
        groups = [("ORQ", n, False)], [("Linear", n, False), ("QSGD", n, False)]
        beside = f"Linear and QSGD with {n} levels"
        found.append(rows.less_error(f"ORQ has less error than {beside}", *groups))
        found.append(rows.more_accurate(f"ORQ is more accurate than {beside}", *groups))
    # Without clipping TernGrad is Linear with 3 levels, which was compared above.
    both = [("ORQ", 3, True)], [("TernGrad", 3, True)]
    found.append(rows.less_error("ORQ-3 has less error than TernGrad, both clipped", *both))
    found.append(
        rows.more_accurate("ORQ-3 is more accurate than TernGrad, both clipped", *both)
    )
    b, pb, sign = ((name, 2, False) for name in ("BinGrad-b", "BinGrad-pb", "scaled sign"))
    binary = "BinGrad-b has less error than BinGrad-pb and the scaled sign"
    found.append(rows.less_error(binary, [b], [pb, sign]))
    binary = "BinGrad-b is more accurate than BinGrad-pb, and that than the scaled sign"
    found.append(rows.more_accurate(binary, [b], [pb], [sign]))
    return found
