#!/usr/bin/env python3
"""A second decoder of frames, written from docs/frame-format.md alone, in plain numpy.

It is slow and simple on purpose: it checks the specification and the library against each
other. Run on a folder, it decodes every NAME.eqf there and demands the bits of NAME.npy; run on
two files, it decodes the first into the second:

    python3 python/tests/frame_decoder.py testdata/golden
    python3 python/tests/frame_decoder.py IN.eqf OUT.npy
"""

import bisect
import functools
import itertools
import math
import pathlib
import struct
import sys
from dataclasses import dataclass

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

HEADER = struct.Struct("<4sBBBBIIQQ")
FP32, FP16, BF16, ELASTIC, DITHER = 1, 2, 3, 4, 5
LEVELS, TERNARY, SIGN, NATURAL, ZEROLESS, INNOVATION = 6, 7, 8, 9, 10, 11
LOW_RANK = 14
ROTATED = 15
EDEN = 12
LEVELS, TERNARY, SIGN, ZEROLESS, INNOVATION = 6, 7, 8, 10, 11
SPARSE = 13
CHUNKS = 16
MASK32 = 0xFFFFFFFF


class FrameError(ValueError):
    """The frame fails a check of the specification."""


def check(condition, what):
    if not condition:
        raise FrameError(what)


# Section 2: header and checksum.


def crc_table():
    table = []
    for c in range(256):
        for _ in range(8):
            c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
        table.append(c)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    c = MASK32
    for byte in data:
        c = (c >> 8) ^ CRC_TABLE[(c ^ byte) & 0xFF]
    return c ^ MASK32


@dataclass
class Frame:
    codec: int
    flags: int
    n: int
    key: int
    parameters: bytes
    payload: bytes


def parse_frame(data):
    check(len(data) >= HEADER.size, "header is cut short")
    magic, version, codec, flags, a, n, checksum, key, b = HEADER.unpack_from(data)
    check(magic == b"EQF1", "magic")
    check(version == 1, "version")
    check(len(data) == HEADER.size + a + b, "length")
    check(crc32c(data[:12] + bytes(4) + data[16:]) == checksum, "checksum")
    body = data[HEADER.size :]
    return Frame(codec, flags, n, key, body[:a], body[a:])


# Section 3: random numbers.


def random_bits(key, first, count):
    """RANDOM(key, i) for `count` coordinates from `first` on."""
    i = np.arange(first, first + count, dtype=np.uint64).astype(np.uint32)
    add, mix = np.uint32(key & MASK32), np.uint32(key >> 32)
    x = i * np.uint32(0x9E3779B9) + add
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15)) ^ mix) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


# Section 4: fp32, fp16, bf16.


def decode_raw(frame):
    width = {FP32: 4, FP16: 2, BF16: 2}[frame.codec]
    check(not frame.parameters and frame.flags == 0, "parameters and flags of a plain format")
    check(len(frame.payload) == frame.n * width, "payload length")
    if frame.codec == FP32:
        values = np.frombuffer(frame.payload, "<f4")
    elif frame.codec == FP16:
        values = np.frombuffer(frame.payload, "<f2").astype(np.float32)
    else:
        halves = np.frombuffer(frame.payload, "<u2").astype(np.uint32)
        values = (halves << np.uint32(16)).view(np.float32)
    check(np.isfinite(values).all(), "a value is NaN or infinite")
    return values


# Section 7: index codings.


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


class Words:
    def __init__(self, words):
        self.words = words
        self.at = 0

    def next(self):
        check(self.at < len(self.words), "the words end too early")
        self.at += 1
        return self.words[self.at - 1]

    def rest(self):
        return self.words[self.at :]


