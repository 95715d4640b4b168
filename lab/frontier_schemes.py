"""The schemes of lab/frontier.py: their names, and what `elastiquant train` is told of them."""

from __future__ import annotations

import re
from typing import NamedTuple


class Bits(NamedTuple):
    """How values are sent."""

    codec: str  # as --codec takes it
    # Whether biases and norms are compressed too: in fp32 they would cost more than the rest.
    everything: bool = False


# By their bits a value that is sent, roughly. Below half a bit an unbiased codec adds many
# times the variance of what it sends, so that the largest values are sent, with error feedback.
BITS = {
    "fp32": Bits("fp32"),
    "2 bits": Bits("dither:bits=2"),
    "1 bit": Bits("dither:bits=1"),
    "1/2 bit": Bits("dither:bits=0.5", True),
    "1/4 bit": Bits("topk:ratio=0.02,bits=4|ef", True),
    "1/8 bit": Bits("topk:ratio=0.01,bits=4|ef", True),
}

# Those that average gradients at every step; the other methods meet every H steps.
DDP = "DDP"
DDP_BITS = ("fp32", "2 bits", "1 bit", "1/2 bit")
# It has a codec of its own.
SPARSE_LOCO = "SparseLoCo"
STREAMS = 4  # fragments of Streaming DiLoCo
METHODS = {
    DDP: "allreduce",
    "local": "local-sgd",
    # Local SGD whose rounds get longer as the learning rate falls (--every-growth 2).
    "QSR": "local-sgd --every-growth 2",
    # As published, and with an outer momentum that suits short runs.
    "DiLoCo": "diloco:lr=0.7,momentum=0.9",
    "DiLoCo .5": "diloco:lr=0.9,momentum=0.5",
    "streaming": "diloco:lr=0.7,momentum=0.9,delay={delay},mix=0.5",
    "streaming .5": "diloco:lr=0.9,momentum=0.5,delay={delay},mix=0.5",
    SPARSE_LOCO: "sparseloco",
}

ON_GPU = (DDP, "local", "DiLoCo", "DiLoCo .5")  # what --device cuda has


class Scheme(NamedTuple):
    """What is sent, and how often."""

    method: str  # of METHODS
    every: int = 1  # H: steps from one exchange of a parameter to the next
    bits: str = "fp32"  # of BITS; SparseLoCo's own codec if it is ""

    @property
    def name(self) -> str:
        if self.method == DDP:
            return self.bits if self.bits == "fp32" else f"DDP, {self.bits}"
        return f"{self.method} {self.every}" + (f", {self.bits}" if self.bits else "")

    @property
    def streams(self) -> bool:
        return self.method.startswith("streaming")

    @property
    def delay(self) -> int:
        """Steps from sending to applying a mean: half of those from one fragment to the
        next."""
        return self.every // STREAMS // 2 if self.streams else 0

    def options(self, bits: dict[str, Bits]) -> list[str]:
        """For `elastiquant train`; `bits` is BITS, or has other codecs in its place."""
        algorithm, *more = METHODS[self.method].format(delay=self.delay).split()
        words = ["--algorithm", algorithm]
        if self.method != DDP:
            words += ["--every", str(self.every)]
        words += more
        if self.streams:
            words += ["--fragments", str(STREAMS)]
        if self.bits:
            codec = bits[self.bits]
            words += ["--codec", codec.codec]
            words += ["--exact", "none"] if codec.everything and self.method != DDP else []
        return words


FP32 = Scheme(DDP)


def parse(name: str) -> Scheme:
    """The scheme of a name such as "fp32", "DDP, 1 bit", "local 32, 1/2 bit" or
    "SparseLoCo 32". Raises ValueError if there is none."""
    head, _, bits = name.partition(", ")
    if name == FP32.name:
        return FP32
    if head == DDP and bits in DDP_BITS:
        return Scheme(DDP, 1, bits)
    found = re.fullmatch(r"(.+) (\d+)", head)
    known = found and found[1] in METHODS and found[1] != DDP and int(found[2]) > 0
    if not known or not (bits in BITS or (found[1] == SPARSE_LOCO and not bits)):
        raise ValueError(
            f"{name!r} is no scheme: name one like fp32, 'DDP, 1 bit', 'local 32, 1/2 bit' or "
            f"'SparseLoCo 32', of the methods {', '.join(METHODS)} and {', '.join(BITS)}"
        )
    return Scheme(found[1], int(found[2]), bits)


def grid(methods: list[str], everies: list[int], bits: list[str]) -> list[Scheme]:
    """All combinations that make sense, after full precision at every step, with which all are
    compared."""
    schemes = [FP32]
    for method in methods:
        if method == DDP:
            schemes += [Scheme(DDP, 1, b) for b in bits if b in DDP_BITS and b != "fp32"]
        elif method == SPARSE_LOCO:
            schemes += [Scheme(method, every, "") for every in everies]
        else:
            schemes += [Scheme(method, every, b) for every in everies for b in bits]
    return schemes
