"""Section 14: rotated."""

import numpy as np

from frame_decoder.codec_ids import ROTATED
from frame_decoder.frame import check, parse_frame
from frame_decoder.random_numbers import mix64, random_bits


def pieces(n, size):
    """Where each piece begins, and its size; `size` is that of the largest."""
    begin = 0
    while begin < n:
        while size > n - begin:
            size //= 4
        yield begin, size
        begin += size


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


def decode_rotated(frame, decode):
    """`decode` gives the values of the frame inside."""
    check(frame.flags == 0 and len(frame.parameters) == 2, "parameter length and flags")
    log4, rounds = frame.parameters
    check(3 <= log4 <= 10 and 1 <= rounds <= 2, "block or rounds")
    inner = parse_frame(frame.payload)
    check(inner.codec != ROTATED and inner.n == frame.n, "the frame inside")
    values = decode(frame.payload).copy()
    with np.errstate(over="ignore", invalid="ignore"):
        for begin, m in pieces(frame.n, 4**log4):
            rotate_back(values[begin : begin + m], begin, frame.key, rounds)
    check(np.isfinite(values).all(), "a value is infinite")
    return values
