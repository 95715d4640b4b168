"""Compressed collectives on single tensors."""

from __future__ import annotations

import atexit
import os
import queue
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
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
    channel = _channel(group, "all_reduce()", tensor)
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
    channel = _channel(group, "all_gather()", tensor)
    return channel.submit("all_gather", tensor, _codec(codec), seed).result()


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


# As compress() explains them, in seconds.
_TIMEOUT = 20.0
_STALL_TIMEOUT = 1800.0

_Call = tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]


class _Channel:
    """A group's connections, and the one thread that uses them, in the order of calls."""

    def __init__(self, group: dist.ProcessGroup, call: str):
        meeting = _group.arrange(
            group, _TIMEOUT, _STALL_TIMEOUT, link=None, alike={}, error=None, call=call
        )
        self._workers = _core._TensorCollectives(meeting=meeting, threads=1)
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        # A daemon: Python joins other threads before it calls what is registered with atexit,
        # and this one may wait for workers that wait for this script, which has failed.
        thread = threading.Thread(
            target=_serve, args=(self._calls,), name="elastiquant", daemon=True
        )
        thread.start()
        _threads.add(thread)
        # The thread ends with the channel, which ends with its group.
        weakref.finalize(self, self._calls.put, None).atexit = False

    def submit(self, call: str, tensor: torch.Tensor, *arguments: Any) -> Future[Any]:
        if tensor.is_cuda:
            # The thread copies it on a stream of its own, which waits for none of the caller's.
            torch.cuda.current_stream(tensor.device).synchronize()
        task: Future[Any] = Future()
        self._calls.put((task, getattr(self._workers, call), (tensor, *arguments)))
        return task

    def end(self, farewell: str, error: str) -> None:
        """The script has ended. What was submitted is done before, unless by an error."""
        self._workers.set_farewell(farewell)
        if error:
            self._workers.abort(error)
        self._calls.put(None)


def _serve(calls: queue.SimpleQueue[_Call | None]) -> None:
    while call := calls.get():
        task, function, arguments = call
        try:
            task.set_result(function(*arguments))
        except BaseException as e:
            task.set_exception(e)
        del call, task, function, arguments  # or the connections would live until the next call


_channels: weakref.WeakKeyDictionary[dist.ProcessGroup, _Channel] = weakref.WeakKeyDictionary()
_threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


# A forked process has none of the threads that serve its parent's channels.
os.register_at_fork(after_in_child=lambda: (_channels.clear(), _threads.clear()))


@atexit.register
def _close_all() -> None:
    for channel in list(_channels.values()):
        channel.end(_group.SCRIPT_ENDED, _group.unhandled_error())
    _channels.clear()
    for thread in list(_threads):
        thread.join()


def _channel(group: dist.ProcessGroup | None, call: str, tensor: torch.Tensor) -> _Channel:
    """The group's. call: what the user has called with the tensor, which may make it."""
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"tensor is {tensor!r}; it must be a torch.Tensor")
    if tensor.dtype == torch.float64:
        raise TypeError(
            f"the tensor of {call} is of float64, which would lose digits: codecs take fp32, "
            "fp16 and bf16"
        )
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(_group.NO_GROUP)
    of = group if group is not None else dist.group.WORLD
    if of not in _channels:
        with _group.on_device_of([tensor]):
            _channels[of] = _Channel(of, call)
    return _channels[of]


def _codec(codec: str | _core.Codec) -> _core.Codec:
    if not isinstance(codec, str | _core.Codec):
        raise TypeError(f"codec is {codec!r}; it must be a spec, a string, or a Codec")
    return codec if isinstance(codec, _core.Codec) else _core.Codec(codec)


def _done(task: Future[None], async_op: bool) -> Work | None:
    work = Work(task)
    if async_op:
        return work
    work.wait()
    return None
