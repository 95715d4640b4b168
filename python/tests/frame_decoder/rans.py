"""Section 7.4: the coding rans."""

import struct

import numpy as np

from frame_decoder.bits import BitReader, decode_fixed
from frame_decoder.frame import check


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


def decode_one_state(table, data, count):
    """What follows the table in mode 2."""
    check(len(data) >= 4, "the state is missing")
    words = take_words(data[4:])
    codes = table.decode(*struct.unpack_from("<I", data), words, count)
    check(not words.rest(), "words are left")
    return np.array(codes)


def decode_lanes(table, data, count, lanes):
    """What follows the table in modes 3 and 4, which have so many states."""
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
        return decode_one_state(table, data, count)
    return decode_lanes(table, data, count, 32 if mode == 3 else 64)
