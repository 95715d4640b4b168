#!/usr/bin/env python3
"""Writes inputs for round_trip_fuzz and targets_fuzz to begin with: for each codec a message of
a few values, a long one, and one of floats.

    python3 fuzz/seeds.py FOLDER
"""

import pathlib
import random
import struct
import sys

CODECS = 256  # more than there are; the targets take the number modulo theirs
INTEGERS, REPEATED, FLOATS = 1, 3, 0
ONE = 35 * 4  # the exponent of 2^0, above the form


def main(folder):
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(1)
    for codec in range(CODECS):
        front = struct.pack("<H", codec)
        integers = bytes(round(rng.gauss(0, 30)) % 256 for _ in range(200))
        floats = struct.pack("<37f", *(rng.gauss(0, 1) for _ in range(37)))
        for name, form, body in [
            ("few", INTEGERS | ONE, integers[:9]),
            ("long", REPEATED | ONE, integers),
            ("floats", FLOATS, floats),
        ]:
            (folder / f"{codec:03}-{name}").write_bytes(front + bytes([form, codec]) + body)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    main(pathlib.Path(sys.argv[1]))
