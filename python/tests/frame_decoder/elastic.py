"""Section 5: elastic."""

import struct
from dataclasses import dataclass

import numpy as np

from frame_decoder.bits import decode_elias, decode_fixed
from frame_decoder.frame import check
from frame_decoder.random_numbers import random_bits
from frame_decoder.rans import decode_rans
from frame_decoder.tiles import tile_size


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


def split_payload(e, payload, tiles, buckets):
    """The tile ends, the norms, and the codes that follow them."""
    at = 4 * e.listed
    ends_bytes = 0 if e.coding == 0 else 8 * tiles
    check(len(payload) >= at + ends_bytes + 4 * buckets, "the payload is cut short")
    ends = np.frombuffer(payload, "<u8", ends_bytes // 8, at).tolist()
    norms = np.frombuffer(payload, "<f4", buckets, at + ends_bytes)
    largest = np.finfo(np.float32).max / np.float32(2 if e.rounding == 1 else 1)
    check(((norms >= 0) & (norms <= largest)).all(), "a norm")
    return ends, norms, payload[at + ends_bytes + 4 * buckets :]


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


def dithered_values(e, key, k, norm):
    random = random_bits(key, 0, len(k)) >> np.uint32(e.bits)
    place = k * (1 << (32 - e.bits)) - random.astype(np.int64) + (1 << (31 - e.bits))
    step = norm / np.float32(e.half - 1)
    return step * (place.astype(np.float32) * np.float32(2.0 ** (e.bits - 32)))


def decode_elastic(frame):
    sizes, payload = tensors_of(frame)
    e, n = parse_elastic(frame.parameters), frame.n
    levels = levels_of(e, payload)
    bucket = e.bucket or max(n, 1)
    tile = tile_size(bucket, e.coding)
    lengths = [min(bucket, size - at) for size in sizes for at in range(0, size, bucket)]
    ends, norms, data = split_payload(e, payload, -(-n // tile), len(lengths))
    codes = decode_codes(e, data, ends, n, tile, min(bucket, tile))
    index, negative = codes & (e.half - 1), codes >> (e.bits - 1) == 1
    check((index < len(levels)).all(), "a code names no level")
    norm = np.repeat(norms, lengths)
    if e.rounding == 1:
        return dithered_values(e, frame.key, np.where(negative, -index, index), norm)
    return norm * np.where(negative, -levels[index], levels[index])
