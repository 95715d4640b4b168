"""A second decoder of frames, written from docs/frame-format.md alone, in plain numpy.

It is slow and simple on purpose: it checks the specification and the library against each
other. __main__.py is its command line.
"""

import sys

# Before all modules of the package, which import numpy as if it were always there.
try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

from frame_decoder.decoders import decode
from frame_decoder.frame import FrameError, crc32c

__all__ = ["FrameError", "crc32c", "decode", "np"]
