"""How the workers of a process group come to connections of their own.

Compressed messages travel on a ProcessGroupGloo of their own, whatever the backend of the
user's group is, so that neither gets into the other's way. The user's group is used once, to
agree on where to meet.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from elastiquant import _core

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


def arrange(group: dist.ProcessGroup | None, timeout: float, link: str | None) -> Meeting:
    """Collective: rank 0 of the group opens a store and tells the others where."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(NO_GROUP)
    rank, world_size = dist.get_rank(group), dist.get_world_size(group)
    if rank < 0:
        raise ValueError("this process is not in the group")
    if world_size == 1:
        return Meeting(0, 1, "127.0.0.1", 0, None, timeout, link)
    store = _core._StoreHost() if rank == 0 else None
    address = [(_own_address(), store.port)] if store else [None]
    first = dist.get_global_rank(group, 0) if group is not None else 0
    dist.broadcast_object_list(address, src=first, group=group)
    host, port = address[0]
    return Meeting(rank, world_size, host, port, store, timeout, link)


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
