"""Checks of compress() that torchrun starts on every worker: see ddp_test.py.

Arguments: the names of checks to run; all of them if there are none. Each worker says
"ok NAME RANK" for each that it has passed; the first that fails ends the run.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import os
import pickle
import socket
import tempfile
import warnings
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import ddp_doors  # noqa: F401  # registers its checks
import ddp_metric  # noqa: F401
import torch
import torch.distributed as dist
from checking import check, compress, logged, main, raises
from ddp_training import (
    batch,
    check_same_everywhere,
    flat,
    gather,
    gradients,
    gradients_after,
    loss_of,
    make_ddp,
    make_model,
    relative_error,
    train,
    weights,
)
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

import elastiquant
from elastiquant import _compress

# --- What the gradients are.


@check
def lossless_is_as_uncompressed():
    plain, ours = make_ddp(), make_ddp()
    compress(ours, "fp32")
    for step in range(5):
        expected, found = gradients_after(plain, step), gradients_after(ours, step)
        assert relative_error(found, expected) < 1e-6
        check_same_everywhere(found)


@check
def error_is_within_the_declared_variance():
    repeats, workers = 12, dist.get_world_size()
    plain = make_ddp()
    expected = gradients_after(plain, 0)
    own = make_model()
    loss_of(own, 0).backward()
    own_squares = sum(t.item() for t in gather(gradients(own).square().sum()))
    for spec in ("dither:bits=2", "dither:bits=4", "elastic:bits=4|rans", "natural"):
        ours = make_ddp()
        compression = compress(ours, spec, exact="none", measure_every=1)
        found = [gradients_after(ours, 0) for _ in range(repeats)]
        # Each worker's message, and then that of the mean of what was decoded.
        bound = elastiquant.Codec(spec).nmse_bound(expected.numel())
        up = bound * own_squares / workers**2
        down = bound * (expected.square().sum().item() + up)
        squared = sum((f - expected).square().sum().item() for f in found) / repeats
        assert 0 < squared < 1.3 * (up + down), (spec, squared, up, down)
        # Without bias, errors of different steps average out.
        mean = torch.stack(found).mean(0)
        off = (mean - expected).square().sum().item()
        assert off < 2.5 * squared / repeats, (spec, off, squared)
        for layer in compression.layers():
            assert layer.verdict in ("holds", "loose"), layer
            assert layer.nmse < layer.bound + 5 * layer.spread, layer


@check
def replicas_are_bit_identical():
    for spec in (
        "dither:bits=2",
        "elastic:bits=4|rans",
        "powersgd:rank=2|ef",
        "topk:ratio=0.05|ef",
        "dither:bits=1|ef",
        "signsgd",
        "eden",
    ):
        model = make_ddp()
        start = weights(model)
        compression = compress(model, spec)
        train(model, range(6))
        check_same_everywhere(weights(model))
        assert relative_error(weights(model), start) > 1e-3, spec
        assert compression.stats().steps == 6


@check
def the_exchange_follows_the_workers_and_the_codec():
    workers = dist.get_world_size()
    by_default = "all-gather" if workers == 2 else "two-phase"
    plain = gradients_after(make_ddp(), 0)
    error = {}
    for codec, options, exchange in (
        ("dither:bits=1.5", {}, by_default),
        ("elastic:bits=4", {"exchange": "codec"}, "two-phase"),
        ("elastic:bits=4", {"exchange": "all-gather"}, "all-gather"),
        ("dither:bits=1.5", {"down": "dither:bits=6"}, "two-phase, back as dither:bits=6"),
        ("powersgd:rank=1|ef", {}, "factors"),
        *([("dither:bits=0.75", {}, "all-gather of dither:bits=0.5")] if workers == 3 else []),
    ):
        model = make_ddp()
        compression = compress(model, codec, exact="none", **options)
        assert list(compression.exchanges.values()) == [exchange], compression.exchanges
        found = [gradients_after(model, 0) for _ in range(20)]
        check_same_everywhere(found[-1])
        error[codec, exchange] = sum(relative_error(f, plain) ** 2 for f in found)
    once = error["elastic:bits=4", "all-gather"]
    assert once < 0.8 * error["elastic:bits=4", "two-phase"], error
    fine = error["dither:bits=1.5", "two-phase, back as dither:bits=6"]
    assert fine < 0.6 * error["dither:bits=1.5", by_default] or workers == 2, error
    with raises(ValueError, "all-gather, sparse-scatter"):
        compress(make_ddp(), exchange="ring")
    with raises(ValueError, "cannot be encoded twice"):
        compress(make_ddp(), "dgc:ratio=0.1", exchange="two-phase")
    with raises(RuntimeError, "exchange"):
        compress(make_ddp(), exchange="codec" if dist.get_rank() == 1 else "auto")


@check
def levels_adapt_alike():
    model = make_ddp()
    compression = compress(model, "alq")
    key = f"rank{dist.get_rank()}/codec/{compression.codecs['0.weight']}"
    before = compression.state_dict()[key]
    train(model, range(102))
    check_same_everywhere(weights(model))
    after = compression.state_dict()[key]
    assert before != after, "alq kept its levels at step 100"
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, after)
    assert set(found) == {after}, found


# --- What DDP can do.


@check
def of_every_form_of_ddp():
    for options in (
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
        {"find_unused_parameters": True, "gradient_as_bucket_view": True},
        {"gradient_as_bucket_view": True, "static_graph": True},
    ):
        for cap in (0.001, 0.005, 25):
            plain, ours = (make_ddp(**options, bucket_cap_mb=cap) for _ in range(2))
            compression = compress(ours, "fp32", bucket_kib=4)
            train(plain, range(5))
            train(ours, range(5))
            assert relative_error(weights(ours), weights(plain)) < 1e-6, (options, cap)
            check_same_everywhere(weights(ours))
            if cap == 25:  # where ours are smaller than DDP's
                assert compression.stats().early_buckets > 0, options
            compression.close()


@check
def weights_that_lie_otherwise_in_memory():
    def make():
        torch.manual_seed(6)
        convolution = nn.Conv2d(4, 12, 3).to(memory_format=torch.channels_last)
        layers = nn.Unflatten(1, (4, 3, 2)), nn.ZeroPad2d(1), convolution, nn.Flatten()
        return make_ddp(nn.Sequential(*layers, nn.Linear(72, 5)), bucket_cap_mb=25)

    plain, ours = make(), make()
    assert not plain.module[2].weight.is_contiguous()
    compression = compress(ours, "fp32", bucket_kib=1)
    train(plain, range(5))
    train(ours, range(5))
    assert relative_error(weights(ours), weights(plain)) < 1e-6
    assert compression.stats().early_buckets > 0


class Branches(nn.Module):
    """Parameters of which a step uses some."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.first, self.second = nn.Linear(24, 24), nn.Linear(24, 24)
        self.never, self.last = nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, inputs: torch.Tensor, second: bool) -> torch.Tensor:
        return self.last(self.second(inputs) if second else self.first(inputs))


