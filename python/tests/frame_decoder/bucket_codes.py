"""Section 10: bucket codes."""

import struct
from dataclasses import dataclass

import numpy as np

from frame_decoder.codec_ids import INNOVATION, LEVELS, SIGN, TERNARY, ZEROLESS
from frame_decoder.frame import check
from frame_decoder.rans import decode_rans
from frame_decoder.tiles import tile_size

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

    @property
    def side_numbers(self):
        """How many numbers of side data a bucket has."""
        return self.base if self.codec == LEVELS else 1


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


def zeroless_levels(f, payload):
    half = f.base // 2
    if f.family == 0:
        powers_of_p = [1.0]
        while len(powers_of_p) < half:
            powers_of_p.append(powers_of_p[-1] * f.p)
        return np.array(powers_of_p[::-1]).astype(np.float32)
    if f.family == 1:
        return (2 * np.arange(half) + 1).astype(np.float32) / np.float32(f.base - 1)
    check(len(payload) >= 4 * half, "the level list is cut short")
    return np.frombuffer(payload, "<f4", half)


def bucket_table(f, payload):
    if f.codec == TERNARY:
        return np.array([0, 1, -1], np.float32)
    if f.codec == SIGN:
        return np.array([-1, 1], np.float32)
    if f.codec == INNOVATION:
        numerators = (2 * np.arange(f.base) - (f.base - 1)).astype(np.float32)
        return numerators / np.float32(f.base - 1)
    upper = zeroless_levels(f, payload)
    with np.errstate(invalid="ignore", over="ignore"):
        steps = np.diff(upper, prepend=np.float32(0))
        check((steps >= np.float32(2.0**-126)).all() and upper[-1] == 1, "levels")
    return np.concatenate([-upper[::-1], upper])


def split_payload(f, payload, tiles, buckets):
    """The tile ends, the side data of each bucket, and the digits that follow them."""
    s = f.side_numbers
    at, ends_bytes = 4 * f.listed, 0 if f.coding == 0 else 8 * tiles
    check(len(payload) >= at + ends_bytes + 4 * buckets * s, "the payload is cut short")
    ends = np.frombuffer(payload, "<u8", ends_bytes // 8, at).tolist()
    at += ends_bytes
    side = np.frombuffer(payload, "<f4", buckets * s, at).reshape(buckets, s)
    check(np.isfinite(side).all() and (s > 1 or (side >= 0).all()), "side data")
    return ends, side, payload[at + 4 * buckets * s :]


def packed_bytes(base, count):
    k, b = DIGIT_GROUPS[base]
    return -(-(-(-count // k) * b) // 8)


def decode_packed(data, base, count):
    check(len(data) == packed_bytes(base, count), "length of packed digits")
    k, b = DIGIT_GROUPS[base]
    stream = int.from_bytes(data, "little")
    digits = []
    for _ in range(-(-count // k)):
        number = stream & (1 << b) - 1
        stream >>= b
        check(number < base**k, "a group of digits is too large")
        for _ in range(k):
            digits.append(number % base)
            number //= base
    check(stream == 0 and not any(digits[count:]), "filling digits and bits")
    return np.array(digits[:count], np.int64)


def decode_digits(f, data, ends, n, tile):
    """The digits of all tiles; `data` is what follows the side data."""
    digits, begin = [np.zeros(0, np.int64)], 0
    for t in range(-(-n // tile)):
        count = min(tile, n - t * tile)
        end = begin + packed_bytes(f.base, count) if f.coding == 0 else ends[t]
        check(begin <= end <= len(data), "a tile's end")
        part = data[begin:end]
        if f.coding == 0:
            digits.append(decode_packed(part, f.base, count))
        else:
            bits = max(2, (f.base - 1).bit_length())
            digits.append(decode_rans(part, bits, count))
        begin = end
    check(begin == len(data), "the digits do not end where the payload does")
    digits = np.concatenate(digits)
    check((digits < f.base).all(), "a digit is not below the base")
    return digits


def decode_bucket_codes(frame):
    f, payload, n = parse_bucket_codes(frame), frame.payload, frame.n
    table = None if f.codec == LEVELS else bucket_table(f, payload)
    bucket = f.bucket or max(n, 1)
    tile = tile_size(bucket, f.coding)
    ends, side, data = split_payload(f, payload, -(-n // tile), -(-n // bucket))
    digits = decode_digits(f, data, ends, n, tile)
    if n == 0:
        return np.zeros(0, np.float32)
    of = np.arange(n) // bucket
    if f.codec == LEVELS:
        return side[of, digits]
    return side[of, 0] * table[digits]
