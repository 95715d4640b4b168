"""Workers that live but get on with nothing, and some that only take long.

See fault_test.py, which runs it, and forked_jobs.py for the output.
"""

from __future__ import annotations

import ctypes
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from ddp_training import make_ddp, make_uncompressed, train
from forked_jobs import Job, run

import elastiquant
from elastiquant import _collectives

# One that takes long, 1.2 times TIMEOUT, must be back in time on a busy machine, too.
TIMEOUT, STALL_TIMEOUT, STEPS = 5.0, 12.0, 4
FAULTY = 1


def _deadlock() -> None:
    """As a data loader may fall into; C++ goes on."""
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def model_that_trains():
    model = make_ddp()
    elastiquant.compress(
        model, "dither:bits=2", timeout=TIMEOUT, stall_timeout=STALL_TIMEOUT, switch=False
    )
    train(model, range(STEPS))
    return model


def hangs_between_steps() -> None:
    model = model_that_trains()
    if dist.get_rank() == FAULTY:
        _deadlock()
    train(model, range(STEPS))


def hangs_between_uncompressed_steps() -> None:
    model = make_uncompressed(timeout=TIMEOUT, stall_timeout=STALL_TIMEOUT)
    if dist.get_rank() == FAULTY:
        _deadlock()
    train(model, range(STEPS))


def hangs_in_backward() -> None:
    model = model_that_trains()
    if dist.get_rank() == FAULTY:
        model.module[0].weight.register_hook(lambda _: _deadlock())
    train(model, range(STEPS))


def hangs_between_all_reduces() -> None:
    _collectives._TIMEOUT, _collectives._STALL_TIMEOUT = TIMEOUT, STALL_TIMEOUT
    for step in range(STEPS):
        if step == STEPS - 1 and dist.get_rank() == FAULTY:
            _deadlock()
        elastiquant.all_reduce(torch.ones(1000), "dither:bits=4")


def a_path_is_broken() -> None:
    """Between workers 1 and 2, which both reach worker 0 and the store."""
    model = model_that_trains()
    pids: list[int] = [0] * dist.get_world_size()
    dist.all_gather_object(pids, os.getpid())
    if dist.get_rank() == FAULTY:
        hear_nothing_from(pids[2])
    train(model, range(STEPS))


def takes_long_between_steps() -> None:
    """Longer than a worker may be silent."""
    model = model_that_trains()
    if dist.get_rank() == FAULTY:
        time.sleep(1.2 * TIMEOUT)
    train(model, range(STEPS))


CASES: dict[str, Callable[[], None]] = {
    f.__name__: f
    for f in (
        hangs_between_steps,
        hangs_between_uncompressed_steps,
        hangs_in_backward,
        hangs_between_all_reduces,
        a_path_is_broken,
        takes_long_between_steps,
    )
}


_SO_ATTACH_FILTER = 26  # of Linux


class _Instruction(ctypes.Structure):  # struct sock_filter
    _fields_ = (
        ("code", ctypes.c_uint16),
        ("jt", ctypes.c_uint8),
        ("jf", ctypes.c_uint8),
        ("k", ctypes.c_uint32),
    )


class _Program(ctypes.Structure):  # struct sock_fprog
    _fields_ = (("len", ctypes.c_uint16), ("filter", ctypes.POINTER(_Instruction)))


def hear_nothing_from(pid: int) -> None:
    """All that comes by TCP from a process of this machine is dropped, acknowledgements too."""
    return_0 = _Instruction(code=0x06, jt=0, jf=0, k=0)
    program = _Program(1, ctypes.pointer(return_0))
    theirs = set(_connections_of(pid))
    deaf = 0
    for mine in os.listdir("/proc/self/fd"):
        try:
            connection = socket.socket(fileno=os.dup(int(mine)))
            ends = (connection.getpeername()[:2], connection.getsockname()[:2])
        except OSError:  # no connection
            continue
        if ends in theirs:
            connection.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, bytes(program))
            deaf += 1
    assert deaf > 0, "no connection between the two was found"


def _connections_of(pid: int) -> Iterator[tuple[tuple[str, int], tuple[str, int]]]:
    """Its own end and the other, of each of IPv4."""
    sockets = {os.readlink(fd) for fd in Path(f"/proc/{pid}/fd").iterdir()}
    for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if f"socket:[{words[9]}]" in sockets:
            yield _address(words[1]), _address(words[2])


def _address(text: str) -> tuple[str, int]:
    host, port = text.split(":")
    return socket.inet_ntoa(int(host, 16).to_bytes(4, sys.byteorder)), int(port, 16)


if __name__ == "__main__":
    run(
        [Job(name, FAULTY, CASES[name], grace=10) for name in sys.argv[1:] or CASES],
        at_once=max(2, os.cpu_count() or 2),
    )
