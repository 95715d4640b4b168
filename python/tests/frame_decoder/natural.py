"""Section 11: natural."""

import numpy as np

from frame_decoder.frame import check
from frame_decoder.rans import decode_rans


def bits_of_tile(data, count, signs, coded):
    """The bits of the f32 of a tile, whose first `signs` bytes are the signs."""
    sign = np.unpackbits(np.frombuffer(data[:signs], np.uint8), bitorder="little")
    check(not sign[count:].any(), "filling bits")
    part = data[signs:]
    exponent = decode_rans(part, 8, count) if coded else np.frombuffer(part, np.uint8)
    check((exponent < 255).all(), "an exponent of infinity")
    exponent = exponent.astype(np.uint32)
    return sign[:count].astype(np.uint32) << np.uint32(31) | exponent << np.uint32(23)


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
        bits.append(bits_of_tile(data[begin:end], count, signs, coded))
        begin = end
    check(begin == len(data), "the tiles do not end where the payload does")
    return np.concatenate(bits).view(np.float32)
