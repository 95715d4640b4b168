"""What gradients compress() gives: see ddp_checks.py."""

from __future__ import annotations

import torch
import torch.distributed as dist
from checking import check, compress, raises
from ddp_training import (
    check_same_everywhere,
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

import elastiquant


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
def sparse_gradients_are_refused():
    model = make_ddp(nn.Embedding(50, 8, sparse=True))
    compress(model)
    with raises(RuntimeError, r"sparse gradients cannot be compressed: .* \(sparse=False\)"):
        model(torch.arange(5)).sum().backward()


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
