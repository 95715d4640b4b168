"""Section 15: eden."""

import struct

import numpy as np

from frame_decoder.frame import check
from frame_decoder.rotated import pieces, rotate_back

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


def decode_piece(payload, at, rate, piece):
    """Writes the values before the rotation; returns where the piece's bytes end."""
    m, low = len(piece), rate // 256
    upper = rate % 256 * (m // 256) // 8 * 8
    sizes = [4, upper * (low + 1) // 8, (m - upper) * low // 8]
    check(len(payload) >= at + sum(sizes), "the payload's length")
    scale, front, back = (
        payload[at + sum(sizes[:i]) : at + sum(sizes[: i + 1])] for i in range(3)
    )
    scale = np.frombuffer(scale, "<f4")[0]
    check(0 <= scale < np.inf, "a scale")
    piece[:upper] = eden_codes(front, upper, low + 1, scale) if upper else 0
    piece[upper:] = eden_codes(back, m - upper, low, scale)
    return at + sum(sizes)


def decode_eden(frame):
    check(frame.flags == 0 and len(frame.parameters) == 4, "parameter length and flags")
    rate, reserved = struct.unpack("<HH", frame.parameters)
    check(64 <= rate <= 1024 and reserved == 0, "the rate")
    coded = frame.n // 256 * 256
    values = np.zeros(frame.n, np.float32)
    at = 0
    with np.errstate(over="ignore", invalid="ignore"):
        for begin, m in pieces(coded, 4096):
            piece = values[begin : begin + m]
            at = decode_piece(frame.payload, at, rate, piece)
            rotate_back(piece, begin, frame.key, 2)
    check(len(frame.payload) == at + 4 * (frame.n - coded), "the payload's length")
    values[coded:] = np.frombuffer(frame.payload, "<f4", offset=at)
    check(np.isfinite(values).all(), "a value is not finite")
    return values