@check
def unused_parameters():
    def grads(model, step, second):
        model.zero_grad()
        inputs, classes = batch(step)
        nn.functional.cross_entropy(model(inputs, second), classes).backward()
        return [p.grad for p in model.parameters()]

    plain, ours = (make_ddp(Branches(), find_unused_parameters=True) for _ in range(2))
    compress(ours, "fp32")
    lossy = make_ddp(Branches(), find_unused_parameters=True)
    compress(lossy, "topk:ratio=0.1|ef")
    for step in range(6):
        # First all workers go the same way, then each its own.
        second = bool((step + (dist.get_rank() if step > 2 else 0)) % 2)
        expected, found = grads(plain, step, second), grads(ours, step, second)
        assert [g is None for g in found] == [g is None for g in expected]
        assert relative_error(flat(found), flat(expected)) < 1e-6
        check_same_everywhere(flat(grads(lossy, step, second)))


def memory_of(compression: elastiquant.Compression, parameter: str) -> torch.Tensor:
    state = compression.state_dict()
    return torch.cat([v for k, v in state.items() if "memory/" in k and k.endswith(parameter)])


@check
def what_ddp_discards_is_not_forgotten():
    for spec in (
        "topk:ratio=0.1|ef",
        "dither:bits=1|ef",
        "dgc:ratio=0.05",
        "powersgd:rank=1|ef",
    ):
        model = make_ddp(Branches(), find_unused_parameters=True)
        compression = compress(model, spec)
        for step in range(8):
            model.zero_grad()
            # From step 5 on the first worker goes another way: then all are used.
            second = (step % 2 == 1) != (step > 4 and dist.get_rank() == 0)
            before = {n: memory_of(compression, n) for n in compression.codecs if "weight" in n}
            inputs, classes = batch(step)
            nn.functional.cross_entropy(model(inputs, second), classes).backward()
            for name, was in before.items():
                unused = name == "never.weight" or (
                    step < 5 and name == ("first.weight" if second else "second.weight")
                )
                same = torch.equal(memory_of(compression, name), was)
                not_mine = name == ("first.weight" if second else "second.weight")
                assert same == unused or (not_mine and not unused), (spec, step, name)
        assert memory_of(compression, "never.weight").count_nonzero() == 0
        assert memory_of(compression, "second.weight").count_nonzero() > 0


