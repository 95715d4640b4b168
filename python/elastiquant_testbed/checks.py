"""What the published table 3 says beside its numbers, as claims that cells hold or not.

Absolute minutes cannot be compared, as the link and the portions of the data are not published:
signs, orderings and ratios can.
"""

from __future__ import annotations

from typing import NamedTuple

from elastiquant_testbed import published
from elastiquant_testbed.published import DEVICES, SCHEMES

# (network, scheme, devices) -> seconds of an epoch by part; T is their sum.
Cells = dict[tuple[str, str, int], dict[str, float]]


class Claim(NamedTuple):
    claim: str
    holds: bool
    seen: str  # the numbers behind it


def published_cells() -> Cells:
    """The printed ones, in seconds; T as the sum of its parts, which some printed ones are
    not."""
    cells = {}
    for key, m in published.TABLE_3.items():
        parts = {name: 60 * getattr(m, name) for name in ("Cp", "En", "Tx")}
        cells[key] = {**parts, "T": sum(parts.values())}
    return cells


def all_claims(cells: Cells) -> list[Claim]:
    """Of the networks that are there, each of which must have all schemes and numbers of
    devices of the table."""
    networks = list(dict.fromkeys(network for network, _, _ in cells))
    claims = []
    for network in networks:
        claims += _of_network(cells, network)
    return claims


def _of_network(cells: Cells, network: str) -> list[Claim]:
    def part(name: str, scheme: str, devices: int) -> float:
        return cells[network, scheme, devices][name]

    def total(scheme: str, devices: int) -> float:
        return part("T", scheme, devices)

    def column(name: str, devices: int, schemes: tuple[str, ...] = SCHEMES) -> list[float]:
        return [part(name, scheme, devices) for scheme in schemes]

    def claim(words: str, holds: bool, seen: str) -> Claim:
        return Claim(f"{network}: {words}", bool(holds), seen)

    def listed(times: list[float]) -> str:
        return ", ".join(f"{t:.0f}" for t in times) + " s"

    def change(scheme: str, before: int, after: int) -> str:
        return f"{100 * (total(scheme, after) / total(scheme, before) - 1):+.0f} %"

    ordered = {d: column("Tx", d) for d in DEVICES}
    encoding = {d: column("En", d, ("8-bit", "E", "4-bit")) for d in DEVICES}
    least = {d: min(SCHEMES, key=lambda s, d=d: total(s, d)) for d in DEVICES}
    claims = [
        claim(
            "SGD is slower on 7 devices than on 4",
            total("SGD", 7) > total("SGD", 4),
            change("SGD", 4, 7),
        ),
        claim(
            "8 bits are slower than SGD on 2 devices",
            total("8-bit", 2) > total("SGD", 2),
            f"{total('8-bit', 2) / total('SGD', 2):.2f} times",
        ),
        claim(
            "8 bits change by less than 10 % from 4 to 7 devices",
            abs(total("8-bit", 7) / total("8-bit", 4) - 1) < 0.1,
            change("8-bit", 4, 7),
        ),
        *(
            claim(
                f"{scheme} gets faster with each step in devices",
                total(scheme, 2) > total(scheme, 4) > total(scheme, 7),
                ", ".join(f"{total(scheme, d):.0f} s" for d in DEVICES),
            )
            for scheme in ("4-bit", "E")
        ),
        claim(
            "E takes the least time on 2, 4 and 7 devices",
            set(least.values()) == {"E"},
            ", ".join(f"{d}: {scheme}" for d, scheme in least.items()),
        ),
        claim(
            "transmission takes SGD longest, then 8 bits, 4 bits and E",
            all(times == sorted(times, reverse=True) for times in ordered.values()),
            "; ".join(map(listed, ordered.values())),
        ),
        claim(
            "encoding takes 8 bits longest, then E, then 4 bits",
            all(times == sorted(times, reverse=True) for times in encoding.values()),
            "; ".join(map(listed, encoding.values())),
        ),
        claim(
            "SGD takes 2.5 times as long as E on 7 devices, or more",
            total("SGD", 7) >= 2.5 * total("E", 7),
            f"{total('SGD', 7) / total('E', 7):.2f} times",
        ),
    ]
    least_saved = {"ResNet-34": 4, "ResNet-50": 30}[network]
    saved = (total("E", 4) - total("E", 7)) / 60
    claims.append(
        claim(
            f"E takes {least_saved} minutes less on 7 devices than on 4, or more",
            saved >= least_saved,
            f"{saved:.1f} minutes",
        )
    )
    if network == "ResNet-34":
        gain = total("4-bit", 2) / total("4-bit", 4)
        claims.append(
            claim(
                "4 bits are 1.48 times as fast on 4 devices as on 2, within 10 %",
                abs(gain / 1.48 - 1) <= 0.1,
                f"{gain:.2f} times",
            )
        )
    else:
        claims.append(
            claim(
                "SGD gets slower with each step in devices",
                total("SGD", 2) < total("SGD", 4) < total("SGD", 7),
                ", ".join(f"{total('SGD', d):.0f} s" for d in DEVICES),
            )
        )
    return claims
