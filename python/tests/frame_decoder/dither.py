"""Section 6: dither."""

import bisect
import struct

import numpy as np

from frame_decoder.dither_frequencies import class_of, dither_starts
from frame_decoder.frame import check
from frame_decoder.random_numbers import random_bits


class DitherTile:
    def __init__(self, data):
        check(len(data) >= 3, "a tile's header")
        log, self.delta_class, self.first_class = data[:3]
        check(
            log <= 7 and 1 <= self.delta_class <= 63 and self.first_class <= 63,
            "a tile's header",
        )
        self.lanes = 1 << log
        self.at, self.end, self.data = 3 + 4 * self.lanes, len(data), data
        check(len(data) >= self.at, "a tile's states")
        self.states = list(struct.unpack_from(f"<{self.lanes}I", data, 3))
        check(min(self.states) >= 1 << 16, "a state is too small")

    def symbol(self, place, starts):
        x = self.states[place % self.lanes]
        slot = x & 4095
        s = bisect.bisect_right(starts, slot) - 1
        x = (starts[s + 1] - starts[s]) * (x >> 12) + slot - starts[s]
        if x < 1 << 16:
            check(self.end - self.at >= 2, "the words end too early")
            x = x << 16 | self.data[self.at] | self.data[self.at + 1] << 8
            self.at += 2
        self.states[place % self.lanes] = x
        return s

    def raw_bits(self, count, raw):
        """The lowest `raw` bits of `count` indices."""
        plane = -(-count // 8)
        check(self.end - self.at >= raw * plane, "the raw bits end too early")
        low = [0] * count
        for p in range(raw):
            self.end -= plane
            for t in range(count):
                low[t] |= (self.data[self.end + t // 8] >> t % 8 & 1) << p
        return low

    def byte(self):
        check(self.end > self.at, "the bytes end too early")
        self.end -= 1
        return self.data[self.end]

    def escaped(self, raw, reach):
        """The h of an escape."""
        e = shift = 0
        while True:
            check(shift <= 21, "an escape is too long")
            byte = self.byte()
            e |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        size = e // 2 + reach + 1
        check(size << raw < 1 << 24, "an index is too large")
        return -size if e % 2 else size

    def block(self, places, gauss, phase, number):
        """The indices at `places`, which increase."""
        bins, raw, reach = class_of(number)
        tables = dither_starts(gauss, phase, number)
        h = [self.symbol(p, tables[p % 16 * bins // 16]) - reach for p in places]
        low = self.raw_bits(len(h), raw)
        h = [self.escaped(raw, reach) if value == reach + 1 else value for value in h]
        return [(high << raw) + bits for high, bits in zip(h, low, strict=True)]

    def classes(self, count, number):
        """The classes of `count` blocks that follow one of class `number`."""
        classes = []
        for first in range(0, count, 128):
            places = range(min(128, count - first))
            for difference in self.block(places, 0, 2, self.delta_class):
                number += difference
                check(0 <= number <= 63, "a class")
                classes.append(number)
        return classes

    def indices(self, place, gauss, phase):
        """The index of each coordinate of the tile, and whether its block has codes."""
        n = len(place)
        k, coded = np.zeros(n, np.int64), np.zeros(n, bool)
        number = self.first_class
        for group in range(0, n, 512 * 128):
            blocks = range(group, min(n, group + 512 * 128), 128)
            classes = self.classes(len(blocks), number)
            number = classes[-1]
            for block_class, first in sorted(zip(classes, blocks, strict=True)):
                if block_class == 0:
                    continue
                here = np.arange(first, min(n, first + 128))
                here = here[np.argsort(place[here])]
                k[here] = self.block(place[here].tolist(), gauss, phase, block_class)
                coded[here] = True
        check(self.at == self.end and set(self.states) == {1 << 16}, "the end of a tile")
        return k, coded


def parse_dither(frame):
    check(frame.flags == 0 and len(frame.parameters) == 12, "parameter length and flags")
    gauss, phase, reserved, step, dithered = struct.unpack("<BBHfI", frame.parameters)
    check(gauss <= 1 and phase <= 3 and reserved == 0, "a field")
    check(0 <= step < np.inf and (step == 0) == (dithered == 0) and dithered <= frame.n, "step")
    return gauss, phase, step, dithered


def split_tiles(payload, n):
    tiles = -(-n >> 19)
    at = 4 * max(tiles - 1, 0)
    check(len(payload) >= at and (n or not payload), "the payload's length")
    sizes = list(struct.unpack_from(f"<{at // 4}I", payload))
    sizes += [len(payload) - at - sum(sizes)] * min(tiles, 1)
    check(min(sizes, default=0) >= 0, "a tile's size")
    parts = []
    for size in sizes:
        parts.append(payload[at : at + size])
        at += size
    return parts


def places_and_shifts(key, n):
    """The place of each coordinate in its block, and how far the grid is shifted there."""
    i = np.arange(n)
    random = random_bits(key, 0, n).astype(np.int64)
    row = random[i & ~15]
    j = ((2 * (row & 7) + 1) * (i & 15) + (row >> 3 & 15)) & 15
    u = (j << 20 | random >> 12).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)
    return (i % 128 & ~15) + j, u


def decode_dither(frame):
    gauss, phase, step, dithered = parse_dither(frame)
    n = frame.n
    tiles = split_tiles(frame.payload, n)
    place, u = places_and_shifts(frame.key, n)
    k, coded = np.zeros(n, np.int64), np.zeros(n, bool)
    plain = np.zeros(n, np.float32)
    for t, data in enumerate(tiles):
        here = slice(t << 19, min(n, t + 1 << 19))
        if data[:1] == b"\xff":
            size = here.stop - here.start
            check(len(data) == 1 + 4 * size, "the size of a tile of plain values")
            plain[here] = np.frombuffer(data, "<f4", offset=1)
        else:
            k[here], coded[here] = DitherTile(data).indices(place[here], gauss, phase)
    check(coded.sum() == dithered, "the number of dithered coordinates")
    with np.errstate(over="ignore"):
        values = np.where(coded, np.float32(step) * (k.astype(np.float32) - u), plain)
    check(np.isfinite(values).all(), "a value is infinite")
    return values.astype(np.float32)
