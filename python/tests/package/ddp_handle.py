"""What the handle of compress() tells, and how it ends: see ddp_checks.py."""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import socket
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from checking import check, compress, logged, raises
from ddp_training import (
    check_same_everywhere,
    gather,
    gradients_after,
    make_ddp,
    train,
    weights,
)
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

import elastiquant
from elastiquant import _compress


class Writer:
    """TensorBoard's SummaryWriter, as far as it is used."""

    def __init__(self):
        self.scalars: dict[str, float] = {}

    def add_scalar(self, name: str, value: float, step: int) -> None:
        assert step == 9
        self.scalars[name] = float(value)


@check
def a_forked_process_leaves_its_parents_engines_alone():
    """Also those that its garbage collector finds, as that of a DataLoader's worker may."""
    model = make_ddp()
    garbage = [model, compress(model)]
    train(model, range(2))
    elastiquant.all_reduce(torch.ones(3), "fp32")
    garbage.append(garbage)
    child = os.fork()
    if child == 0:
        del model, garbage
        gc.collect()
        atexit._run_exitfuncs()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    train(model, range(2))


@check
def statistics_are_sane():
    model = make_ddp()
    compression = compress(model, "dither:bits=2", measure_every=1)
    assert (compression.stats().ratio, compression.layers()) == (1, [])
    train(model, range(5))
    stats = compression.stats()
    size = weights(model).numel()
    assert (stats.steps, stats.skipped, stats.fp32_steps) == (5, 0, 0)
    assert stats.coordinates == 5 * size
    workers = dist.get_world_size()
    assert abs(stats.fp32_bytes_up - 5 * size * 8 * (workers - 1) / workers) <= 5
    assert 5 < stats.ratio < 16, stats.ratio
    assert stats.bytes_up > 0 < stats.bytes_down
    total = gather(torch.tensor([stats.bytes_up, stats.bytes_down]))
    assert sum(total)[0] == sum(total)[1], "what was sent was not received"
    for seconds in ("encode_seconds", "wire_seconds", "wait_seconds", "decode_seconds"):
        assert 0 < getattr(stats, seconds) < 60, seconds
    assert 0.01 < stats.nmse < 1
    layers = compression.layers()
    assert [layer.name for layer in layers] == ["0.weight", "2.weight", "5.weight", ""] or {
        layer.name for layer in layers
    } == {"0.weight", "2.weight", "5.weight", ""}, layers
    assert all(0.01 < layer.nmse < 1 and 1 < layer.bits < 8 for layer in layers)
    assert "x fewer" in compression.summary() and "\n" not in compression.summary()
    writer = Writer()
    compression.log_to(writer, 9)
    assert writer.scalars["elastiquant/ratio"] == stats.ratio
    assert "elastiquant/nmse/2.weight" in writer.scalars
    compression.reset_stats()
    assert compression.stats().steps == 0 and compression.stats().bytes_up == 0
    train(model, range(5, 7))
    assert compression.stats().steps == 2


@check
def it_says_when_compression_does_not_pay():
    def trained(compressed: float) -> tuple[list[str], elastiquant.Stats]:
        """Of steps that count as so many seconds on the last worker, and .1 s as fp32."""
        slow = dist.get_rank() == dist.get_world_size() - 1
        _compress.STEP_SECONDS = lambda fp32: 0.1 if fp32 else compressed if slow else 0.01
        try:
            with logged() as lines:
                model = make_ddp()
                compression = elastiquant.compress(model, "topk:ratio=0.01|ef")
                train(model, range(40))
        finally:
            _compress.STEP_SECONDS = None
        check_same_everywhere(weights(model))
        stats = compression.stats()
        assert stats.steps == 40
        tried = {int(t) for t in gather(torch.tensor(stats.fp32_steps))}
        assert len(tried) == 1, tried
        return lines, stats

    lines, stats = trained(0.2)
    assert stats.fp32_steps == 40 - 14, "after 5 steps, 1 and 8 that are timed"
    assert f"{stats.fp32_steps} of 40 steps as fp32" in stats.summary()
    if dist.get_rank() == 0:
        (line,) = lines
        assert "does not pay" in line and "0.200 s compressed and 0.100 s uncompressed" in line
    else:
        assert lines == []
    lines, stats = trained(0.05)
    assert (lines, stats.fp32_steps) == ([], 9), "the trial, and no more"