class Tied(nn.Module):
    """A weight that two layers share, and frozen ones."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.embed = nn.Linear(24, 32)
        self.frozen = nn.Linear(32, 24)
        self.again = nn.Linear(24, 32)
        self.again.weight = self.embed.weight
        self.last = nn.Linear(32, 5)
        self.frozen.requires_grad_(False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.last(torch.tanh(self.again(self.frozen(torch.tanh(self.embed(inputs))))))


@check
def shared_and_frozen_parameters():
    plain, ours = make_ddp(Tied()), make_ddp(Tied())
    compression = compress(ours, "fp32")
    assert "frozen.weight" not in compression.codecs
    assert len(compression.codecs) == 5, compression.codecs
    train(plain, range(4))
    train(ours, range(4))
    assert relative_error(weights(ours), weights(plain)) < 1e-6
    lossy = make_ddp(Tied())
    compress(lossy)
    train(lossy, range(4))
    check_same_everywhere(weights(lossy))


@check
def uneven_inputs():
    def train_joined(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with model.join():
            for step in range(3 + 2 * dist.get_rank()):
                optimizer.zero_grad()
                loss_of(model, step).backward()
                optimizer.step()

    plain, ours, lossy = make_ddp(), make_ddp(), make_ddp()
    compress(ours, "fp32")
    compress(lossy, "dither:bits=2|ef")
    for model in (plain, ours, lossy):
        train_joined(model)
        check_same_everywhere(weights(model))
    assert relative_error(weights(ours), weights(plain)) < 1e-6


@check
def accumulation_is_one_big_batch():
    whole, parts = make_ddp(), make_ddp()
    for model in (whole, parts):
        compress(model, "fp32")
    for step in range(3):
        whole.zero_grad()
        (loss_of(whole, 2 * step) / 2 + loss_of(whole, 2 * step + 1) / 2).backward()
        parts.zero_grad()
        sent = parts._elastiquant.stats().bytes_up
        with parts.no_sync():
            (loss_of(parts, 2 * step) / 2).backward()
        assert parts._elastiquant.stats().bytes_up == sent
        (loss_of(parts, 2 * step + 1) / 2).backward()
        assert relative_error(gradients(parts), gradients(whole)) < 1e-6
    assert parts._elastiquant.stats().steps == 3


@check
def half_precision_parameters():
    for dtype, tolerance in ((torch.bfloat16, 2e-2), (torch.float16, 2e-3)):
        plain, ours = make_ddp(make_model(dtype)), make_ddp(make_model(dtype))
        compression = compress(ours, "fp32")
        for step in range(3):
            expected, found = gradients_after(plain, step), gradients_after(ours, step)
            assert relative_error(found, expected) < tolerance
        assert {p.grad.dtype for p in ours.parameters()} == {dtype}
        stats = compression.stats()
        assert 0.4 < stats.ratio < 0.5, "twice the bytes of 16 bits a value, and headers"
        assert 32 < stats.bits_per_coordinate < 40
        lossy = make_ddp(make_model(dtype))
        compress(lossy, "dither:bits=3")
        train(lossy, range(4))
        check_same_everywhere(weights(lossy))
    mixed = make_model()
    mixed[2].half()
    mixed[2].register_forward_pre_hook(lambda _, given: given[0].half())
    mixed[2].register_forward_hook(lambda _, __, out: out.float())
    mixed = make_ddp(mixed)
    compress(mixed)
    train(mixed, range(4))
    check_same_everywhere(weights(mixed))


@check
def a_nan_of_one_worker_is_on_all():
    for spec in ("dither:bits=2", "topk:ratio=0.05|ef", "powersgd:rank=2|ef"):
        model = make_ddp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
        compression = compress(model, spec, grad_scaler=scaler)
        for step in range(7):
            bad = step in (0, 3)
            optimizer.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = loss_of(model, step)
            if bad and dist.get_rank() == 1:
                loss = loss * float("nan" if step else "inf")
            scaler.scale(loss).backward()
            assert all(p.grad.isnan().all() for p in model.parameters()) == bad, (spec, step)
            before = weights(model)
            scaler.step(optimizer)
            scaler.update()
            assert torch.equal(weights(model), before) == bad
        assert weights(model).isfinite().all()
        check_same_everywhere(weights(model))
        stats = compression.stats()
        assert (stats.steps, stats.skipped) == (7, 2)
        assert "worker 1" in stats.skip_reason, stats.skip_reason
        assert "2 skipped" in stats.summary()


@check
def memory_follows_the_scale_of_the_loss():
    for spec in ("topk:ratio=0.05|ef", "dgc:ratio=0.05", "dither:bits=1|ef", "powersgd|ef"):
        found = []
        for scale, interval in ((1.0, 1000), (16.0, 2)):
            model = make_ddp()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
            scaler = torch.amp.GradScaler("cpu", init_scale=scale, growth_interval=interval)
            compress(model, spec, grad_scaler=scaler)
            for step in range(12):
                optimizer.zero_grad()
                scaler.scale(loss_of(model, step)).backward()
                scaler.step(optimizer)
                scaler.update()
            found.append(weights(model))
            check_same_everywhere(weights(model))
        assert scaler.get_scale() == 16 * 2**6
        # Scales are powers of 2, so that nothing is rounded otherwise.
        assert relative_error(found[1], found[0]) < 1e-6, spec


@check
def a_grad_scaler_it_was_not_told_of_is_noticed():
    for told in (False, True):
        model = make_ddp()
        scaler = torch.amp.GradScaler("cpu")
        compress(model, "topk:ratio=0.1|ef", grad_scaler=scaler if told else None)
        with logged() as lines:
            for step in range(5):
                scaler.scale(loss_of(model, step)).backward()
        assert len(lines) == (0 if told else 1), lines
        assert all("grad_scaler=scaler" in line for line in lines)
    with logged() as lines:
        model = make_ddp()
        compress(model, "dither:bits=2")
        for step in range(5):
            scaler.scale(loss_of(model, step)).backward()
    assert lines == [], "without memory there is nothing to say"


@check
def efsign_has_the_learning_rate_in_its_memory():
    rates = [2.0 ** -(5 + step % 3) for step in range(9)]  # powers of 2, as above

    def trained(spec: str, in_the_loss: bool) -> torch.Tensor:
        model = make_ddp()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        compress(model, spec, optimizer=optimizer)
        for step, rate in enumerate(rates):
            if not in_the_loss:
                optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            ((rate if in_the_loss else 1) * loss_of(model, step)).backward()
            optimizer.step()
        check_same_everywhere(weights(model))
        return weights(model)

    # p = rate * g + e, as published, made by hand: of a loss that has the rate in it.
    published = trained("efsign|ef:lr=outside", in_the_loss=True)
    assert relative_error(trained("efsign|ef", in_the_loss=False), published) < 1e-6
    outside = trained("efsign|ef:lr=outside", in_the_loss=False)
    assert relative_error(outside, published) > 1e-3, "another algorithm"


@check
def optimizers_are_held_to_their_codecs():
    def refused(words: str, spec: str, optimizer) -> None:
        with raises(ValueError, words):
            compress(make_ddp(), spec, optimizer=optimizer)

    refused("optimizer=.* trains '0.weight'.*lr=outside", "efsign|ef", None)
    other = torch.optim.SGD(make_model().parameters(), lr=0.1)
    refused("trains '0.weight'", "efsign|ef", other)
    refused("not one of torch.optim", "efsign|ef", 0.1)
    model = make_ddp()
    twice = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    with raises(ValueError, "sends velocities, and the optimizer has momentum 0.9"):
        compress(model, "dgc", optimizer=twice)
    twice.param_groups[0]["momentum"] = 0
    compress(model, "dgc", optimizer=twice)


@check
def a_group_of_some_workers():
    pair = dist.new_group([0, 1])
    lone = dist.new_group([2])
    group = lone if dist.get_rank() == 2 else pair
    plain = make_ddp(process_group=group)
    ours = make_ddp(process_group=group)
    compression = compress(ours, "fp32")
    train(plain, range(4))
    train(ours, range(4))
    assert relative_error(weights(ours), weights(plain)) < 1e-6
    assert (compression.stats().bytes_up == 0) == (group is lone)


@check
def models_side_by_side():
    first, second = make_ddp(), make_ddp()
    compress(first, "dither:bits=2")
    compress(second, "topk:ratio=0.1|ef")
    for step in range(4):
        train(first, [step])
        train(second, [step])
    check_same_everywhere(torch.cat([weights(first), weights(second)]))


@check
def pickled_models_leave_compression_behind():
    model = make_ddp()
    compress(model)
    train(model, range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = pickle.loads(pickle.dumps(model))
        copied = copy.deepcopy(model.module)
    assert torch.equal(weights(again), weights(model))
    assert torch.equal(weights(copied), weights(model))
    train(again, range(2))
    fresh = make_ddp(again.module)
    compress(fresh)
    train(fresh, range(2))
    train(model, range(2, 4))
    check_same_everywhere(weights(model))


# --- What the arguments say.


@check
def policies_choose_codecs():
    def codecs(**options):
        with compress(make_ddp(), **options) as compression:
            return compression.codecs

    first, bias, norm = "0.weight", "0.bias", "3.weight"
    default = codecs()
    assert default[first].startswith("dither"), default
    assert default[bias] == default[norm] == "fp32"
    assert codecs(exact="none")[bias] == default[first]
    kept = codecs(exact="1d,5.*")
    assert (kept["5.weight"], kept[bias], kept[first]) == ("fp32", "fp32", default[first])
    named = codecs(policy={"0.*": "fp16", "*.weight": "natural"})
    assert (named[first], named[bias], named[norm]) == ("fp16", "fp16", "natural"), named
    by_size = codecs(policy=lambda name, p: "fp32" if p.numel() < 500 else None)
    assert (by_size["5.weight"], by_size["2.weight"]) == ("fp32", default[first])
    model = make_ddp()
    compress(model, policy={"0.*": "topk:ratio=0.1|ef", "2.*": "powersgd:rank=1|ef"})
    train(model, range(5))
    check_same_everywhere(weights(model))


@check
def wrong_arguments_are_refused():
    for options, words in (
        ({"codec": "dithr"}, "valid: fp32"),
        ({"policy": {"none.*": "fp32"}}, "no parameter's name matches 'none"),
        ({"policy": {"0.*": "nonsense"}}, "nonsense"),
        ({"exact": "1d,conv*"}, "no parameter's name matches 'conv"),
        ({"bucket_kib": 0}, "bucket_kib"),
        ({"threads": 0}, "threads"),
        ({"seed": -1}, "seed"),
        ({"timeout": 0.2}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"link": "fast"}, "fast"),
    ):
        with raises(ValueError, words):
            compress(make_ddp(), **options)
    with raises(TypeError, "DistributedDataParallel"):
        elastiquant.compress(make_model())
    with raises(ValueError, "dithr"):  # after which the model may be compressed
        model = make_ddp()
        compress(model, "dithr")
    compress(model)
    train(model, range(2))


@check
def a_second_hook_is_refused():
    model = make_ddp()
    compress(model)
    with raises(RuntimeError, "hook"):
        compress(model)
    train(model, range(3))  # by the first
    check_same_everywhere(weights(model))
    assert model._elastiquant.stats().steps == 3
    hooked = make_ddp()
    hooked.register_comm_hook(None, allreduce_hook)
    with raises(RuntimeError, "hook"):
        compress(hooked)
    train(hooked, range(2))


@check
def workers_that_differ_are_refused():
    last = dist.get_rank() == dist.get_world_size() - 1
    for options, words in (
        ({"codec": "dither:bits=3" if last else "dither:bits=2"}, "codec of '0.weight'"),
        ({"exact": "none" if last else "1d"}, "codec of '0.bias' is 'dither.* and 'fp32'"),
        ({"bucket_kib": 128 if last else None}, "bucket_kib is 128 and 384"),
        ({"seed": int(last)}, "seed is 1 and 0"),
    ):
        with raises(RuntimeError, f"workers {dist.get_world_size() - 1} and 0 .*{words}"):
            compress(make_ddp(), **options)
    why = "dithr" if last else r"cannot call compress\(\): ValueError: .*dithr"
    with raises(ValueError if last else RuntimeError, why):
        compress(make_ddp(), "dithr" if last else "dither")
    for options in ({"link": "fast" if last else None}, {"timeout": 0.2 if last else 20}):
        with raises(ValueError if last else RuntimeError, "fast|timeout"):
            compress(make_ddp(), **options)
    model = make_ddp()
    compress(model)
    train(model, range(2))
    check_same_everywhere(weights(model))


# --- What the handle tells.


class Writer:
    """TensorBoard's SummaryWriter, as far as it is used."""

    def __init__(self):
        self.scalars: dict[str, float] = {}

    def add_scalar(self, name: str, value: float, step: int) -> None:
        assert step == 9
        self.scalars[name] = float(value)


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


if __name__ == "__main__":
    main()
