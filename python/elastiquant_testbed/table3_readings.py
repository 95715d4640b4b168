"""Other readings of table 3: what its numbers would be if devices had spent time on what our
emulation lacks. Each takes one printed cell more to be fitted, and changes transmission and
encoding of all cells alike; what decides whether a claim is reproduced is the first reading,
without any of them.
"""

from __future__ import annotations

from elastiquant_testbed.table3_steps import FIT

FIT_STEP_COST = ("ResNet-34", "SGD", 2)
FIT_MORE_STEPS = ("ResNet-50", "SGD", 7)
STEP_COST, MORE_STEPS = "with_step_cost", "with_more_steps"  # of cells and results


def add_step_cost(cells: list[dict]) -> dict:
    """Gives each cell a second reading: transmission times a factor, as with another rate,
    and a cost of each step, of which there are fewer the more devices there are. Two cells say
    both."""

    def of(key: tuple[str, str, int]) -> tuple[float, float, float]:
        """Measured, printed, and 1/n, to which the steps of an epoch are proportional."""
        cell = _cell(cells, key)
        return cell["Tx"], cell["published"]["Tx"], 1 / key[2]

    (a, wanted_a, few), (b, wanted_b, many) = of(FIT), of(FIT_STEP_COST)
    factor = (wanted_a * many - wanted_b * few) / (a * many - b * few)
    cost = (wanted_b - factor * b) / many  # seconds of an epoch on one device
    for c in cells:
        # A network's steps are longer or fewer than those of the one that was fitted.
        steps = c["steps"] * c["devices"] / cells[0]["steps"] / cells[0]["devices"]
        sent = factor * c["Tx"] + cost * steps / c["devices"]
        c[STEP_COST] = _read(c, c["En"], sent)
    return {"cell": FIT_STEP_COST, "factor_of_rate": 1 / factor, "seconds_of_an_epoch": cost}


def add_more_steps(cells: list[dict]) -> dict | None:
    """Gives each cell a third reading, on top of the second: ResNet-50 makes so many times the
    steps that its printed computing says, as if it had smaller batches, and encodes and sends
    in each of them. None if the cell that tells how many is not there."""
    fitted = _cell(cells, FIT_MORE_STEPS)
    if fitted is None:
        return None
    factor = fitted["published"]["Tx"] / fitted[STEP_COST]["Tx"]
    for c in cells:
        times = factor if c["network"] == FIT_MORE_STEPS[0] else 1
        c[MORE_STEPS] = _read(c, times * c["En"], times * c[STEP_COST]["Tx"])
    return {"cell": FIT_MORE_STEPS, "times_as_many_steps": factor}


def _cell(cells: list[dict], key: tuple[str, str, int]) -> dict | None:
    found = (c for c in cells if (c["network"], c["scheme"], c["devices"]) == key)
    return next(found, None)


def _read(cell: dict, encoding: float, sending: float) -> dict:
    """The same cell, with other seconds of encoding and transmission."""
    same = {key: cell[key] for key in ("network", "scheme", "devices", "Cp")}
    total = cell["Cp"] + encoding + sending
    return {**same, "En": encoding, "Tx": sending, "T": total}
