"""What the published table 3 says beside its numbers, as claims that cells hold or not.

Absolute minutes cannot be compared, as the link and the portions of the data are not published:
signs, orderings and ratios can. Ratios have a tolerance, which the claim states.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from elastiquant_testbed.published import DEVICES, SCHEMES, TABLE_3

# (network, scheme, devices) -> seconds of an epoch by part; T is their sum.
Cells = dict[tuple[str, str, int], dict[str, float]]


class Claim(NamedTuple):
    claim: str
    holds: bool | None  # None: too little was run to judge it
    seen: str  # the numbers behind it


WITHIN = 0.1  # of printed ratios
WITHIN_CHANGE = 0.05  # of printed changes, of the whole
# The least and the most that the printed encoding of a scheme takes, in times that of 4 bits.
ENCODING = {"8-bit": (3.0, 5.8), "E": (1.0, 3.0)}
ENCODING_WITHIN = 0.05


def falls(values: list[float]) -> bool:
    """Whether each value is less than the one before."""
    return all(a > b for a, b in itertools.pairwise(values))


def all_claims(cells: Cells) -> list[Claim]:
    """Of the networks that are there, each of which must have all schemes and numbers of
    devices of the table."""
    networks = dict.fromkeys(network for network, _, _ in cells)
    return [claim for network in networks for claim in _Network(cells, network).claims()]


class _Network:
    """The cells of one network, and what is claimed of them."""

    def __init__(self, cells: Cells, network: str):
        self.cells, self.network = cells, network

    def claims(self) -> list[Claim]:
        return [
            *self.of_pairs(),
            self.gets_faster("4-bit"),
            self.gets_faster("E"),
            self.e_takes_least(),
            self.ordered(
                "Tx", SCHEMES, "transmission takes SGD longest, then 8 bits, 4 bits and E"
            ),
            self.ordered(
                "En",
                ("8-bit", "E", "4-bit"),
                "encoding takes 8 bits longest, then E, then 4 bits",
            ),
            *self.of_encoding(),
            self.printed_ratios("T", "SGD", "8-bit", "SGD takes", "as 8 bits"),
            self.printed_ratios("T", "SGD", "4-bit", "SGD takes", "as 4 bits"),
            self.printed_ratios("T", "SGD", "E", "SGD takes", "as E"),
            self.printed_ratios("Tx", "SGD", "E", "transmission takes SGD", "as E"),
            *self.of_seven_devices(),
            self.printed_change("SGD", "SGD"),
            self.printed_change("8-bit", "8 bits"),
            self.four_bits_faster(2, 4),
            self.four_bits_faster(4, 7),
            *self.of_this_network_alone(),
        ]

    def claim(self, words: str, holds: bool, seen: str) -> Claim:
        return Claim(f"{self.network}: {words}", bool(holds), seen)

    def seconds(self, scheme: str, devices: int, part: str = "T") -> float:
        return self.cells[self.network, scheme, devices][part]

    def by_devices(self, scheme: str) -> list[float]:
        return [self.seconds(scheme, devices) for devices in DEVICES]

    def ratio(self, one: tuple[str, int], other: tuple[str, int]) -> float:
        return self.seconds(*one) / self.seconds(*other)

    def of_pairs(self) -> list[Claim]:
        sgd = self.ratio(("SGD", 7), ("SGD", 4))
        eight_on_two = self.ratio(("8-bit", 2), ("SGD", 2))
        eight = self.ratio(("8-bit", 7), ("8-bit", 4))
        return [
            self.claim("SGD is slower on 7 devices than on 4", sgd > 1, _change(sgd)),
            self.claim(
                "8 bits are slower than SGD on 2 devices",
                eight_on_two > 1,
                f"{eight_on_two:.2f} times",
            ),
            self.claim(
                "8 bits change by less than 10 % from 4 to 7 devices",
                abs(eight - 1) < 0.1,
                _change(eight),
            ),
        ]

    def gets_faster(self, scheme: str) -> Claim:
        two, four, seven = times = self.by_devices(scheme)
        return self.claim(
            f"{scheme} gets faster with each step in devices",
            two > four > seven,
            ", ".join(f"{t:.0f} s" for t in times),
        )

    def e_takes_least(self) -> Claim:
        least = {d: min(SCHEMES, key=lambda s, d=d: self.seconds(s, d)) for d in DEVICES}
        return self.claim(
            "E takes the least time on 2, 4 and 7 devices",
            set(least.values()) == {"E"},
            ", ".join(f"{d}: {scheme}" for d, scheme in least.items()),
        )

    def ordered(self, part: str, schemes: tuple[str, ...], words: str) -> Claim:
        columns = [[self.seconds(s, d, part) for s in schemes] for d in DEVICES]
        return self.claim(
            words,
            all(falls(times) for times in columns),
            "; ".join(", ".join(f"{t:.0f}" for t in times) + " s" for times in columns),
        )

    def of_seven_devices(self) -> list[Claim]:
        least_saved = {"ResNet-34": 4, "ResNet-50": 30}[self.network]
        saved = (self.seconds("E", 4) - self.seconds("E", 7)) / 60
        gain = self.ratio(("SGD", 7), ("E", 7))
        return [
            self.claim(
                "SGD takes 2.5 times as long as E on 7 devices, or more",
                gain >= 2.5,
                f"{gain:.2f} times",
            ),
            self.claim(
                f"E takes {least_saved} minutes less on 7 devices than on 4, or more",
                saved >= least_saved,
                f"{saved:.1f} minutes",
            ),
        ]

    def of_encoding(self) -> list[Claim]:
        found = []
        for scheme, (least, most) in ENCODING.items():
            times = [self.parts(d, "En", scheme, "4-bit") for d in DEVICES]
            low, high = least * (1 - ENCODING_WITHIN), most * (1 + ENCODING_WITHIN)
            name = "E" if scheme == "E" else "8 bits"
            found.append(
                self.claim(
                    f"encoding takes {name} {least} to {most} times as long as 4 bits, within "
                    f"{100 * ENCODING_WITHIN:.0f} %",
                    all(low <= t <= high for t in times),
                    _times(times),
                )
            )
        return found

    def parts(self, devices: int, part: str, one: str, other: str) -> float:
        """How many times as long a part of an epoch takes one scheme as another."""
        return self.seconds(one, devices, part) / self.seconds(other, devices, part)

    def printed_ratios(self, part: str, one: str, other: str, what: str, than: str) -> Claim:
        """What a part of an epoch takes one scheme over another, near what is printed on every
        number of devices. Not judged where the other one takes too short to be measured."""
        printed = [self.printed(one, d, part) / self.printed(other, d, part) for d in DEVICES]
        words = (
            f"{what} {_listed(printed)} times as long {than} on 2, 4 and 7 devices, within "
            f"{100 * WITHIN:.0f} %"
        )
        if not all(self.seconds(other, d, part) > 0 for d in DEVICES):
            seen = f"{part} of {other} was too short to be measured"
            return Claim(f"{self.network}: {words}", None, seen)
        ours = [self.parts(d, part, one, other) for d in DEVICES]
        return self.claim(
            words,
            all(abs(a / b - 1) <= WITHIN for a, b in zip(ours, printed, strict=True)),
            _times(ours),
        )

    def printed(self, scheme: str, devices: int, part: str = "T") -> float:
        """Minutes, of which ratios are compared with ours."""
        return getattr(TABLE_3[self.network, scheme, devices], part)

    def printed_change(self, scheme: str, name: str) -> Claim:
        """By how much an epoch changes from 4 devices to 7, near what is printed."""
        ours = self.ratio((scheme, 7), (scheme, 4))
        printed = self.printed(scheme, 7) / self.printed(scheme, 4)
        return self.claim(
            f"an epoch of {name} changes by {_change(printed)} from 4 devices to 7, within "
            f"{100 * WITHIN_CHANGE:.0f} points",
            abs(ours - printed) <= WITHIN_CHANGE,
            _change(ours),
        )

    def four_bits_faster(self, few: int, many: int) -> Claim:
        gain = self.ratio(("4-bit", few), ("4-bit", many))
        printed = round(self.printed("4-bit", few) / self.printed("4-bit", many), 2)
        return self.claim(
            f"4 bits are {printed:.2f} times as fast on {many} devices as on {few}, within "
            f"{100 * WITHIN:.0f} %",
            abs(gain / printed - 1) <= WITHIN,
            f"{gain:.2f} times",
        )

    def of_this_network_alone(self) -> list[Claim]:
        if self.network != "ResNet-50":
            return []
        two, four, seven = times = self.by_devices("SGD")
        return [
            self.claim(
                "SGD gets slower with each step in devices",
                two < four < seven,
                ", ".join(f"{t:.0f} s" for t in times),
            )
        ]


def _listed(values: list[float]) -> str:
    *others, last = (f"{value:.2f}" for value in values)
    return f"{', '.join(others)} and {last}"


def _times(values: list[float]) -> str:
    return f"{_listed(values)} times"


def _change(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.0f} %"
