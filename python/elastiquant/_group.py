"""How the workers of a process group come to connections of their own.

Compressed messages travel on a ProcessGroupGloo of their own, whatever the backend of the
user's group is, so that neither gets into the other's way. The user's group is used at the
start only, to agree on where to meet.
"""

from __future__ import annotations

import atexit
import fcntl
import ipaddress
import os
import socket
import struct
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from elastiquant import _core

# After what other modules register, which begins to leave: the worker that hosts a store stays
# until all have left.
atexit.register(_core._await_background)

NO_GROUP = (
    "no process group: call torch.distributed.init_process_group() first, and start the "
    "workers with torchrun"
)


LOOPBACK = "127.0.0.1"

# What the others are told of a worker whose script has ended, should they still wait for it.
SCRIPT_ENDED = "its script ended"


def unhandled_error() -> str:
    """In an atexit handler: the exception that ended the script, in a line; '' if none did."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    if error is None or hasattr(sys, "ps1"):  # at a prompt exceptions end nothing
        return ""
    return told(error)


def told(error: BaseException) -> str:
    """An exception, as the others are told of it: in a line."""
    lines = str(error).splitlines() or [""]
    return f"{type(error).__name__}: {lines[0]}"


def backend_of(group: dist.ProcessGroup, device: torch.device) -> str:
    """The one by which a group sends the tensors of a device. A group that was made without a
    name of one has several, and get_backend() then says "undefined"."""
    by_device = dict(pair.split(":") for pair in dist.get_backend_config(group).split(","))
    return by_device.get(device.type, dist.get_backend(group))


@dataclass(frozen=True)
class Meeting:
    """Where the workers of a group meet, and how they are to treat each other."""

    rank: int
    world_size: int
    host: str
    port: int
    store: _core._StoreHost | None  # of rank 0: it listens at host:port
    timeout: float  # seconds that a worker may be silent
    stall_timeout: float  # seconds that others wait for one that gets on with nothing; 0: ever
    link: str | None  # an emulated one, such as "20mbit,10ms"


def on_device_of(tensors: Iterable[torch.Tensor]) -> torch.cuda.device:
    """A context in which the GPU of the first tensor that is on one is the current one. NCCL
    sends objects by way of that, and without torch.cuda.set_device() it is GPU 0 for all
    workers of a machine, which NCCL refuses."""
    return torch.cuda.device(next((t.get_device() for t in tensors if t.is_cuda), -1))


def arrange(
    group: dist.ProcessGroup | None,
    timeout: float,
    stall_timeout: float | None,
    link: str | None,
    alike: Mapping[str, Any],
    error: Exception | None,
    call: str,
) -> Meeting:
    """Collective: rank 0 of the group opens a store and tells the others where. It is to be
    called on_device_of() what is trained.

    alike: settings that must be the same on all workers. error: why this worker cannot go on;
    it is raised here, and on the others a RuntimeError with its words. call: what the user
    has called, for messages.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(NO_GROUP)
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("this process is not in the group")
    words = None if error is None else f"{type(error).__name__}: {error}"
    said: list[Any] = [(_network(), dict(alike), words)] * world_size
    if world_size > 1:
        dist.all_gather_object(said, said[rank], group=group)
    if error is not None:
        raise error
    _check_alike([(theirs, why) for _, theirs, why in said], call)
    store, (host, port) = None, (LOOPBACK, 0)
    if world_size > 1:
        store, host, port = _meet(
            group, rank, all(network == said[0][0] for network, *_ in said)
        )
    return Meeting(rank, world_size, host, port, store, timeout, stall_timeout or 0, link)


