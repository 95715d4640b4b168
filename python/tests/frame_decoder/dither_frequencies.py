"""Section 6.5 of dither: the frequencies of symbols, and the classes that they depend on."""

import functools
import itertools

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


def masses_of_parts(gauss, e):
    """M_T … M_0 M_0 … M_T"""
    factor = scaled(493088116, 2 * e, 14) if gauss else scaled(1549082004, e, 7)
    half = []
    while True:
        distance = 2 * len(half) + 1
        mass = power_of_half((distance**2 if gauss else distance) * factor >> 14)
        if mass == 0:
            return half[::-1] + half
        half.append(mass)


def symbol_starts(prefix, end, w, reach, whole):
    """The starts of all symbols of a bin, and 4096; the bin is `w` wide and ends at `end`."""
    edges = [prefix(64 * k + end) - prefix(64 * k + end - w) for k in range(-reach, reach + 2)]
    masses = [after - before for before, after in itertools.pairwise(edges)]
    masses.append(whole - sum(masses))
    f = [1 + mass * (4096 - len(masses)) // whole for mass in masses]
    f[reach] += 4096 - sum(f)
    return [0, *itertools.accumulate(f)]


@functools.lru_cache(None)
def dither_starts(gauss, phase, number):
    """For each bin the starts of all symbols, and 4096."""
    bins, raw, reach = class_of(number)
    row = masses_of_parts(gauss, 4 * (number - 17) + phase - 2 - 8 * raw)
    c = [0, *itertools.accumulate(row)]
    d = [0, *itertools.accumulate(a + b for a, b in itertools.pairwise(c))]
    middle = len(row) // 2

    def prefix(b):
        at = b + middle
        if at <= 0:
            return 0
        return d[at] if at < len(d) else d[-1] + (at - len(d) + 1) * 2 * c[-1]

    w = 64 // bins >> min(raw, 6)
    return [symbol_starts(prefix, -w * b, w, reach, 2 * w * c[-1]) for b in range(bins)]
