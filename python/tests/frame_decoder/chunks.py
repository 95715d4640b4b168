"""Section 17: chunks."""

import math
import struct

import numpy as np

from frame_decoder.bits import decode_fixed
from frame_decoder.frame import check
from frame_decoder.rans import decode_rans


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


def decode_gaps(data, total):
    """The gap of each kept coordinate, and the bytes behind them."""
    check(len(data) >= 6, "the front of positions")
    low_bits, code_bits, size = struct.unpack_from("<BBI", data)
    check(low_bits <= 8 and 2 <= code_bits <= 8, "the bits of positions")
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
    return gaps, data


def positions_of(gaps, counts):
    """The positions of each chunk."""
    positions, at = [], 0
    for count in counts:
        positions.append(
            (np.cumsum(np.array(gaps[at : at + count], np.int64) + 1) - 1).tolist()
        )
        at += count
    return positions


def exact_chunk_values(data, count):
    check(len(data) >= 3 * count, "values are cut short")
    rest = np.frombuffer(data, np.uint8, 3 * count).reshape(-1, 3).astype(np.uint32)
    exponents = decode_rans(data[3 * count :], 8, count).astype(np.uint32)
    bits = rest[:, 0] | rest[:, 1] << 8 | (rest[:, 2] & 0x7F) << 16
    values = (bits | exponents << 23 | rest[:, 2] >> 7 << 31).astype(np.uint32).view(np.float32)
    check(np.isfinite(values).all(), "a value is not finite")
    return values


def scaled_chunk_values(data, counts, bits, levels, scales):
    decode_codes_of = decode_rans if bits > 1 else decode_fixed
    codes = decode_codes_of(data, bits, sum(counts)).astype(np.int64)
    sizes = levels[codes & (len(levels) - 1)]
    signed = np.where(codes >= len(levels), -sizes, sizes)
    wide = np.repeat(np.array(scales, np.uint32) << np.uint32(16), counts)
    with np.errstate(over="ignore", under="ignore"):
        largest = levels.max() * (np.uint32(max(scales)) << np.uint32(16)).view(np.float32)
        values = signed * wide.astype(np.uint32).view(np.float32)
    check(np.isfinite(largest), "a level of a scale")
    return values


def decode_chunk_tile(data, chunks, most, bits, levels, out):
    """`most` says how many coordinates each chunk may keep."""
    check(len(data) >= 1 and data[0] <= 1, "the form of a tile")
    listed, data = data[0] == 1, data[1:]
    counts = most
    if listed:
        counts, data = take_u16(data, len(chunks))
        check(all(c <= m for c, m in zip(counts, most, strict=True)), "a count")
    scales = []
    if bits > 0:
        scales, data = take_u16(data, len(chunks))
        check(all(scale < 0x7F80 for scale in scales), "a scale")
    gaps, data = decode_gaps(data, sum(counts))
    positions = positions_of(gaps, counts)
    if bits == 0:
        values = exact_chunk_values(data, sum(counts))
    else:
        values = scaled_chunk_values(data, counts, bits, levels, scales)
    at = 0
    for indices, here in zip(chunks, positions, strict=True):
        check(not here or here[-1] < len(indices), "a position")
        out[indices[here]] = values[at : at + len(here)]
        at += len(here)


def split_tiles(payload, at, count):
    """The bytes of each tile; the sizes of all but the last begin at `at`."""
    begin = at + 4 * (count - 1)
    check(len(payload) >= begin, "the sizes of tiles are cut short")
    sizes = np.frombuffer(payload, "<u4", count - 1, at).tolist()
    check(begin + sum(sizes) <= len(payload), "the sizes of tiles")
    sizes.append(len(payload) - begin - sum(sizes))
    parts = []
    for size in sizes:
        parts.append(payload[begin : begin + size])
        begin += size
    return parts


def decode_chunks(frame):
    (bits, chunk, kept, run_count), payload = parse_chunks(frame), frame.payload
    out = np.zeros(frame.n, np.float32)
    if frame.n == 0:
        check(not payload and run_count == 0, "bytes without values")
        return out
    level_count = 1 << bits - 1 if bits > 0 else 0
    levels_at = 8 * run_count
    sizes_at = levels_at + 4 * level_count
    check(len(payload) >= sizes_at, "the front is cut short")
    runs = np.frombuffer(payload, "<u4", 2 * run_count).reshape(-1, 2).tolist()
    chunks = chunk_indices(runs or [(frame.n, 0)], frame.n, chunk)
    levels = np.frombuffer(payload, "<f4", level_count, levels_at)
    check(np.isfinite(levels).all() and not np.signbit(levels).any(), "a level")
    per_tile = max(1, 16384 // kept)
    tiles = [chunks[at : at + per_tile] for at in range(0, len(chunks), per_tile)]
    for tile, data in zip(tiles, split_tiles(payload, sizes_at, len(tiles)), strict=True):
        most = [-(-len(indices) * kept // chunk) for indices in tile]
        decode_chunk_tile(data, tile, most, bits, levels, out)
    return out
