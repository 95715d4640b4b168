"""How the workers of a process group come to connections of their own.

Compressed messages travel on a ProcessGroupGloo of their own, whatever the backend of the
user's group is, so that neither gets into the other's way. The user's group is used once, to
agree on where to meet.
"""

from __future__ import annotations

import atexit
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch.distributed as dist

from elastiquant import _core

# After what other modules register, which begins to leave: the worker that hosts a store stays
# until all have left.
atexit.register(_core._await_background)

NO_GROUP = (
    "no process group: call torch.distributed.init_process_group() first, and start the "
    "workers with torchrun"
)


@dataclass(frozen=True)
class Meeting:
    """Where the workers of a group meet, and how they are to treat each other."""

    rank: int
    world_size: int
    host: str
    port: int
    store: _core._StoreHost | None  # of rank 0: it listens at host:port
    timeout: float  # seconds that a worker may be silent
    link: str | None  # an emulated one, such as "20mbit,10ms"


def arrange(
    group: dist.ProcessGroup | None,
    timeout: float,
    link: str | None,
    alike: Mapping[str, Any],
    error: Exception | None,
) -> Meeting:
    """Collective: rank 0 of the group opens a store and tells the others where.

    alike: settings that must be the same on all workers. error: why this worker cannot go on;
    it is raised here, and on the others a RuntimeError with its words.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(NO_GROUP)
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("this process is not in the group")
    store = _core._StoreHost() if rank == 0 and world_size > 1 and error is None else None
    address = (_own_address(), store.port) if store else ("127.0.0.1", 0)
    words = None if error is None else f"{type(error).__name__}: {error}"
    said: list[Any] = [(address, dict(alike), words)] * world_size
    if world_size > 1:
        dist.all_gather_object(said, said[rank], group=group)
    if error is not None:
        raise error
    _check_alike([(theirs, why) for _, theirs, why in said])
    (host, port), _, _ = said[0]
    return Meeting(rank, world_size, host, port, store, timeout, link)


def _check_alike(said: list[tuple[dict[str, Any], str | None]]) -> None:
    """Raises RuntimeError, in the same words on all workers."""
    for worker, (_, why) in enumerate(said):
        if why is not None:
            raise RuntimeError(f"worker {worker} cannot compress its model: {why}")
    first, _ = said[0]
    for worker, (theirs, _) in enumerate(said):
        for name in first | theirs:
            if first.get(name) != theirs.get(name):
                raise RuntimeError(
                    f"workers {worker} and 0 call compress() with different arguments: "
                    f"{name} is {theirs.get(name)!r} and {first.get(name)!r}"
                )


def connect_gloo(
    host: str, port: int, prefix: str, rank: int, world_size: int, timeout: float
) -> dist.ProcessGroupGloo:
    """Connects all pairs of workers. Called by C++, which has no Gloo headers."""
    limit = timedelta(seconds=timeout)
    store = dist.PrefixStore(
        prefix,
        dist.TCPStore(host, port, is_master=False, timeout=limit, wait_for_workers=False),
    )
    gloo = dist.ProcessGroupGloo
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return gloo(store, rank, world_size, limit)
    # The address on the way to the others: the machine's name, which Gloo would look up, often
    # stands for the loopback address.
    options = gloo._Options()
    options._timeout = limit
    options._threads = 1  # they run collectives, of which none are used
    options._devices = [gloo.create_device(hostname=_address_towards(host, port))]
    return gloo(store, rank, world_size, options)


def _own_address() -> str:
    """This machine's address as the other workers can reach it."""
    store = dist.distributed_c10d._get_default_store()
    while isinstance(store, dist.PrefixStore):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore):
        return _address_towards(store.host, store.port)
    return socket.gethostbyname(socket.gethostname())


def _address_towards(host: str, port: int) -> str:
    """The address of ours from which packets go to a host."""
    family, kind, protocol, _, peer = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as datagrams:
        # A datagram socket's connect() sends nothing: it only chooses the route.
        datagrams.connect(peer)
        return datagrams.getsockname()[0]
