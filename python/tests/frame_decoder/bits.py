"""Sections 7.1 to 7.3: the codings fixed and elias, and bits read one by one."""

import numpy as np

from frame_decoder.frame import check


class BitReader:
    """Bits of a byte string, the highest of a byte first."""

    def __init__(self, data):
        self.data = data
        self.at = 0

    def bits(self, count):
        value = 0
        for _ in range(count):
            check(self.at < 8 * len(self.data), "the bits end too early")
            value = value << 1 | self.data[self.at // 8] >> (7 - self.at % 8) & 1
            self.at += 1
        return value

    def omega(self):
        x = 1
        while self.bits(1):
            check(x <= 32, "an omega value is above 2^32")
            x = 1 << x | self.bits(x)
        check(x <= 2**32, "an omega value is above 2^32")
        return x

    def rest_of_byte_is_zero(self):
        return self.bits(-self.at % 8) == 0


def decode_fixed(data, bits, count):
    check(len(data) == -(-count * bits // 8), "length of fixed codes")
    stream = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    check(not stream[count * bits :].any(), "filling bits")
    weights = 1 << np.arange(bits)
    return (stream[: count * bits].reshape(count, bits) * weights).sum(axis=1)


def decode_elias(data, bits, count, run):
    reader = BitReader(data)
    codes = np.zeros(count, np.int64)
    for begin in range(0, count, run):
        length = min(run, count - begin)
        nonzeros = reader.omega() - 1
        check(nonzeros <= length, "number of nonzeros")
        place = -1
        for _ in range(nonzeros):
            place += reader.omega()
            check(place < length, "a gap leads beyond its run")
            sign = reader.bits(1)
            index = reader.omega()
            check(index < 1 << (bits - 1), "an index beyond the last level")
            codes[begin + place] = sign << (bits - 1) | index
    check(len(data) * 8 - reader.at < 8 and reader.rest_of_byte_is_zero(), "bits at the end")
    return codes
