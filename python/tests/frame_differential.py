#!/usr/bin/env python3
"""Holds the library's decoder against the second one on damaged frames.

Golden frames are damaged at random places, with the checksum made right again; both decoders
must refuse the frame, or both must give the same bits. Where they differ, the library or
docs/frame-format.md is wrong.

    python3 python/tests/frame_differential.py build/core/elastiquant/libelastiquant.so \\
        testdata/golden [ROUNDS] [SEED]
"""

import ctypes
import pathlib
import random
import struct
import sys

# numpy comes from there, because the package ends the program as skipped where it is missing.
from frame_decoder import FrameError, crc32c, decode, np

LARGEST_FRAME = 1500  # bytes; the second decoder is slow
LARGEST_COUNT = 50000


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.eq_last_error.restype = ctypes.c_char_p
        self.work = ctypes.c_void_p()
        assert self.lib.eq_workspace_create(1, ctypes.byref(self.work)) == 0

    def decode(self, data, n):
        """The values, or None and why not."""
        values = np.zeros(n, np.float32)
        status = self.lib.eq_decode(
            self.work,
            data,
            ctypes.c_size_t(len(data)),
            values.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(n),
        )
        return (values, "") if status == 0 else (None, self.lib.eq_last_error().decode())


def decode_second(data):
    try:
        with np.errstate(all="ignore"):
            return decode(data), ""
    except FrameError as error:
        return None, str(error)


def damage(frame, rng):
    data = bytearray(frame)
    kind = rng.randrange(8)
    if kind == 0:  # cut off or drawn out at the end
        del data[len(data) - rng.randrange(min(9, len(data) - 31)) :]
        data += rng.randbytes(rng.randrange(3))
    elif kind == 1:  # another number of values
        n = struct.unpack_from("<I", data, 8)[0]
        struct.pack_into("<I", data, 8, max(0, n + rng.choice([-n, -33, -1, 1, 32, 600])))
    if kind >= 1:
        for _ in range(rng.choice([0, 1, 1, 2]) if kind == 1 else rng.choice([1, 1, 2, 4])):
            at = rng.choice([6, *range(32, len(data))])
            data[at] = rng.choice(
                [0, 1, 255, data[at] ^ 1 << rng.randrange(8), rng.randrange(256)]
            )
    data[7] = min(data[7], len(data) - 32)
    struct.pack_into("<Q", data, 24, len(data) - 32 - data[7])
    struct.pack_into("<I", data, 12, 0)
    struct.pack_into("<I", data, 12, crc32c(data))
    return bytes(data)


def main(arguments):
    if len(arguments) < 2:
        print(__doc__, file=sys.stderr)
        return 2
    library = Library(arguments[0])
    rounds = int(arguments[2]) if len(arguments) > 2 else 30
    rng = random.Random(int(arguments[3]) if len(arguments) > 3 else 1)
    decoded = refused = 0
    for path in sorted(pathlib.Path(arguments[1]).glob("*.eqf")):
        frame = path.read_bytes()
        if len(frame) > LARGEST_FRAME:
            continue
        for _ in range(rounds):
            bad = damage(frame, rng)
            n = struct.unpack_from("<I", bad, 8)[0]
            if n > LARGEST_COUNT:
                continue
            first, why_first = library.decode(bad, n)
            second, why_second = decode_second(bad)
            same = (first is None) == (second is None) and (
                first is None or first.tobytes() == second.tobytes()
            )
            if not same:
                print(
                    f"{path.name}, damaged to {bad.hex()}:\n  the library: "
                    f"{why_first or 'decodes'}\n  the second decoder: "
                    f"{why_second or 'decodes'}"
                )
                return 1
            decoded += first is not None
            refused += first is None
    print(f"{decoded} damaged frames decoded alike, {refused} refused by both")
    return 0 if decoded and refused else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