def _meet(
    group: dist.ProcessGroup | None, rank: int, one_machine: bool
) -> tuple[_core._StoreHost | None, str, int]:
    """Collective: the store, of rank 0, and where it is."""
    store, said = None, [None]
    if rank == 0:
        try:
            store = _core._StoreHost(this_machine_only=one_machine)
            host = LOOPBACK if one_machine else _own_address(*_default_store())
            said = [(host, store.port)]
        except Exception as e:  # the others must hear of it, or they would wait
            said = [e]
    source = dist.get_global_rank(group or dist.group.WORLD, 0)
    dist.broadcast_object_list(said, src=source, group=group)
    if isinstance(said[0], Exception):
        raise RuntimeError(f"worker 0 cannot open a store: {said[0]}") from said[0]
    return store, *said[0]


def _check_alike(said: list[tuple[dict[str, Any], str | None]], call: str) -> None:
    """Raises RuntimeError, in the same words on all workers."""
    for worker, (_, why) in enumerate(said):
        if why is not None:
            raise RuntimeError(f"worker {worker} cannot call {call}: {why}")
    first, _ = said[0]
    for worker, (theirs, _) in enumerate(said):
        for name in first | theirs:
            if first.get(name) != theirs.get(name):
                raise RuntimeError(
                    f"workers {worker} and 0 call {call} with different arguments: "
                    f"{name} is {theirs.get(name)!r} and {first.get(name)!r}"
                )


def connect_gloo(
    host: str,
    port: int,
    prefix: str,
    rank: int,
    world_size: int,
    timeout: float,
    one_machine: bool,
) -> dist.ProcessGroupGloo:
    """Connects all pairs of workers. Called by C++, which has no Gloo headers."""
    limit = timedelta(seconds=timeout)
    store = dist.PrefixStore(
        prefix,
        dist.TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False),
    )
    gloo = dist.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = limit
    options._threads = 1  # they run collectives, of which none are used
    if interface := _interface():
        device = gloo.create_device(interface=interface)
    else:
        device = gloo.create_device(
            hostname=LOOPBACK if one_machine else _own_address(host, port)
        )
    options._devices = [device]
    return gloo(store, rank, world_size, options)


def _network() -> str:
    """The same for processes that share a loopback address; containers may share a machine
    without."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{os.stat('/proc/self/ns/net').st_ino}"
    except OSError:
        return socket.gethostname()


def _interface() -> str:
    """The network interface that PyTorch's own programs are told to use, or ''."""
    return os.environ.get("GLOO_SOCKET_IFNAME", "").split(",")[0]


def _default_store() -> tuple[str, int]:
    """Host and port of the default group's store; if it has none, some other machine's."""
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    return (store.host, store.port) if isinstance(store, dist.TCPStore) else (_ELSEWHERE, 1)


# Of a network that is kept for documentation: the way there is the way to anywhere.
_ELSEWHERE = "192.0.2.1"


def _own_address(host: str, port: int) -> str:
    """This machine's address as other machines can reach it, if they reach it from `host`.

    The machine's name, which Gloo would look up, often stands for the loopback address, and so
    may `host` on the machine that has it.
    """
    if interface := _interface():
        return _address_of_interface(interface)
    for there in (host, _ELSEWHERE):
        address = _address_towards(there, port)
        if address and not ipaddress.ip_address(address).is_loopback:
            return address
    raise RuntimeError(
        "this machine has no address that the other workers' machines can reach: name its "
        "network interface in GLOO_SOCKET_IFNAME"
    )


def _address_of_interface(name: str) -> str:
    request = struct.pack("256s", name.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        try:
            answer = fcntl.ioctl(datagrams, _SIOCGIFADDR, request)
        except OSError as e:
            raise RuntimeError(
                f"GLOO_SOCKET_IFNAME names {name!r}, which has no IPv4 address here: "
                f"{e.strerror}"
            ) from None
    return socket.inet_ntoa(answer[20:24])


_SIOCGIFADDR = 0x8915  # of Linux


def _address_towards(host: str, port: int) -> str:
    """The address of ours from which packets go to a host; '' if there is no way."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        try:
            # A datagram socket's connect() sends nothing: it only chooses the route.
            datagrams.connect((host, port))
        except OSError:
            return ""
        return datagrams.getsockname()[0]
