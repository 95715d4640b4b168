"""What the sources printed: ElastiQuant's table 3, minutes an epoch on ImageNet.

By network, scheme and number of devices: computing, encoding (none of SGD), transmission, and
their sum as printed. The link, the batch and the portion of the data are not published.
"""

from __future__ import annotations

from typing import NamedTuple


class Minutes(NamedTuple):
    Cp: float
    En: float
    Tx: float
    T: float


DEVICES = (2, 4, 7)
SCHEMES = ("SGD", "8-bit", "4-bit", "E")

TABLE_3: dict[tuple[str, str, int], Minutes] = {
    ("ResNet-34", "SGD", 2): Minutes(16.06, 0, 17.93, 33.99),
    ("ResNet-34", "SGD", 4): Minutes(10.47, 0, 20.62, 31.09),
    ("ResNet-34", "SGD", 7): Minutes(15.34, 0, 26.84, 42.18),
    ("ResNet-34", "8-bit", 2): Minutes(14.61, 4.15, 16.16, 34.92),
    ("ResNet-34", "8-bit", 4): Minutes(7.98, 4.04, 11.92, 23.94),
    ("ResNet-34", "8-bit", 7): Minutes(10.05, 4.04, 10.26, 25.35),
    ("ResNet-34", "4-bit", 2): Minutes(15.75, 0.93, 15.55, 32.23),
    ("ResNet-34", "4-bit", 4): Minutes(11.19, 1.25, 9.32, 21.76),
    ("ResNet-34", "4-bit", 7): Minutes(9.64, 1.34, 7.47, 18.45),
    ("ResNet-34", "E", 2): Minutes(14.72, 1.34, 15.24, 31.30),
    ("ResNet-34", "E", 4): Minutes(10.57, 1.55, 8.29, 20.41),
    ("ResNet-34", "E", 7): Minutes(8.91, 1.35, 6.01, 16.27),
    ("ResNet-50", "SGD", 2): Minutes(177.23, 0, 222.53, 399.76),
    ("ResNet-50", "SGD", 4): Minutes(167.9, 0, 265.17, 433.07),
    ("ResNet-50", "SGD", 7): Minutes(85.28, 0, 465.06, 550.34),
    ("ResNet-50", "8-bit", 2): Minutes(179.21, 38.65, 190.55, 409.09),
    ("ResNet-50", "8-bit", 4): Minutes(145.25, 39.97, 145.25, 330.49),
    ("ResNet-50", "8-bit", 7): Minutes(99.94, 38.64, 183.89, 322.47),
    ("ResNet-50", "4-bit", 2): Minutes(179.89, 9.33, 183.89, 373.11),
    ("ResNet-50", "4-bit", 4): Minutes(142.58, 8.12, 118.59, 269.17),
    ("ResNet-50", "4-bit", 7): Minutes(110.6, 6.66, 126.59, 243.85),
    ("ResNet-50", "E", 2): Minutes(169.23, 21.32, 171.9, 362.45),
    ("ResNet-50", "E", 4): Minutes(126.59, 18.66, 103.93, 249.18),
    ("ResNet-50", "E", 7): Minutes(119.93, 19.99, 78.62, 218.54),
}


def speedup(network: str, scheme: str, devices: int) -> float | None:
    """Sp: by how many minutes an epoch is longer than on the next lower printed number of
    devices. None where there is none, or nothing is printed."""
    here = TABLE_3.get((network, scheme, devices))
    if here is None or devices == DEVICES[0]:
        return None
    return here.T - TABLE_3[network, scheme, DEVICES[DEVICES.index(devices) - 1]].T
