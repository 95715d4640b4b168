"""What becomes of the running statistics of batch normalisation: see diloco_test.py."""

from __future__ import annotations

import copy
import json
from typing import Any

import torch
import torch.distributed as dist
from checking import check, main, raises
from diloco_training import check_same_everywhere
from torch import nn

import elastiquant

FEATURES = 4


def make_model() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(nn.BatchNorm1d(FEATURES), nn.Linear(FEATURES, 2))


def make_inner(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.0)  # weights are no matter here


def start(kind: type = elastiquant.LocalSGD, every: int = 2, **options):
    model = make_model()
    inner = make_inner(model)
    return model, inner, kind(model, inner, every=every, codec="fp32", **options)


def train(
    model: nn.Module,
    inner: torch.optim.Optimizer,
    steps: int,
    mean: float = 0.0,
    std: float = 1.0,
) -> None:
    for step in range(steps):
        random = torch.Generator().manual_seed(100 * step + dist.get_rank())
        inputs = mean + std * torch.randn(64, FEATURES, generator=random)
        inner.zero_grad()
        model(inputs).square().mean().backward()
        inner.step()


def set_statistics(norm: nn.Module, means: float, variances: float) -> None:
    norm.running_mean.fill_(means)
    norm.running_var.fill_(variances)


def check_statistics(norm: nn.Module, means: float, variances: float) -> None:
    torch.testing.assert_close(norm.running_mean, torch.full((FEATURES,), means))
    torch.testing.assert_close(norm.running_var, torch.full((FEATURES,), variances))


@check
def large_means_leave_the_variances():
    """fp32 has no digit of a variance of 1 beside a square of 10^8."""
    for mean, variance in ((1e3, 1.0), (1e4, 1.0), (1.7e9, 1e10), (-1e6, 1e-4)):
        model, inner, rounds = start()
        norm = model[0].eval()
        for _ in range(3):
            set_statistics(norm, mean, variance)
            train(model, inner, 2, mean)
            check_statistics(norm, mean, variance)
        rounds.finish()
        check_statistics(norm, mean, variance)
        rounds.close()


@check
def large_means_leave_the_variances_under_gossip():
    model = make_model()
    optimizer = make_inner(model)
    gossip = elastiquant.Gossip(optimizer, model, graph="ring", codec="fp32")
    norm = model[0].eval()
    set_statistics(norm, 1e4, 1.0)
    train(model, optimizer, 1, 1e4)
    gossip.finish()
    check_statistics(norm, 1e4, 1.0)
    gossip.close()


@check
def from_the_second_round_on_workers_whose_large_means_differ_count():
    """The variance of all data has that between the workers' means."""
    model, inner, rounds = start()
    norm, rank = model[0].eval(), dist.get_rank()
    set_statistics(norm, 1e4, 1.0)
    train(model, inner, 2)
    set_statistics(norm, 1e4 + 2 * rank, 3.0)
    train(model, inner, 2)
    check_statistics(norm, 1e4 + 1, 3.0 + 1.0)
    rounds.close()


@check
def late_means_leave_the_variances():
    for options in ({"eager": True}, {"delay": 1, "mix": 0.5}):
        model, inner, rounds = start(elastiquant.DiLoCo, **options)
        norm = model[0].eval()
        for _ in range(3):
            set_statistics(norm, 1e4, 1.0)
            train(model, inner, 2)
        rounds.finish()
        check_statistics(norm, 1e4, 1.0)
        rounds.close()


@check
def trains_as_without_rounds_on_data_far_from_zero():
    model, inner, rounds = start(every=10)
    train(model, inner, 200, mean=1e4)
    rounds.finish()
    check_same_everywhere(torch.cat([model[0].running_mean, model[0].running_var]))
    assert (model[0].running_var - 1).abs().max() < 0.2, model[0].running_var
    rounds.close()


def key(name: str) -> str:
    return f"rank{dist.get_rank()}/rounds/{name}"


def resumed(saved: tuple[dict[str, Any], ...], **options):
    model, inner, rounds = start(**options)
    model.load_state_dict(saved[0])
    inner.load_state_dict(saved[1])
    rounds.load_state_dict(saved[2])
    return model, inner, rounds


@check
def resumes_exactly():
    for options in ({}, {"delay": 1, "mix": 0.5}):
        for steps in (1, 2, 4):
            model, inner, rounds = start(**options)
            train(model, inner, steps, mean=1e4)
            saved = copy.deepcopy((model.state_dict(), inner.state_dict(), rounds.state_dict()))
            assert saved[2][key("norms-reference")].any() == (rounds.rounds > 0)
            again, inner_again, rounds_again = resumed(saved, **options)
            for parts in ((model, inner, rounds), (again, inner_again, rounds_again)):
                train(*parts[:2], 5, mean=1e4)
                parts[2].finish()
                parts[2].close()
            for ours, theirs in zip(model.buffers(), again.buffers(), strict=True):
                assert torch.equal(ours, theirs), (options, steps)


@check
def takes_states_of_versions_that_took_moments_about_zero():
    model, inner, rounds = start()
    train(model, inner, 3)
    saved = copy.deepcopy((model.state_dict(), inner.state_dict(), rounds.state_dict()))
    rounds.close()
    del saved[2][key("norms-reference")]
    model, inner, rounds = resumed(saved)
    norm, rank = model[0].eval(), dist.get_rank()
    set_statistics(norm, rank, 1.0)
    train(model, inner, 1)
    check_statistics(norm, 0.5, 1.25)
    rounds.close()


@check
def refuses_states_of_such_versions_with_a_mean_under_way():
    options = {"delay": 1, "mix": 0.5}
    model, inner, rounds = start(**options)
    train(model, inner, 2)
    old = rounds.state_dict()
    rounds.close()
    del old[key("norms-reference")]
    rounds = start(**options)[2]
    with raises(elastiquant.CorruptFrameError, "older version, .* load the weights alone"):
        rounds.load_state_dict(old)
    assert json.loads(old[key("settings")])["kind"] == "LocalSGD" and rounds.step == 0
    rounds.close()


if __name__ == "__main__":
    main()
