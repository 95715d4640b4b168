"""The decoder of each codec, and that of any frame."""

import numpy as np

from frame_decoder import codec_ids as ids
from frame_decoder.bucket_codes import decode_bucket_codes
from frame_decoder.chunks import decode_chunks
from frame_decoder.dither import decode_dither
from frame_decoder.eden import decode_eden
from frame_decoder.elastic import decode_elastic
from frame_decoder.frame import check, parse_frame
from frame_decoder.low_rank import decode_low_rank
from frame_decoder.natural import decode_natural
from frame_decoder.raw import decode_raw
from frame_decoder.rotated import decode_rotated
from frame_decoder.sparse import decode_sparse

DECODERS = {
    ids.FP32: decode_raw,
    ids.FP16: decode_raw,
    ids.BF16: decode_raw,
    ids.ELASTIC: decode_elastic,
    ids.DITHER: decode_dither,
    ids.LEVELS: decode_bucket_codes,
    ids.TERNARY: decode_bucket_codes,
    ids.SIGN: decode_bucket_codes,
    ids.NATURAL: decode_natural,
    ids.ZEROLESS: decode_bucket_codes,
    ids.INNOVATION: decode_bucket_codes,
    ids.EDEN: decode_eden,
    ids.SPARSE: decode_sparse,
    ids.LOW_RANK: decode_low_rank,
    # The frame inside may be of any other codec, so this decoder is given that of all frames.
    ids.ROTATED: lambda frame: decode_rotated(frame, decode),
    ids.CHUNKS: decode_chunks,
}


def decode(data):
    """The values of a frame, as a float32 array; FrameError if it fails a check."""
    frame = parse_frame(data)
    check(frame.codec in DECODERS, "the codec is unknown")
    values = DECODERS[frame.codec](frame)
    assert values.dtype == np.float32 and len(values) == frame.n
    return values
