"""Section 3: random numbers."""

import numpy as np

from frame_decoder.frame import MASK32


def random_bits(key, first, count):
    """RANDOM(key, i) for `count` coordinates from `first` on."""
    i = np.arange(first, first + count, dtype=np.uint64).astype(np.uint32)
    add, mix = np.uint32(key & MASK32), np.uint32(key >> 32)
    x = i * np.uint32(0x9E3779B9) + add
    x = (x ^ (x >> np.uint32(16))) * np.uint32(0x7FEB352D)
    x = (x ^ (x >> np.uint32(15)) ^ mix) * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def mix64(x):
    """MIX(x)."""
    mask = (1 << 64) - 1
    x = x + 0x9E3779B97F4A7C15 & mask
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
    x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
    return x ^ x >> 31
