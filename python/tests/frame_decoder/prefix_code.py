"""The prefix codes of section 13.4."""

from frame_decoder.frame import check


def parse_prefix_table(data, symbols):
    """(length, code) -> symbol, and the table's bytes."""
    check(len(data) >= 2, "the table is cut short")
    first, count = data[0], data[1]
    check(count >= 1 and first + count <= symbols, "a symbol")
    if count == 1:
        return {(0, 0): first}, 2
    size = 2 + -(-count // 2)
    check(len(data) >= size, "the table is cut short")
    halves = [half for byte in data[2:size] for half in (byte & 15, byte >> 4)]
    check(not any(halves[count:]) and max(halves) <= 12, "a length")
    check(sum(2.0**-length for length in halves if length) == 1, "the code is not complete")
    codes, code = {}, 0
    for length in range(1, 13):
        code <<= 1
        for s in range(count):
            if halves[s] == length:
                codes[length, code] = first + s
                code += 1
    return codes, size


def read_symbol(reader, codes):
    length = code = 0
    while (length, code) not in codes:
        code, length = code << 1 | reader.bits(1), length + 1
    return codes[length, code]
