"""Section 13: sparse."""

import struct

import numpy as np

from frame_decoder.bits import BitReader
from frame_decoder.frame import check
from frame_decoder.prefix_code import parse_prefix_table, read_symbol
from frame_decoder.random_numbers import random_bits
from frame_decoder.sparse_values import (
    exact_values,
    parse_float_tables,
    sparse_value_bytes,
    sparse_values,
)


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


def decode_segment(data, codes, place, last, count, f):
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


def decode_drawn(frame, f, counts, out):
    """Section 13.3: the positions are those with the smallest random numbers."""
    payload = frame.payload
    order = np.argsort(random_bits(frame.key, 0, frame.n), kind="stable")
    positions, at = np.sort(order[: sum(counts)]), 0
    for s, count in enumerate(counts):
        end = at + sparse_value_bytes(count, f["bits"])
        check(end <= len(payload), "the values are cut short")
        here = positions[4096 * s : 4096 * s + count]
        out[here] = sparse_values(payload[at:end], f["bits"], f["exponent"], count)
        at = end
    check(at == len(payload), "bytes behind the values")


def decode_listed(frame, f, counts, out):
    """Section 13.4: the positions are in the frame."""
    payload = frame.payload
    front = 12 * len(counts)
    check(len(payload) >= front, "the segments' front is cut short")
    last = np.frombuffer(payload, "<u4", len(counts)).tolist()
    ends = np.frombuffer(payload, "<u8", len(counts), 4 * len(counts)).tolist()
    check(max(last) < frame.n and (np.diff(last) > 0).all(), "last positions")
    codes, table = parse_prefix_table(payload[front:], 126 if f["magnitude"] > 0 else 63)
    data = payload[front + table :]
    if f["bits"] == 0:
        f["floats"], size = parse_float_tables(data)
        data = data[size:]
    check(ends[-1] == len(data) and ends == sorted(ends), "ends of segments")
    for s, count in enumerate(counts):
        part = data[ends[s - 1] if s else 0 : ends[s]]
        before = last[s - 1] if s else -1
        positions, values = decode_segment(part, codes, before, last[s], count, f)
        out[positions] = values


def decode_sparse(frame):
    f = parse_sparse(frame)
    kept = frame.n - f["dropped"]
    out = np.zeros(frame.n, np.float32)
    if kept == 0:
        check(not frame.payload, "bytes without coordinates")
        return out
    counts = [min(4096, kept - at) for at in range(0, kept, 4096)]
    if f["placement"] == 1:
        decode_drawn(frame, f, counts, out)
    else:
        decode_listed(frame, f, counts, out)
    return out
