"""DiLoCo and LocalSGD beside diloco_reference.py, on several workers: see diloco_test.py."""

from __future__ import annotations

import torch
import torch.distributed as dist
from checking import check, main
from diloco_reference import Reference
from diloco_training import anchor_of, make_inner, make_model, start, train, weights
from torch import nn

import elastiquant

STEPS = 13


def check_equal(reference: Reference, kind: type = elastiquant.DiLoCo, **options) -> None:
    """Within the rounding of fp32: local weights and anchor on the way, and at the end."""
    model, inner, rounds = start(kind, codec="fp32", **options)
    rank = dist.get_rank()
    for number in range(STEPS):
        train(model, inner, [number])
        reference.train(1)
        torch.testing.assert_close(weights(model), weights(reference.models[rank]))
        expected = torch.cat([a.flatten() for a in reference.anchor])
        torch.testing.assert_close(anchor_of(rounds), expected)
    rounds.finish()
    reference.finish()
    torch.testing.assert_close(weights(model), weights(reference.models[rank]))
    rounds.close()


def workers() -> list[list[int]]:
    return [[rank] for rank in range(dist.get_world_size())]


@check
def diloco_equals_plain_pytorch():
    check_equal(Reference(workers(), 3), every=3)


@check
def local_sgd_equals_plain_pytorch():
    reference = Reference(workers(), 3, rate=1.0, momentum=0.0)
    check_equal(reference, elastiquant.LocalSGD, every=3)


def by_block(values: torch.Tensor) -> torch.Tensor:
    """A matrix as rows of 64 x 64 values."""
    return (
        values.unflatten(0, (-1, 64)).unflatten(2, (-1, 64)).transpose(1, 2).reshape(-1, 4096)
    )


@check
def local_sgd_under_chunktopk_is_sparseloco():
    """u = .95 e + Δ; send the 64 largest of each block, roughly; e <- u - sent; and all go on
    from the mean. Worker 0 alone learns, so that the mean tells what it has sent."""
    rank, world_size = dist.get_rank(), dist.get_world_size()
    model = nn.Linear(128, 64, bias=False)
    inner = torch.optim.SGD(model.parameters(), lr=0.0 if rank else 0.5)
    local: list[torch.Tensor] = []
    inner.register_step_post_hook(lambda *_: local.append(model.weight.detach().clone()))
    rounds = elastiquant.LocalSGD(model, inner, every=5, codec="chunktopk|ef:decay=0.95")
    random = torch.Generator().manual_seed(1)
    remembered = torch.zeros(2, 4096)
    for _ in range(4):
        anchor = rounds.anchor()["weight"]
        for _ in range(5):
            inner.zero_grad()
            model(torch.randn(8, 128, generator=random)).square().mean().backward()
            inner.step()
        sent = by_block((anchor - rounds.anchor()["weight"]) * world_size)
        if rank == 0:
            wanted = 0.95 * remembered + by_block(anchor - local[-1])
            largest = torch.zeros_like(wanted, dtype=torch.bool)
            largest.scatter_(1, wanted.abs().topk(64).indices, True)
            assert torch.equal(sent != 0, largest)
            assert torch.equal(sent.sign(), wanted.sign() * largest)
            assert (sent - wanted)[largest].norm() < 0.3 * wanted[largest].norm()
            remembered = wanted - sent
    rounds.close()


@check
def an_outer_optimiser_of_the_users_equals_plain_pytorch():
    model = make_model()
    inner = make_inner(model)
    outer = torch.optim.SGD(model.parameters(), lr=0.9, momentum=0.5, nesterov=True)
    rounds = elastiquant.DiLoCo(model, inner, outer, every=4, codec="fp32")
    reference = Reference(workers(), 4, rate=0.9, momentum=0.5)
    train(model, inner, range(STEPS))
    reference.train(STEPS)
    torch.testing.assert_close(weights(model), weights(reference.models[dist.get_rank()]))
    rounds.close()


@check
def streaming_equals_plain_pytorch():
    for options in (
        {"fragments": 3},
        {"delay": 3},
        {"mix": 0.75},
        {"fragments": 2, "delay": 1, "mix": 0.5},
        {"fragments": 4, "delay": 1, "mix": 0.25},
    ):
        check_equal(Reference(workers(), 4, **options), every=4, **options)


@check
def eager_equals_plain_pytorch():
    for every in (1, 3):
        check_equal(Reference(workers(), every, eager=True), every=every, eager=True)


@check
def workers_count_by_their_weights():
    """The first one for 1, the second one for 2, and so on."""
    counts = [1.0 + rank for rank in range(dist.get_world_size())]
    own = counts[dist.get_rank()]
    for options in ({}, {"fragments": 2, "delay": 1, "mix": 0.5}, {"eager": True}):
        reference = Reference(workers(), 4, counts=counts, **options)
        check_equal(reference, every=4, weight=own, **options)


@check
def a_compiled_model_trains_like_any_other():
    """Compiled before or after DiLoCo is made. By Dynamo alone: its C++ backend takes a minute
    to compile these three layers, and changes nothing of what DiLoCo meets."""
    reference = Reference(workers(), 3)
    reference.train(STEPS)
    for given_compiled in (True, False):
        model = make_model()
        compiled = torch.compile(model, backend="eager")
        inner = make_inner(model)
        given = compiled if given_compiled else model
        rounds = elastiquant.DiLoCo(given, inner, every=3, codec="fp32")
        # Names are those of the model that was compiled.
        assert list(rounds.codecs) == [name for name, _ in model.named_parameters()]
        train(compiled, inner, range(STEPS))
        assert rounds.rounds == STEPS // 3
        expected = weights(reference.models[dist.get_rank()])
        torch.testing.assert_close(weights(model), expected)
        rounds.close()


if __name__ == "__main__":
    main()
