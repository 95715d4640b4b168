"""Section 13.2: the values of sparse."""

import numpy as np

from frame_decoder.bits import BitReader
from frame_decoder.frame import check
from frame_decoder.prefix_code import parse_prefix_table, read_symbol


def sparse_value_bytes(count, bits):
    return -(-count * bits // 8) + (2 * -(-count // 64) if bits < 16 else 0)


def integer_values(data, bits, count):
    blocks = -(-count // 64)
    norms = np.frombuffer(data, "<u2", blocks)
    check((norms <= 0x7F7F).all(), "a norm")
    norms = (norms.astype(np.uint32) << np.uint32(16)).view(np.float32)
    integers = np.frombuffer(data, np.int8, offset=2 * blocks)
    if bits == 4:
        low, high = (integers << 4).astype(np.int8) >> 4, integers >> 4
        integers = np.stack([low, high], axis=1).ravel()
        check(not integers[count:].any(), "half a byte that is left over")
        integers = integers[:count]
    limit = (1 << (bits - 1)) - 1
    check((integers >= -limit).all(), "an integer")
    return np.repeat(norms / np.float32(limit), 64)[:count] * integers.astype(np.float32)


def sparse_values(data, bits, exponent, count):
    check(len(data) == sparse_value_bytes(count, bits), "bytes of the values")
    if bits == 32:
        values = np.frombuffer(data, "<f4")
        check(np.isfinite(values).all(), "a value")
        return values
    if bits == 16:
        halves = np.frombuffer(data, "<f2").astype(np.float32)
        check(np.isfinite(halves).all(), "a value")
        return halves * np.float32(2.0**exponent)
    return integer_values(data, bits, count)


def parse_float_tables(data):
    """The largest exponent, the codes of exponents and lengths, and the tables' bytes."""
    check(len(data) >= 1 and data[0] < 255, "the largest exponent")
    exponents, first = parse_prefix_table(data[1:], 63)
    lengths, second = parse_prefix_table(data[1 + first :], 24)
    return (data[0], exponents, lengths), 1 + first + second


def exact_values(data, tables, count):
    top, exponents, lengths = tables
    reader, values = BitReader(data), []
    for _ in range(count):
        symbol = read_symbol(reader, exponents)
        exponent = reader.bits(8) if symbol == 62 else top - symbol
        check(0 <= exponent < 255, "an exponent")
        length = read_symbol(reader, lengths)
        sign = reader.bits(1)
        mantissa = (2 * reader.bits(length - 1) + 1) << 23 - length if length else 0
        values.append(sign << 31 | exponent << 23 | mantissa)
    check(reader.rest_of_byte_is_zero() and -(-reader.at // 8) == len(data), "the values' end")
    return np.array(values, np.uint32).view(np.float32)
