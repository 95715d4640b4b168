"""What DDP can do beside compress(): see ddp_checks.py."""

from __future__ import annotations

import copy
import pickle
import warnings

import torch
import torch.distributed as dist
from checking import check, compress
from ddp_training import (
    Branches,
    batch,
    check_same_everywhere,
    flat,
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
    def train_joined(model, least=3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        with model.join():
            for step in range(least + 2 * dist.get_rank()):
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
    # One may have no data at all, which does not look as if it had missed a checkpoint.
    ours = make_ddp()
    compress(ours, "fp32")
    train_joined(ours, least=0)
    check_same_everywhere(weights(ours))


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
    hooked, model = make_ddp(), make_ddp()
    hooked.register_comm_hook(*elastiquant.comm_hook(switch=False))
    compress(model)
    train(hooked, range(2))
    train(model, range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = pickle.loads(pickle.dumps(model))
        copied = copy.deepcopy(model.module)
        of_hooked = (pickle.loads(pickle.dumps(hooked)), copy.deepcopy(hooked))
    assert all(torch.equal(weights(other), weights(hooked)) for other in of_hooked)
    train(hooked, range(2, 4))
    check_same_everywhere(weights(hooked))
    assert torch.equal(weights(again), weights(model))
    assert torch.equal(weights(copied), weights(model))
    train(again, range(2))
    fresh = make_ddp(again.module)
    compress(fresh)
    train(fresh, range(2))
    train(model, range(2, 4))
    check_same_everywhere(weights(model))