@check
def steps_of_fp32_are_those_of_ddp_itself():
    _compress.STEP_SECONDS = lambda fp32: 0.1 if fp32 else 0.2
    try:
        plain, ours = make_ddp(), make_ddp()
        plain.register_comm_hook(None, allreduce_hook)
        compression = elastiquant.compress(ours, "dither:bits=2")
    finally:
        _compress.STEP_SECONDS = None
    for step in range(20):
        expected, found = gradients_after(plain, step), gradients_after(ours, step)
        assert torch.equal(found, expected) == (step >= 14), step
    stats = compression.stats()
    assert stats.fp32_steps == 6
    workers, size = dist.get_world_size(), weights(ours).numel()
    of_one = 8 * size * (workers - 1) / workers
    compression.reset_stats()
    gradients_after(ours, 20)
    assert abs(compression.stats().bytes_up - of_one) <= 1
    assert abs(compression.stats().ratio - 1) < 1e-3
    with elastiquant.compress(make_ddp(), "dither:bits=2", link="10gbit") as compression:
        pass  # an emulated link would not slow them: it never switches


@check
def an_emulated_link_slows():
    model = make_ddp()
    with compress(model, "fp32", link="1mbit,1ms") as compression:
        train(model, range(2))
        stats = compression.stats()
        assert stats.wire_seconds > 0.9 * 8 * stats.bytes_up / 1e6


@check
def workers_of_one_machine_listen_on_its_loopback_address():
    before = set(listening_addresses())
    compress(make_ddp())
    elastiquant.all_reduce(torch.ones(10), "fp32", group=dist.new_group())
    ours = set(listening_addresses()) - before
    assert dist.get_rank() > 0 or ours, "the store listens nowhere"
    assert all(host == "127.0.0.1" for host, _ in ours), ours


def listening_addresses() -> Iterator[tuple[str, int]]:
    """Of this process, IPv4 and IPv6."""
    mine = set()
    for fd in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # that of the folder itself
            mine.add(os.readlink(fd))
    for family, name in ((socket.AF_INET, "tcp"), (socket.AF_INET6, "tcp6")):
        for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]:
            words = line.split()
            if words[3] != "0A" or f"socket:[{words[9]}]" not in mine:  # listening
                continue
            host, port = words[1].split(":")
            numbers = bytes.fromhex(host)
            packed = b"".join(numbers[i : i + 4][::-1] for i in range(0, len(numbers), 4))
            yield socket.inet_ntop(family, packed), int(port, 16)


@check
def pytorchs_log_level_is_left_alone():
    compress(make_ddp())
    with tempfile.TemporaryFile() as log:
        stderr = os.dup(2)
        os.dup2(log.fileno(), 2)
        try:  # something that c10d warns of
            with raises(RuntimeError, ""):
                dist.TCPStore("127.0.0.1", 1, is_master=False, timeout=timedelta(seconds=1))
        finally:
            os.dup2(stderr, 2)
            os.close(stderr)
        log.seek(0)
        assert b"127.0.0.1" in log.read()


@check
def inference_tensors_are_reduced_and_gathered():
    rank, workers = dist.get_rank(), dist.get_world_size()
    with torch.inference_mode():
        inside = torch.full((10,), float(rank))
        elastiquant.all_reduce(inside, "fp32")
        gathered = elastiquant.all_gather(torch.full((10,), float(rank)), "fp32")
    outside = inside.mul(1)  # no longer in that mode, and of no inference
    elastiquant.all_reduce(inside, "fp32")
    elastiquant.all_reduce(outside, "fp32")
    total = workers * (workers - 1) / 2
    assert inside.is_inference() and not outside.is_inference()
    for tensor in (inside, outside):
        assert torch.equal(tensor.clone(), torch.full((10,), workers * total))
    assert [float(t[0]) for t in gathered] == list(range(workers))


@check
def nobody_waits_for_others_to_close():
    for drop in (False, True):
        model = make_ddp()
        compression = compress(model)
        train(model, range(2))
        if dist.get_rank() == 0:  # which hosts the store
            if drop:
                del model, compression
                gc.collect()
            else:
                compression.close()
        dist.barrier()
        if dist.get_rank() != 0:
            compression.close()


@check
def closed_compression_raises():
    model = make_ddp()
    with compress(model, "topk:ratio=0.1|ef") as compression:
        train(model, range(2))
        before = compression.state_dict()
    with raises(RuntimeError, "was closed"):
        train(model, [2])
    compression.close()
    assert compression.stats().steps == 2 and compression.stats().bytes_up > 0
    assert compression.state_dict().keys() == before.keys()
    again = make_ddp(model.module)
    compress(again)
    train(again, range(2))
    check_same_everywhere(weights(again))