class RansTable:
    def __init__(self, reader, bits):
        half = 1 << (bits - 1)
        f = [0] * (2 * half)
        for j in range(half):
            for code in (j, half + j):
                guess = 0 if j == 0 else f[j - 1] if code == j else f[j]
                z = reader.omega() - 1
                f[code] = guess + (-(z + 1) // 2 if z % 2 else z // 2)
                check(0 <= f[code] <= 4095, "a frequency")
        check(sum(f) == 4096, "sum of the frequencies")
        self.f = f
        self.start = np.concatenate([[0], np.cumsum(f)]).tolist()
        self.code_of = np.repeat(np.arange(2 * half), f).tolist()

    def step(self, x, words):
        slot = x & 4095
        code = self.code_of[slot]
        x = self.f[code] * (x >> 12) + slot - self.start[code]
        return code, x if x >= 1 << 16 else x << 16 | words.next()

    def decode(self, x, words, count):
        """All codes with one state, which must end as it began in the encoder."""
        check(x >= 1 << 16, "a state is too small")
        codes = []
        for _ in range(count):
            code, x = self.step(x, words)
            codes.append(code)
        check(x == 1 << 16, "the final state")
        return codes

    def decode_rows(self, states, words, rows):
        check(min(states) >= 1 << 16, "a state is too small")
        codes = []
        for _ in range(rows):
            for lane in range(len(states)):
                code, states[lane] = self.step(states[lane], words)
                codes.append(code)
        return codes


def take_words(data):
    check(len(data) % 2 == 0, "half a word is left")
    return Words(np.frombuffer(data, "<u2").tolist())


def decode_rans(data, bits, count):
    check(len(data) >= 1, "the mode is missing")
    mode, data = data[0], data[1:]
    if mode == 0:
        return decode_fixed(data, bits, count)
    if mode == 1:
        check(len(data) == 1 and data[0] < 1 << bits, "the constant code")
        return np.full(count, data[0])
    check(mode in (2, 3, 4), "the mode is unknown")
    reader = BitReader(data)
    table = RansTable(reader, bits)
    check(reader.rest_of_byte_is_zero(), "filling bits of the table")
    data = data[reader.at // 8 :]
    if mode == 2:
        check(len(data) >= 4, "the state is missing")
        words = take_words(data[4:])
        codes = table.decode(*struct.unpack_from("<I", data), words, count)
        check(not words.rest(), "words are left")
        return np.array(codes)
    lanes = 32 if mode == 3 else 64
    layout = struct.Struct(f"<BI{lanes}I")
    check(len(data) >= layout.size, "the states are missing")
    tail_rows, tail_state, *states = layout.unpack_from(data)
    tail = count % lanes + lanes * tail_rows
    check(tail <= count, "the tail is longer than the tile")
    words = take_words(data[layout.size :])
    codes = table.decode_rows(states, words, (count - tail) // lanes)
    check(not words.rest(), "words are left")
    check(max(states) < 1 << 17, "a final state")
    tail_words = Words([x & 0xFFFF for x in states])
    codes += table.decode(tail_state, tail_words, tail)
    check(not any(tail_words.rest()), "words of the tail are left")
    return np.array(codes)


# Section 5: elastic.


@dataclass
class Elastic:
    bits: int
    family: int
    norm: int
    rounding: int
    coding: int
    listed: int
    bucket: int
    p: float
    q: float

    @property
    def half(self):
        return 1 << (self.bits - 1)


def parse_elastic(parameters):
    check(len(parameters) == 20, "parameter length")
    *small, reserved, bucket, p, q = struct.unpack("<6BHIff", parameters)
    e = Elastic(*small, bucket, p, q)
    check(2 <= e.bits <= 8, "bits")
    check(e.family <= 3 and e.norm <= 3 and e.coding <= 2 and reserved == 0, "a field")
    check(e.rounding == 0 or (e.rounding == 1 and e.family == 1), "rounding")
    most = {2: e.half - 1, 3: e.half}.get(e.family, 0)
    check(min(most, 1) <= e.listed <= most, "number of levels")
    check(0 < p < 1 if e.family == 0 else p == 0, "p")
    check(1 <= q < np.inf if e.norm == 3 else q == 0, "q")
    return e


def levels_of(e, payload):
    levels = np.zeros(e.half, np.float32)
    if e.family == 1:
        levels = np.arange(e.half, dtype=np.float32) / np.float32(e.half - 1)
    elif e.family == 0:
        x = 1.0
        for j in range(e.half - 1, 0, -1):
            levels[j] = x
            x *= e.p
    else:
        check(len(payload) >= 4 * e.listed, "the level list is cut short")
        listed = np.frombuffer(payload, "<f4", e.listed)
        levels = np.concatenate([np.zeros(1, np.float32), listed])
        if e.family == 3:
            check(listed[0] >= np.float32(2.0**-126), "the first level is not above 0")
            levels = listed
    with np.errstate(invalid="ignore", over="ignore"):
        check((np.diff(levels) >= np.float32(2.0**-126)).all(), "levels do not increase")
    check(levels[-1] == 1, "the last level is not 1")
    return levels


def decode_codes(e, data, ends, n, tile, run):
    """The codes of all tiles; `data` is what follows the norms."""
    codes = [np.zeros(0, np.int64)]
    begin = 0
    for t in range(-(-n // tile)):
        count = min(tile, n - t * tile)
        end = begin + -(-count * e.bits // 8) if e.coding == 0 else ends[t]
        check(begin <= end <= len(data), "a tile's end")
        part = data[begin:end]
        if e.coding == 0:
            codes.append(decode_fixed(part, e.bits, count))
        elif e.coding == 1:
            codes.append(decode_elias(part, e.bits, count, run))
        else:
            codes.append(decode_rans(part, e.bits, count))
        begin = end
    check(begin == len(data), "the codes do not end where the payload does")
    return np.concatenate(codes)


def tensors_of(frame):
    """The sizes of the parts that are cut into buckets by themselves, and what follows them."""
    if frame.flags == 0:
        return [frame.n], frame.payload
    check(frame.flags == 1, "flags")
    check(len(frame.payload) >= 4, "the list of tensors is cut short")
    (count,) = struct.unpack_from("<I", frame.payload)
    check(count > 0 and len(frame.payload) >= 4 + 4 * count, "the list of tensors is cut short")
    sizes = np.frombuffer(frame.payload, "<u4", count, 4).tolist()
    check(min(sizes) > 0 and sum(sizes) == frame.n, "the sizes of the tensors")
    return sizes, frame.payload[4 + 4 * count :]


def decode_elastic(frame):
    sizes, payload = tensors_of(frame)
    e, n = parse_elastic(frame.parameters), frame.n
    levels = levels_of(e, payload)
    bucket = e.bucket or max(n, 1)
    goal = 4096 if e.coding == 0 else 32768
    tile = 32768 if bucket > 32768 else max(goal // bucket, 1) * bucket
    lengths = [min(bucket, size - at) for size in sizes for at in range(0, size, bucket)]
    tiles, buckets = -(-n // tile), len(lengths)
    at = 4 * e.listed
    ends_bytes = 0 if e.coding == 0 else 8 * tiles
    check(len(payload) >= at + ends_bytes + 4 * buckets, "the payload is cut short")
    ends = np.frombuffer(payload, "<u8", ends_bytes // 8, at).tolist()
    norms = np.frombuffer(payload, "<f4", buckets, at + ends_bytes)
    largest = np.finfo(np.float32).max / np.float32(2 if e.rounding == 1 else 1)
    check(((norms >= 0) & (norms <= largest)).all(), "a norm")
    data = payload[at + ends_bytes + 4 * buckets :]
    codes = decode_codes(e, data, ends, n, tile, min(bucket, tile))
    index, negative = codes & (e.half - 1), codes >> (e.bits - 1) == 1
    check((index < len(levels)).all(), "a code names no level")
    norm = np.repeat(norms, lengths)
    if e.rounding == 0:
        return norm * np.where(negative, -levels[index], levels[index])
    k = np.where(negative, -index, index)
    random = random_bits(frame.key, 0, n) >> np.uint32(e.bits)
    place = k * (1 << (32 - e.bits)) - random.astype(np.int64) + (1 << (31 - e.bits))
    step = norm / np.float32(e.half - 1)
    return step * (place.astype(np.float32) * np.float32(2.0 ** (e.bits - 32)))


# Section 6: dither.


EIGHTHS = [1073741824, 1170923761, 1276901416, 1392470868]
EIGHTHS += [1518500249, 1655936264, 1805811301, 1969251187]


def powers(first):
    power = [1 << 31]
    for _ in range(63):
        power.append(power[-1] * first >> 31)
    return power


COARSE, FINE = powers(2124350982), powers(2147120269)


def power_of_half(x):
    if x >> 30 >= 32:
        return 0
    return (COARSE[x >> 24 & 63] * FINE[x >> 18 & 63] >> 31) >> (x >> 30)


def scaled(constant, eighths, d):
    octaves = -eighths // 8
    y = constant * EIGHTHS[-eighths - 8 * octaves] >> 30
    shift = octaves + 14 - d
    return y << shift if shift >= 0 else y >> -shift


def class_of(number):
    """bins, raw, reach"""
    if number >= 20:
        return 1, max(0, (number - 20) // 2), 31
    if number >= 18:
        return 2, 0, 15
    reach = [1] * 10 + [2] * 3 + [3, 5, 5, 7, 7]
    return 16, 0, reach[number]


@functools.lru_cache(None)
def dither_starts(gauss, phase, number):
    """For each bin the starts of all symbols, and 4096."""
    bins, raw, reach = class_of(number)
    e = 4 * (number - 17) + phase - 2 - 8 * raw
    factor = scaled(493088116, 2 * e, 14) if gauss else scaled(1549082004, e, 7)
    half = []
    while True:
        distance = 2 * len(half) + 1
        mass = power_of_half((distance**2 if gauss else distance) * factor >> 14)
        if mass == 0:
            break
        half.append(mass)
    c = [0, *itertools.accumulate(half[::-1] + half)]
    d = [0, *itertools.accumulate(a + b for a, b in itertools.pairwise(c))]
    middle = len(half)

    def prefix(b):
        at = b + middle
        if at <= 0:
            return 0
        return d[at] if at < len(d) else d[-1] + (at - len(d) + 1) * 2 * c[-1]

    w = 64 // bins >> min(raw, 6)
    tables = []
    for b in range(bins):
        edges = [
            prefix(64 * k - w * b) - prefix(64 * k - w * b - w)
            for k in range(-reach, reach + 2)
        ]
        masses = [after - before for before, after in itertools.pairwise(edges)]
        whole = 2 * w * c[-1]
        masses.append(whole - sum(masses))
        f = [1 + mass * (4096 - len(masses)) // whole for mass in masses]
        f[reach] += 4096 - sum(f)
        tables.append([0, *itertools.accumulate(f)])
    return tables


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

    def byte(self):
        check(self.end > self.at, "the bytes end too early")
        self.end -= 1
        return self.data[self.end]

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

    def block(self, places, gauss, phase, number):
        """The indices at `places`, which increase."""
        bins, raw, reach = class_of(number)
        tables = dither_starts(gauss, phase, number)
        h = [self.symbol(p, tables[p % 16 * bins // 16]) - reach for p in places]
        plane = -(-len(h) // 8)
        check(self.end - self.at >= raw * plane, "the raw bits end too early")
        low = [0] * len(h)
        for p in range(raw):
            self.end -= plane
            for t in range(len(h)):
                low[t] |= (self.data[self.end + t // 8] >> t % 8 & 1) << p
        for t, value in enumerate(h):
            if value == reach + 1:
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
                h[t] = -size if e % 2 else size
        return [(high << raw) + bits for high, bits in zip(h, low, strict=True)]


def decode_dither(frame):
    check(frame.flags == 0 and len(frame.parameters) == 12, "parameter length and flags")
    gauss, phase, reserved, step, dithered = struct.unpack("<BBHfI", frame.parameters)
    check(gauss <= 1 and phase <= 3 and reserved == 0, "a field")
    check(0 <= step < np.inf and (step == 0) == (dithered == 0) and dithered <= frame.n, "step")
    n, payload = frame.n, frame.payload
    tiles = -(-n >> 19)
    at = 4 * max(tiles - 1, 0)
    check(len(payload) >= at and (n or not payload), "the payload's length")
    sizes = list(struct.unpack_from(f"<{at // 4}I", payload))
    sizes += [len(payload) - at - sum(sizes)] * min(tiles, 1)
    check(min(sizes, default=0) >= 0, "a tile's size")
    i = np.arange(n)
    random = random_bits(frame.key, 0, n).astype(np.int64)
    row = random[i & ~15]
    j = ((2 * (row & 7) + 1) * (i & 15) + (row >> 3 & 15)) & 15
    u = (j << 20 | random >> 12).astype(np.float32) * np.float32(2.0**-24) - np.float32(0.5)
    place = (i % 128 & ~15) + j
    k, coded = np.zeros(n, np.int64), np.zeros(n, bool)
    plain = np.zeros(n, np.float32)
    for t, size in enumerate(sizes):
        data = payload[at : at + size]
        at += size
        begin, end = t << 19, min(n, t + 1 << 19)
        if data[:1] == b"\xff":
            check(size == 1 + 4 * (end - begin), "the size of a tile of plain values")
            plain[begin:end] = np.frombuffer(data, "<f4", offset=1)
            continue
        tile = DitherTile(data)
        number = tile.first_class
        for group in range(begin, end, 512 * 128):
            blocks = range(group, min(end, group + 512 * 128), 128)
            classes = []
            for first in range(0, len(blocks), 128):
                count = min(128, len(blocks) - first)
                for difference in tile.block(range(count), 0, 2, tile.delta_class):
                    number += difference
                    check(0 <= number <= 63, "a class")
                    classes.append(number)
            for block_class, first in sorted(zip(classes, blocks, strict=True)):
                if block_class == 0:
                    continue
                here = np.arange(first, min(n, first + 128))
                here = here[np.argsort(place[here])]
                k[here] = tile.block(place[here].tolist(), gauss, phase, block_class)
                coded[here] = True
        check(tile.at == tile.end and set(tile.states) == {1 << 16}, "the end of a tile")
    check(coded.sum() == dithered, "the number of dithered coordinates")
    with np.errstate(over="ignore"):
        values = np.where(coded, np.float32(step) * (k.astype(np.float32) - u), plain)
    check(np.isfinite(values).all(), "a value is infinite")
    return values.astype(np.float32)


# Section 10: bucket codes.


DIGIT_GROUPS = {3: (5, 8), 5: (3, 7), 6: (5, 13), 7: (6, 17), 9: (5, 16), 10: (3, 10)}
DIGIT_GROUPS |= {11: (2, 7), 12: (5, 18), 13: (4, 15), 14: (6, 23), 15: (11, 43)}
DIGIT_GROUPS |= {1 << e: (1, e) for e in range(1, 9)}


@dataclass
class BucketCodes:
    codec: int
    base: int
    coding: int
    family: int
    bucket: int
    p: float

    @property
    def listed(self):
        return self.base // 2 if self.codec == ZEROLESS and self.family == 2 else 0


def parse_bucket_codes(frame):
    check(frame.flags == 0 and len(frame.parameters) == 12, "parameter length and flags")
    top, coding, family, reserved, bucket, p = struct.unpack("<4BIf", frame.parameters)
    f = BucketCodes(frame.codec, top + 1, coding, family, bucket, p)
    sums = f.codec == INNOVATION and coding == 2
    check((f.base in DIGIT_GROUPS or sums) and reserved == 0, "base")
    check(f.base == {TERNARY: 3, SIGN: 2}.get(f.codec, f.base), "base of the codec")
    check(coding == 0 or (coding == 2 and f.base > 2), "coding")
    if f.codec == ZEROLESS:
        check(f.base % 2 == 0 and family <= 2, "base or family")
        check(0 < p < 1 if family == 0 else p == 0, "p")
    else:
        check(family == 0 and p == 0, "family or p")
    return f


def bucket_table(f, payload):
    if f.codec == TERNARY:
        return np.array([0, 1, -1], np.float32)
    if f.codec == SIGN:
        return np.array([-1, 1], np.float32)
    top, half = np.float32(f.base - 1), f.base // 2
    if f.codec == INNOVATION:
        return (2 * np.arange(f.base) - (f.base - 1)).astype(np.float32) / top
    if f.family == 0:
        powers_of_p = [1.0]
        while len(powers_of_p) < half:
            powers_of_p.append(powers_of_p[-1] * f.p)
        upper = np.array(powers_of_p[::-1]).astype(np.float32)
    elif f.family == 1:
        upper = (2 * np.arange(half) + 1).astype(np.float32) / top
    else:
        check(len(payload) >= 4 * half, "the level list is cut short")
        upper = np.frombuffer(payload, "<f4", half)
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.diff(upper, prepend=np.float32(0))
        check((steps >= np.float32(2.0**-126)).all() and upper[-1] == 1, "levels")
    return np.concatenate([-upper[::-1], upper])


def decode_digits(data, base, count):
    k, b = DIGIT_GROUPS[base]
    groups = -(-count // k)
    check(len(data) == -(-groups * b // 8), "length of packed digits")
    stream = int.from_bytes(data, "little")
    digits = []
    for _ in range(groups):
        number = stream & (1 << b) - 1
        stream >>= b
        check(number < base**k, "a group of digits is too large")
        for _ in range(k):
            digits.append(number % base)
            number //= base
    check(stream == 0 and not any(digits[count:]), "filling digits and bits")
    return np.array(digits[:count], np.int64)


def decode_bucket_codes(frame):
    f, payload, n = parse_bucket_codes(frame), frame.payload, frame.n
    table = None if f.codec == LEVELS else bucket_table(f, payload)
    bucket = f.bucket or max(n, 1)
    goal = 4096 if f.coding == 0 else 32768
    tile = 32768 if bucket > 32768 else max(goal // bucket, 1) * bucket
    tiles, buckets = -(-n // tile), -(-n // bucket)
    s = f.base if f.codec == LEVELS else 1
    at, ends_bytes = 4 * f.listed, 0 if f.coding == 0 else 8 * tiles
    check(len(payload) >= at + ends_bytes + 4 * buckets * s, "the payload is cut short")
    ends = np.frombuffer(payload, "<u8", ends_bytes // 8, at).tolist()
    at += ends_bytes
    side = np.frombuffer(payload, "<f4", buckets * s, at).reshape(buckets, s)
    check(np.isfinite(side).all() and (s > 1 or (side >= 0).all()), "side data")
    data = payload[at + 4 * buckets * s :]
    digits, begin = [np.zeros(0, np.int64)], 0
    for t in range(tiles):
        count = min(tile, n - t * tile)
        if f.coding == 0:
            k, b = DIGIT_GROUPS[f.base]
            end = begin + -(-(-(-count // k) * b) // 8)
        else:
            end = ends[t]
        check(begin <= end <= len(data), "a tile's end")
        part = data[begin:end]
        if f.coding == 0:
            digits.append(decode_digits(part, f.base, count))
        else:
            bits = max(2, (f.base - 1).bit_length())
            digits.append(decode_rans(part, bits, count))
        begin = end
    check(begin == len(data), "the digits do not end where the payload does")
    digits = np.concatenate(digits)
    check((digits < f.base).all(), "a digit is not below the base")
    of = np.arange(n) // bucket
    if f.codec == LEVELS:
        return side[of, digits] if n else np.zeros(0, np.float32)
    return side[of, 0] * table[digits] if n else np.zeros(0, np.float32)


# Section 11: natural.


def decode_natural(frame):
    check(frame.flags == 0 and len(frame.parameters) == 4, "parameter length and flags")
    check(frame.parameters in (bytes(4), b"\2\0\0\0"), "parameters")
    n, payload, coded = frame.n, frame.payload, frame.parameters[0] == 2
    tiles = -(-n // 32768)
    at = 8 * tiles if coded else 0
    check(len(payload) >= at, "the payload is cut short")
    ends = np.frombuffer(payload, "<u8", at // 8).tolist()
    data, begin = payload[at:], 0
    bits = [np.zeros(0, np.uint32)]
    for t in range(tiles):
        count = min(32768, n - t * 32768)
        signs = -(-count // 8)
        end = ends[t] if coded else begin + signs + count
        check(begin + signs <= end <= len(data), "a tile's end")
        sign = np.unpackbits(
            np.frombuffer(data[begin : begin + signs], np.uint8), bitorder="little"
        )
        check(not sign[count:].any(), "filling bits")
        part = data[begin + signs : end]
        exponent = decode_rans(part, 8, count) if coded else np.frombuffer(part, np.uint8)
        check((exponent < 255).all(), "an exponent of infinity")
        exponent = exponent.astype(np.uint32)
        bits.append(sign[:count].astype(np.uint32) << np.uint32(31) | exponent << np.uint32(23))
        begin = end
    check(begin == len(data), "the tiles do not end where the payload does")
    return np.concatenate(bits).view(np.float32)


# Section 12: low-rank.


def take(data, at, count, dtype):
    """`count` numbers as f32, and where they end."""
    end = at + count * np.dtype(dtype).itemsize
    check(end <= len(data), "the numbers are cut short")
    numbers = np.frombuffer(data[at:end], dtype)
    if dtype == "<u2":
        numbers = (numbers.astype(np.uint32) << np.uint32(16)).view(np.float32)
    check(np.isfinite(numbers).all(), "a number is NaN or infinite")
    return numbers, end


def decode_low_rank(frame):
    check(frame.flags == 0 and len(frame.parameters) == 8, "parameter length and flags")
    form, reserved, tensors = struct.unpack("<B3sI", frame.parameters)
    check(form <= 1 and reserved == bytes(3), "format or reserved bytes")
    data, at = frame.payload, 12 * tensors
    check(at <= len(data), "the records are cut short")
    values = np.zeros(frame.n, np.float32)
    begin = 0
    for t in range(tensors):
        rows, cols, rank = struct.unpack_from("<3I", data, 12 * t)
        listed = rank == MASK32
        check(rows > 0 and cols > 0 and (listed or rank <= min(rows, cols)), "a record")
        size = min(rows * cols, frame.n - begin)
        missing = rows * cols - size
        check(missing == 0 or (t == tensors - 1 and not listed and missing < cols), "shapes")
        if listed:
            part, at = take(data, at, size, "<f4")
        else:
            dtype = "<u2" if form else "<f4"
            p, at = take(data, at, rank * rows, dtype)
            q, at = take(data, at, rank * cols, dtype)
            part = np.zeros(size, np.float32)
            for k in range(rank):
                product = np.outer(p[k * rows : (k + 1) * rows], q[k * cols : (k + 1) * cols])
                product = product.reshape(-1)[:size]
                part = part + product if k else product
            check(np.isfinite(part).all(), "a value is infinite")
        values[begin : begin + size] = part
        begin += size
    check(begin == frame.n and at == len(data), "values or bytes are left over")
    return values


# Section 13: sparse.


def parse_prefix_table(data, symbols):
    """(length, code) -> symbol, and the table's bytes."""
    check(len(data) >= 2, "the table is cut short")
    first, count = data[0], data[1]
    check(count >= 1 and first + count <= symbols, "a symbol")
    if count == 1:
        return {(0, 0): first}, 2
    size = 2 + -(-count // 2)
    check(len(data) >= size, "the table is cut short")
    halves = [half for byte in data[2:size] for half in (byte & 15, byte >> 4)]
    check(not any(halves[count:]) and max(halves) <= 12, "a length")
    check(sum(2.0**-length for length in halves if length) == 1, "the code is not complete")
    codes, code = {}, 0
    for length in range(1, 13):
        code <<= 1
        for s in range(count):
            if halves[s] == length:
                codes[length, code] = first + s
                code += 1
    return codes, size


def read_symbol(reader, codes):
    length = code = 0
    while (length, code) not in codes:
        code, length = code << 1 | reader.bits(1), length + 1
    return codes[length, code]


def sparse_value_bytes(count, bits):
    return -(-count * bits // 8) + (2 * -(-count // 64) if bits < 16 else 0)


def sparse_values(data, bits, exponent, count):
    check(len(data) == sparse_value_bytes(count, bits), "bytes of the values")
    if bits == 32:
        values = np.frombuffer(data, "<f4")
        check(np.isfinite(values).all(), "a value")
        return values
    if bits == 16:
        halves = np.frombuffer(data, "<f2").astype(np.float32)
        check(np.isfinite(halves).all(), "a value")
        return halves * np.float32(2.0**exponent)
    blocks = -(-count // 64)
    norms = np.frombuffer(data, "<u2", blocks)
    check((norms <= 0x7F7F).all(), "a norm")
    norms = (norms.astype(np.uint32) << np.uint32(16)).view(np.float32)
    integers = np.frombuffer(data, np.int8, offset=2 * blocks)
    if bits == 4:
        low, high = (integers << 4).astype(np.int8) >> 4, integers >> 4
        integers = np.stack([low, high], axis=1).ravel()
        check(not integers[count:].any(), "half a byte that is left over")
        integers = integers[:count]
    limit = (1 << (bits - 1)) - 1
    check((integers >= -limit).all(), "an integer")
    return np.repeat(norms / np.float32(limit), 64)[:count] * integers.astype(np.float32)


def parse_float_tables(data):
    """The largest exponent, the codes of exponents and lengths, and the tables' bytes."""
    check(len(data) >= 1 and data[0] < 255, "the largest exponent")
    exponents, first = parse_prefix_table(data[1:], 63)
    lengths, second = parse_prefix_table(data[1 + first :], 24)
    return (data[0], exponents, lengths), 1 + first + second


def exact_values(data, tables, count):
    top, exponents, lengths = tables
    reader, values = BitReader(data), []
    for _ in range(count):
        symbol = read_symbol(reader, exponents)
        exponent = reader.bits(8) if symbol == 62 else top - symbol
        check(0 <= exponent < 255, "an exponent")
        length = read_symbol(reader, lengths)
        sign = reader.bits(1)
        mantissa = (2 * reader.bits(length - 1) + 1) << 23 - length if length else 0
        values.append(sign << 31 | exponent << 23 | mantissa)
    check(reader.rest_of_byte_is_zero() and -(-reader.at // 8) == len(data), "the values' end")
    return np.array(values, np.uint32).view(np.float32)


def decode_sparse_segment(data, codes, place, last, count, f):
    """Positions and values of a segment that follows position `place`."""
    reader = BitReader(data)
    positions, signs = [], []
    for _ in range(count):
        symbol, marked = read_symbol(reader, codes), False
        if f["magnitude"] > 0:
            symbol, marked = divmod(symbol, 2)
        gap = 1
        if symbol > 0:
            plain, upper = divmod(symbol - 1, 2)
            gap = 2 + upper << plain | reader.bits(plain)
        place += gap
        check(place <= last, "a position above the last")
        positions.append(place)
        signs.append((-1 if reader.bits(1) else 1) if marked else 0)
    check(place == last and reader.rest_of_byte_is_zero(), "the end of the positions")
    signs = np.array(signs, np.float32)
    values = signs * np.float32(f["magnitude"])
    rest = data[reader.at // 8 :]
    if f["bits"] == 0:
        return positions, exact_values(rest, f["floats"], count)
    values[signs == 0] = sparse_values(rest, f["bits"], f["exponent"], int((signs == 0).sum()))
    return positions, values


def parse_sparse(frame):
    check(frame.flags == 0 and len(frame.parameters) == 12, "parameter length and flags")
    names = ["placement", "bits", "exponent", "dropped", "magnitude"]
    f = dict(zip(names, struct.unpack("<BBhIf", frame.parameters), strict=True))
    check(f["placement"] <= 1 and f["bits"] in (32, 16, 8, 4, 0), "placement or bits")
    check(-125 <= f["exponent"] <= 112 if f["bits"] == 16 else f["exponent"] == 0, "exponent")
    check(f["dropped"] <= frame.n, "dropped")
    magnitude = f["magnitude"]
    check(np.isfinite(magnitude) and not np.signbit(magnitude), "magnitude")
    check(magnitude == 0 or f["placement"] == 0, "magnitude of drawn positions")
    check(f["bits"] > 0 or (f["placement"] == 0 and magnitude == 0), "exact values")
    return f


def decode_sparse(frame):
    f, payload, n = parse_sparse(frame), frame.payload, frame.n
    kept = n - f["dropped"]
    out = np.zeros(n, np.float32)
    if kept == 0:
        check(not payload, "bytes without coordinates")
        return out
    counts = [min(4096, kept - at) for at in range(0, kept, 4096)]
    if f["placement"] == 1:
        order = np.argsort(random_bits(frame.key, 0, n), kind="stable")
        positions, at = np.sort(order[:kept]), 0
        for s, count in enumerate(counts):
            end = at + sparse_value_bytes(count, f["bits"])
            check(end <= len(payload), "the values are cut short")
            here = positions[4096 * s : 4096 * s + count]
            out[here] = sparse_values(payload[at:end], f["bits"], f["exponent"], count)
            at = end
        check(at == len(payload), "bytes behind the values")
        return out
    front = 12 * len(counts)
    check(len(payload) >= front, "the segments' front is cut short")
    last = np.frombuffer(payload, "<u4", len(counts)).tolist()
    ends = np.frombuffer(payload, "<u8", len(counts), 4 * len(counts)).tolist()
    check(max(last) < n and (np.diff(last) > 0).all(), "last positions")
    codes, table = parse_prefix_table(payload[front:], 126 if f["magnitude"] > 0 else 63)
    data = payload[front + table :]
    if f["bits"] == 0:
        f["floats"], size = parse_float_tables(data)
        data = data[size:]
    check(ends[-1] == len(data) and ends == sorted(ends), "ends of segments")
    for s, count in enumerate(counts):
        part = data[ends[s - 1] if s else 0 : ends[s]]
        before = last[s - 1] if s else -1
        positions, values = decode_sparse_segment(part, codes, before, last[s], count, f)
        out[positions] = values
    return out


# Section 14: rotated.


def mix64(x):
    mask = (1 << 64) - 1
    x = x + 0x9E3779B97F4A7C15 & mask
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return x ^ x >> 31


def rotate_back(x, first, key, rounds):
    m = len(x)
    for number in range(rounds, 0, -1):
        h = 1
        while h < m:
            pairs = x.reshape(-1, 2, h)
            a, b = pairs[:, 0].copy(), pairs[:, 1].copy()
            pairs[:, 0], pairs[:, 1] = a + b, a - b
            h *= 2
        x /= np.float32(m**0.5)
        flip = random_bits(mix64(key ^ number), first, m) >> np.uint32(31) == 1
        x[flip] = -x[flip]


def decode_rotated(frame):
    check(frame.flags == 0 and len(frame.parameters) == 2, "parameter length and flags")
    log4, rounds = frame.parameters
    check(3 <= log4 <= 10 and 1 <= rounds <= 2, "block or rounds")
    inner = parse_frame(frame.payload)
    check(inner.codec != ROTATED and inner.n == frame.n, "the frame inside")
    values = decode(frame.payload).copy()
    at, size = 0, 4**log4
    with np.errstate(over="ignore", invalid="ignore"):
        while at < frame.n:
            while size > frame.n - at:
                size //= 4
            rotate_back(values[at : at + size], at, frame.key, rounds)
            at += size
    check(np.isfinite(values).all(), "a value is infinite")
    return values


# Section 15: eden.


CENTROIDS = {
    1: [0.797885],
    2: [0.452780, 1.510418],
    3: [0.245094, 0.756005, 1.343909, 2.151946],
    4: [0.128395, 0.388048, 0.656759, 0.942340, 1.256231, 1.618046, 2.069017, 2.732589],
}


def eden_codes(data, count, bits, scale):
    if bits == 0:
        return np.zeros(count, np.float32)
    stream = np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")
    codes = stream.reshape(count, bits) @ (1 << np.arange(bits))
    table = np.array(CENTROIDS[bits], np.float32) * np.float32(scale)
    return np.concatenate([table, -table])[codes]


def decode_eden(frame):
    check(frame.flags == 0 and len(frame.parameters) == 4, "parameter length and flags")
    rate, reserved = struct.unpack("<HH", frame.parameters)
    check(64 <= rate <= 1024 and reserved == 0, "the rate")
    low, coded = rate // 256, frame.n // 256 * 256
    values = np.zeros(frame.n, np.float32)
    at = begin = 0
    m = 4096
    with np.errstate(over="ignore", invalid="ignore"):
        while begin < coded:
            while m > coded - begin:
                m //= 4
            upper = rate % 256 * (m // 256) // 8 * 8
            sizes = [4, upper * (low + 1) // 8, (m - upper) * low // 8]
            check(len(frame.payload) >= at + sum(sizes), "the payload's length")
            scale, front, back = (
                frame.payload[at + sum(sizes[:i]) : at + sum(sizes[: i + 1])] for i in range(3)
            )
            scale = np.frombuffer(scale, "<f4")[0]
            check(0 <= scale < np.inf, "a scale")
            piece = values[begin : begin + m]
            piece[:upper] = eden_codes(front, upper, low + 1, scale) if upper else 0
            piece[upper:] = eden_codes(back, m - upper, low, scale)
            rotate_back(piece, begin, frame.key, 2)
            at, begin = at + sum(sizes), begin + m
    check(len(frame.payload) == at + 4 * (frame.n - coded), "the payload's length")
    values[coded:] = np.frombuffer(frame.payload, "<f4", offset=at)
    check(np.isfinite(values).all(), "a value is not finite")
    return values


# Section 17: chunks.


def parse_chunks(frame):
    check(frame.flags == 0 and len(frame.parameters) == 16, "parameter length and flags")
    bits, zero, chunk, kept, runs = struct.unpack("<B3sIII", frame.parameters)
    check(bits <= 8 and not any(zero), "bits")
    check(1 <= chunk <= 32768 and 1 <= kept <= chunk, "chunk or kept")
    return bits, chunk, kept, runs


def chunk_indices(runs, n, chunk):
    """The coordinates of each chunk of the message."""
    side = math.isqrt(chunk)
    chunks, begin = [], 0
    for rows, cols in runs:
        size = rows * (cols or 1)
        check(0 < size <= n - begin, "the length of a run")
        here = np.arange(begin, begin + size)
        begin += size
        if cols == 0:
            chunks += [here[at : at + chunk] for at in range(0, size, chunk)]
            continue
        check(side * side == chunk > 1, "blocks of a chunk without sides")
        check(rows % side == 0 and cols % side == 0, "the sides of a matrix")
        blocks = here.reshape(rows // side, side, cols // side, side).swapaxes(1, 2)
        chunks += list(blocks.reshape(-1, chunk))
    check(begin == n, "the runs are too short")
    return chunks


def take_u16(data, count):
    check(len(data) >= 2 * count, "numbers of 16 bits are cut short")
    return np.frombuffer(data, "<u2", count).tolist(), data[2 * count :]


def decode_gaps(data, counts):
    """The positions of each chunk, and the bytes behind them."""
    check(len(data) >= 6, "the front of positions")
    low_bits, code_bits, size = struct.unpack_from("<BBI", data)
    check(low_bits <= 8 and 2 <= code_bits <= 8, "the bits of positions")
    total = sum(counts)
    low_bytes = (total * low_bits + 7) // 8
    data = data[6:]
    check(len(data) >= low_bytes + size, "positions are cut short")
    lows = decode_fixed(data[:low_bytes], low_bits, total) if low_bits else np.zeros(total, int)
    codes = decode_rans(data[low_bytes : low_bytes + size], code_bits, total)
    data = data[low_bytes + size :]
    gaps = []
    for code, low in zip(codes.tolist(), lows.tolist(), strict=True):
        if code == (1 << code_bits) - 1:
            (above,), data = take_u16(data, 1)
            code += above
        gaps.append(code << low_bits | low)
    positions, at = [], 0
    for count in counts:
        positions.append(
            (np.cumsum(np.array(gaps[at : at + count], np.int64) + 1) - 1).tolist()
        )
        at += count
    return positions, data


def exact_chunk_values(data, count):
    check(len(data) >= 3 * count, "values are cut short")
    rest = np.frombuffer(data, np.uint8, 3 * count).reshape(-1, 3).astype(np.uint32)
    exponents = decode_rans(data[3 * count :], 8, count).astype(np.uint32)
    bits = rest[:, 0] | rest[:, 1] << 8 | (rest[:, 2] & 0x7F) << 16
    values = (bits | exponents << 23 | rest[:, 2] >> 7 << 31).astype(np.uint32).view(np.float32)
    check(np.isfinite(values).all(), "a value is not finite")
    return values


def decode_chunk_tile(data, chunks, counts, bits, levels, out):
    check(len(data) >= 1 and data[0] <= 1, "the form of a tile")
    listed, data = data[0] == 1, data[1:]
    if listed:
        most = counts
        counts, data = take_u16(data, len(chunks))
        check(all(c <= m for c, m in zip(counts, most, strict=True)), "a count")
    scales = []
    if bits > 0:
        scales, data = take_u16(data, len(chunks))
        check(all(scale < 0x7F80 for scale in scales), "a scale")
    positions, data = decode_gaps(data, counts)
    if bits == 0:
        values = exact_chunk_values(data, sum(counts))
    else:
        decode_codes_of = decode_rans if bits > 1 else decode_fixed
        codes = decode_codes_of(data, bits, sum(counts)).astype(np.int64)
        sizes = levels[codes & (len(levels) - 1)]
        signed = np.where(codes >= len(levels), -sizes, sizes)
        wide = np.repeat(np.array(scales, np.uint32) << np.uint32(16), counts)
        with np.errstate(over="ignore", under="ignore"):
            largest = levels.max() * (np.uint32(max(scales)) << np.uint32(16)).view(np.float32)
            values = signed * wide.astype(np.uint32).view(np.float32)
        check(np.isfinite(largest), "a level of a scale")
    at = 0
    for indices, here in zip(chunks, positions, strict=True):
        check(not here or here[-1] < len(indices), "a position")
        out[indices[here]] = values[at : at + len(here)]
        at += len(here)


def decode_chunks(frame):
    (bits, chunk, kept, run_count), payload = parse_chunks(frame), frame.payload
    out = np.zeros(frame.n, np.float32)
    if frame.n == 0:
        check(not payload and run_count == 0, "bytes without values")
        return out
    level_count = 1 << bits - 1 if bits > 0 else 0
    levels_at = 8 * run_count
    table_at = levels_at + 4 * level_count
    check(len(payload) >= table_at, "the front is cut short")
    runs = np.frombuffer(payload, "<u4", 2 * run_count).reshape(-1, 2).tolist()
    chunks = chunk_indices(runs or [(frame.n, 0)], frame.n, chunk)
    levels = np.frombuffer(payload, "<f4", level_count, levels_at)
    check(np.isfinite(levels).all() and not np.signbit(levels).any(), "a level")
    per_tile = max(1, 16384 // kept)
    tiles = [chunks[at : at + per_tile] for at in range(0, len(chunks), per_tile)]
    at = table_at + 4 * (len(tiles) - 1)
    check(len(payload) >= at, "the sizes of tiles are cut short")
    sizes = np.frombuffer(payload, "<u4", len(tiles) - 1, table_at).tolist()
    check(at + sum(sizes) <= len(payload), "the sizes of tiles")
    sizes.append(len(payload) - at - sum(sizes))
    for tile, size in zip(tiles, sizes, strict=True):
        counts = [-(-len(indices) * kept // chunk) for indices in tile]
        decode_chunk_tile(payload[at : at + size], tile, counts, bits, levels, out)
        at += size
    return out


DECODERS = {FP32: decode_raw, FP16: decode_raw, BF16: decode_raw}
DECODERS |= {ELASTIC: decode_elastic, DITHER: decode_dither}
DECODERS |= dict.fromkeys([LEVELS, TERNARY, SIGN, ZEROLESS, INNOVATION], decode_bucket_codes)
DECODERS[NATURAL] = decode_natural
DECODERS[LOW_RANK] = decode_low_rank
DECODERS[SPARSE] = decode_sparse
DECODERS[CHUNKS] = decode_chunks
DECODERS[ROTATED] = decode_rotated
DECODERS[EDEN] = decode_eden


def decode(data):
    """The values of a frame, as a float32 array; FrameError if it fails a check."""
    frame = parse_frame(data)
    check(frame.codec in DECODERS, "the codec is unknown")
    values = DECODERS[frame.codec](frame)
    assert values.dtype == np.float32 and len(values) == frame.n
    return values


def check_folder(folder):
    frames = sorted(folder.glob("*.eqf"))
    wrong = []
    for path in frames:
        expected = np.load(path.with_suffix(".npy"))
        try:
            values = decode(path.read_bytes())
        except FrameError as error:
            wrong.append(f"{path.name}: refused: {error}")
            continue
        if values.tobytes() != expected.astype("<f4").tobytes():
            differ = np.flatnonzero(values.view(np.uint32) != expected.view(np.uint32))
            wrong.append(f"{path.name}: {len(differ)} values differ, the first at {differ[0]}")
    print("\n".join([*wrong, f"{len(frames)} frames, {len(wrong)} wrong"]))
    return 1 if wrong or not frames else 0


def main(arguments):
    if len(arguments) == 1:
        return check_folder(pathlib.Path(arguments[0]))
    if len(arguments) == 2:
        np.save(arguments[1], decode(pathlib.Path(arguments[0]).read_bytes()))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
