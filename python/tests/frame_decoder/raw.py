"""Section 4: fp32, fp16, bf16."""

import numpy as np

from frame_decoder.codec_ids import BF16, FP16, FP32
from frame_decoder.frame import check


def decode_raw(frame):
    width = {FP32: 4, FP16: 2, BF16: 2}[frame.codec]
    check(not frame.parameters and frame.flags == 0, "parameters and flags of a plain format")
    check(len(frame.payload) == frame.n * width, "payload length")
    if frame.codec == FP32:
        values = np.frombuffer(frame.payload, "<f4")
    elif frame.codec == FP16:
        values = np.frombuffer(frame.payload, "<f2").astype(np.float32)
    else:
        halves = np.frombuffer(frame.payload, "<u2").astype(np.uint32)
        values = (halves << np.uint32(16)).view(np.float32)
    check(np.isfinite(values).all(), "a value is NaN or infinite")
    return values
