"""Compressed gradients for training over slow networks.

One line in a script that trains with DistributedDataParallel:

    model = DistributedDataParallel(model)
    compression = elastiquant.compress(model, "dither:bits=2")
    ...
    print(compression.summary())

Encode a tensor in a few bits per value, and decode it:

    import elastiquant, torch

    gradient = torch.randn(1_000_000)
    frame = elastiquant.Codec("dither:bits=2").encode(gradient)
    frame.nbytes            # a fourteenth of fp32's
    frame.decode()          # the gradient in expectation; frame.variance says how near

A codec is named by a spec string, which elastiquant.codecs() explains: 'elastic:bits=4|rans',
'dither:bits=2', 'topk:ratio=0.01' and many more. The same spec, values and key give the same
bytes on every machine.

Errors: ValueError for a wrong spec or argument, NonFiniteError for NaN or infinity in what is
to be encoded, CorruptFrameError for bytes that are no frame that this build can read; both are
ValueErrors.
"""

from elastiquant._torch_version import check_torch

check_torch()  # first, as it loads libtorch

from elastiquant._collectives import Work, all_gather, all_reduce  # noqa: E402
from elastiquant._comm_hook import HookState, comm_hook  # noqa: E402
from elastiquant._compress import Compression, compress  # noqa: E402
from elastiquant._core import (  # noqa: E402
    Codec,
    CodecInfo,
    CodecParameter,
    CorruptFrameError,
    Frame,
    NonFiniteError,
    Stream,
    __version__,
    codecs,
)
from elastiquant._gossip import Gossip  # noqa: E402
from elastiquant._report import Report, report  # noqa: E402
from elastiquant._rounds import DiLoCo, LocalSGD  # noqa: E402
from elastiquant._stats import LayerStats, Stats  # noqa: E402
from elastiquant._virtual_workers import VirtualWorkers  # noqa: E402

__all__ = [
    "Codec",
    "CodecInfo",
    "CodecParameter",
    "Compression",
    "CorruptFrameError",
    "DiLoCo",
    "Frame",
    "Gossip",
    "HookState",
    "LayerStats",
    "LocalSGD",
    "NonFiniteError",
    "Report",
    "Stats",
    "Stream",
    "VirtualWorkers",
    "Work",
    "__version__",
    "all_gather",
    "all_reduce",
    "codecs",
    "comm_hook",
    "compress",
    "report",
]
