"""Section 2: the header and the checksum; and the error of a frame that is refused."""

import struct
from dataclasses import dataclass

HEADER = struct.Struct("<4sBBBBIIQQ")
MASK32 = 0xFFFFFFFF


class FrameError(ValueError):
    """The frame fails a check of the specification."""


def check(condition, what):
    if not condition:
        raise FrameError(what)


def crc_table():
    table = []
    for c in range(256):
        for _ in range(8):
            c = (c >> 1) ^ (0x82F63B78 if c & 1 else 0)
        table.append(c)
    return table


CRC_TABLE = crc_table()


def crc32c(data):
    c = MASK32
    for byte in data:
        c = (c >> 8) ^ CRC_TABLE[(c ^ byte) & 0xFF]
    return c ^ MASK32


@dataclass
class Frame:
    codec: int
    flags: int
    n: int
    key: int
    parameters: bytes
    payload: bytes


def parse_frame(data):
    check(len(data) >= HEADER.size, "header is cut short")
    magic, version, codec, flags, a, n, checksum, key, b = HEADER.unpack_from(data)
    check(magic == b"EQF1", "magic")
    check(version == 1, "version")
    check(len(data) == HEADER.size + a + b, "length")
    check(crc32c(data[:12] + bytes(4) + data[16:]) == checksum, "checksum")
    body = data[HEADER.size :]
    return Frame(codec, flags, n, key, body[:a], body[a:])
