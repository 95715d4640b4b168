#!/usr/bin/env python3
"""Writes inputs for fuzz targets to begin with.

FOLDER/codecs, for round_trip_fuzz and targets_fuzz: for each codec a message of a few values,
a long one, and one of floats. FOLDER/frames, for frame_fuzz: golden frames with a parameter or
the front of the payload at the edge of what may stand there (frame_fuzz makes their checksums
right).

    python3 fuzz/seeds.py FOLDER
"""

import pathlib
import random
import struct
import sys

CODECS = 256  # more than there are; the targets take the number modulo theirs
INTEGERS, REPEATED, FLOATS = 1, 3, 0
ONE = 35 * 4  # the exponent of 2^0, above the form

GOLDEN = pathlib.Path(__file__).resolve().parent.parent / "testdata" / "golden"
LARGEST_FRAME = 200  # bytes
HEADER = 32
# As floats 0, the largest, and steps and norms that make large indices infinite; as bytes 0
# (a base of 1), 1, 2, 255.
EDGES = [struct.pack("<f", edge) for edge in (0, 2.0**102, 2.0**127)]
EDGES += [b"\xff\xff\x7f\x7f", b"\x00", b"\x01", b"\x02", b"\xff"]


def write_frames(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(GOLDEN.glob("*.eqf")):
        frame = path.read_bytes()
        if len(frame) > LARGEST_FRAME:
            continue
        end = min(len(frame), HEADER + frame[7] + 8)
        for number, edge in enumerate(EDGES):
            for at in range(HEADER, end - len(edge) + 1, len(edge)):
                changed = frame[:at] + edge + frame[at + len(edge) :]
                (folder / f"{path.stem}-{at:02}-{number}").write_bytes(changed)


def write_codecs(folder):
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
    write_frames(pathlib.Path(sys.argv[1], "frames"))
    write_codecs(pathlib.Path(sys.argv[1], "codecs"))
