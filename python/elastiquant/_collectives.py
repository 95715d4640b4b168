"""Compressed collectives on single tensors."""

from __future__ import annotations

import atexit
import weakref
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist

from elastiquant import _core, _group


def all_reduce(
    tensor: torch.Tensor,
    codec: str | _core.Codec,
    group: dist.ProcessGroup | None = None,
    async_op: bool = False,
    *,
    op: dist.ReduceOp = dist.ReduceOp.SUM,
    seed: int = 0,
) -> Work | None:
    """Sums a tensor over the workers of a group, in place, with compressed messages.

    As torch.distributed.all_reduce: all workers of the group call it, in the same order, with
    tensors of the same number of elements and the same codec. All get the same bits.

    tensor: of fp32, fp16 or bf16, any shape, on CPU or GPU (encoded on the host).
    codec: one without memory, such as 'dither:bits=2'; unbiased ones give an unbiased sum.
    group: the default process group if None.
    async_op: returns a Work at once; the tensor must be left alone until its wait().
    op: ReduceOp.SUM or ReduceOp.AVG.
    seed: of the random numbers of rounding; all calls differ anyhow.

    Errors, on all workers: NonFiniteError where one has a NaN or infinity, and the tensor is
    left as it was; DistBackendError for a lost worker; ValueError for a codec that remembers,
    another op, or workers whose codecs or sizes differ.
    """
    if op not in (dist.ReduceOp.SUM, dist.ReduceOp.AVG):
        raise ValueError(f"all_reduce can sum (ReduceOp.SUM) or average (AVG), not {op}")
    channel = _channel(group)
    task = channel.submit("all_reduce", tensor, _codec(codec), seed, op == dist.ReduceOp.AVG)
    return _done(task, async_op)


def all_gather(
    tensor: torch.Tensor,
    codec: str | _core.Codec,
    group: dist.ProcessGroup | None = None,
    *,
    seed: int = 0,
) -> list[torch.Tensor]:
    """What every worker's tensor decodes to, by rank; this one's own too.

    All workers of the group call it, in the same order, with tensors of the same shape. Each
    sends one frame to all others. All get the same bits. The rest is as in all_reduce().
    """
    return _channel(group).submit("all_gather", tensor, _codec(codec), seed).result()


class Work:
    """An all_reduce() that is under way."""

    def __init__(self, task: Future[None]):
        self._task = task

    def wait(self) -> bool:
        """Returns True when the tensor holds the result; raises what went wrong."""
        self._task.result()
        return True

    def is_completed(self) -> bool:
        """Whether wait() would return, or raise, at once."""
        return self._task.done()


class _Channel:
    """A group's connections, and the one thread that uses them, in the order of calls."""

    def __init__(self, group: dist.ProcessGroup):
        self._workers = _core._TensorCollectives(
            meeting=_group.arrange(group, timeout=20.0, link=None, alike={}, error=None),
            threads=1,
        )
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="elastiquant")

    def submit(self, call: str, *arguments: Any) -> Future[Any]:
        return self._thread.submit(getattr(self._workers, call), *arguments)


_channels: weakref.WeakKeyDictionary[dist.ProcessGroup, _Channel] = weakref.WeakKeyDictionary()


@atexit.register
def _close_all() -> None:
    _channels.clear()


def _channel(group: dist.ProcessGroup | None) -> _Channel:
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(_group.NO_GROUP)
    of = group if group is not None else dist.group.WORLD
    if of not in _channels:
        _channels[of] = _Channel(of)
    return _channels[of]


def _codec(codec: str | _core.Codec) -> _core.Codec:
    return codec if isinstance(codec, _core.Codec) else _core.Codec(codec)


def _done(task: Future[None], async_op: bool) -> Work | None:
    work = Work(task)
    if async_op:
        return work
    work.wait()
    return None
