"""Checks a folder of frames against their values, or decodes one frame.

Run on a folder, it decodes every NAME.eqf there and demands the bits of NAME.npy; run on two
files, it decodes the first into the second:

    PYTHONPATH=python/tests python3 -m frame_decoder testdata/golden
    PYTHONPATH=python/tests python3 -m frame_decoder IN.eqf OUT.npy
"""

import pathlib
import sys

import numpy as np

from frame_decoder import FrameError, decode


def check_folder(folder):
    frames = sorted(folder.glob("*.eqf"))
    wrong = []
    for path in frames:
        expected = np.load(path.with_suffix(".npy"))
        try:
            values = decode(path.read_bytes())
        except FrameError as error:
            wrong.append(f"{path.name}: refused: {error}")
            continue
        if values.tobytes() != expected.astype("<f4").tobytes():
            differ = np.flatnonzero(values.view(np.uint32) != expected.view(np.uint32))
            wrong.append(f"{path.name}: {len(differ)} values differ, the first at {differ[0]}")
    print("\n".join([*wrong, f"{len(frames)} frames, {len(wrong)} wrong"]))
    return 1 if wrong or not frames else 0


def main(arguments):
    if len(arguments) == 1:
        return check_folder(pathlib.Path(arguments[0]))
    if len(arguments) == 2:
        np.save(arguments[1], decode(pathlib.Path(arguments[0]).read_bytes()))
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
