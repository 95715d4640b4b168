"""What DiLoCo and LocalSGD do on several workers: see diloco_test.py."""

from __future__ import annotations

import copy

import torch
import torch.distributed as dist
from checking import check, logged, main, raises
from torch import nn

import elastiquant


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(20, 30), nn.Tanh(), nn.Linear(30, 5))


def step(model: nn.Module, optimizer: torch.optim.Optimizer, number: int, rank: int) -> None:
    random = torch.Generator().manual_seed(100 * number + rank)
    x = torch.randn(8, 20, generator=random)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def weights(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def everywhere(values: torch.Tensor) -> list[torch.Tensor]:
    said = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(said, values)
    return said


def check_same_everywhere(values: torch.Tensor) -> None:
    assert all(torch.equal(values, theirs) for theirs in everywhere(values))


def reference(steps: int, every: int, rate: float, momentum: float) -> torch.Tensor:
    """DiLoCo in plain PyTorch, all workers in this process."""
    world = dist.get_world_size()
    models = [make_model() for _ in range(world)]
    inner = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in models]
    anchor = make_model()
    outer = torch.optim.SGD(
        anchor.parameters(), lr=rate, momentum=momentum, nesterov=momentum > 0
    )
    for number in range(steps):
        for rank in range(world):
            step(models[rank], inner[rank], number, rank)
        if (number + 1) % every == 0:
            for i, p in enumerate(anchor.parameters()):
                local = [list(m.parameters())[i].detach() for m in models]
                p.grad = p.detach() - torch.stack(local).mean(0)
            outer.step()
            for m in models:
                m.load_state_dict(anchor.state_dict())
    return weights(models[dist.get_rank()])


def start(kind: type = elastiquant.DiLoCo, **options):
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    return model, inner, kind(model, inner, **options)


def train(model: nn.Module, inner: torch.optim.Optimizer, numbers: range) -> None:
    for number in numbers:
        step(model, inner, number, dist.get_rank())


@check
def equals_plain_pytorch():
    for kind, rate, momentum in (
        (elastiquant.DiLoCo, 0.7, 0.9),
        (elastiquant.LocalSGD, 1.0, 0.0),
    ):
        model, inner, rounds = start(kind, every=3, codec="fp32")
        train(model, inner, range(10))
        torch.testing.assert_close(weights(model), reference(10, 3, rate, momentum))
        assert rounds.rounds == 3 and rounds.stats().steps == 3, rounds
        rounds.close()


@check
def leaves_the_same_bits_on_all():
    for codec in ("dither:bits=1", "elastic:bits=2|ef"):
        for options in ({}, {"fragments": 2, "delay": 1, "mix": 0.5}, {"eager": True}):
            model, inner, rounds = start(every=4, codec=codec, exact="none", **options)
            train(model, inner, range(13))
            check_same_everywhere(torch.cat([a.flatten() for a in rounds.anchor().values()]))
            rounds.finish()
            check_same_everywhere(weights(model))
            assert rounds.stats().bytes_up > 0 and rounds.layers()
            rounds.close()


@check
def resumes_exactly():
    for options in ({}, {"fragments": 2, "delay": 2, "mix": 0.25}, {"eager": True}):
        options |= {"every": 4, "codec": "elastic:bits=2|ef"}
        for stop in (3, 4, 5, 6):
            model, inner, rounds = start(**options)
            train(model, inner, range(stop))
            saved = copy.deepcopy((model.state_dict(), inner.state_dict(), rounds.state_dict()))
            train(model, inner, range(stop, 13))
            again, inner_again, resumed = start(**options)
            again.load_state_dict(saved[0])
            inner_again.load_state_dict(saved[1])
            resumed.load_state_dict(saved[2])
            train(again, inner_again, range(stop, 13))
            assert torch.equal(weights(again), weights(model)), (options, stop)
            other = start(every=5)[2]
            with raises(elastiquant.CorruptFrameError, "of other rounds"):
                other.load_state_dict(saved[2])
            for r in (rounds, resumed, other):
                r.close()


@check
def undoes_itself():
    model, inner, rounds = start(every=4)
    with rounds:
        train(model, inner, range(6))
    check_same_everywhere(weights(model))
    before = rounds.step
    train(model, inner, range(6, 8))
    assert rounds.step == before and not inner._optimizer_step_post_hooks


@check
def averages_batch_norm():
    model = nn.Sequential(nn.Linear(20, 4), nn.BatchNorm1d(4))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    rounds = elastiquant.LocalSGD(model, inner, every=2, codec="fp32")
    norm, rank = model[1], dist.get_rank()
    train(model, inner, range(1))
    norm.running_mean.fill_(rank)
    norm.running_var.fill_(1.0)
    norm.eval()
    train(model, inner, range(1, 2))
    means = torch.arange(dist.get_world_size(), dtype=torch.float32)
    torch.testing.assert_close(norm.running_mean, means.mean().expand(4))
    torch.testing.assert_close(norm.running_var, (1 + means.var(correction=0)).expand(4))
    rounds.close()


@check
def loses_a_round_with_a_nan():
    model, inner, rounds = start(every=2, codec="fp32")
    train(model, inner, range(1))
    if dist.get_rank() == 1:
        with torch.no_grad():
            next(model.parameters())[0, 0] = float("nan")
    with logged() as lines:
        train(model, inner, range(1, 2))
    assert torch.equal(weights(model), weights(make_model()))
    assert len(lines) == 1 and "worker 1" in lines[0], lines
    rounds.close()


@check
def refuses_what_cannot_be():
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    for options, words in (
        ({"every": 0}, "at least 1"),
        ({"mix": 1.0}, "mix is 1.0"),
        ({"weight": 0.0}, "weight is 0.0"),
        ({"fragments": 9}, "fragments is 9"),
        ({"every": 4, "fragments": 2, "delay": 3}, "delay is 3"),
        ({"eager": True, "mix": 0.5}, "eager needs"),
        ({"outer": inner}, "another optimiser"),
        ({"codec": "nonsense"}, "nonsense"),
    ):
        with raises(ValueError, words):
            elastiquant.DiLoCo(model, inner, **options)
    with raises(RuntimeError, "call DiLoCo with different arguments: every is"):
        elastiquant.DiLoCo(model, inner, every=4 + dist.get_rank())


@check
def names_a_worker_that_has_left():
    model, inner, rounds = start(every=2)
    if dist.get_rank() == 1:
        rounds.close()
    else:
        with raises(dist.DistBackendError, "worker 1"):
            train(model, inner, range(2))
        rounds.close()
    dist.barrier()


if __name__ == "__main__":
    main()
