"""Checks of compress(optimizer=...): gradients are compressed in the optimiser's metric."""

from __future__ import annotations

import copy
import itertools
import logging
import re

import torch
import torch.distributed as dist
from checking import check, compress, logged, raises
from ddp_training import (
    check_same_everywhere,
    gradients_after,
    loss_of,
    make_ddp,
    make_model,
    relative_error,
    train,
    weights,
)
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer

from elastiquant._metric import groups_of

# Each with what makes its state differ in kind from the others'.
OPTIMIZERS = {
    "Adam": lambda p: torch.optim.Adam(p, lr=1e-3, foreach=False),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3),
    "AdamW, foreach": lambda p: torch.optim.AdamW(p, lr=1e-3, foreach=True),
    "AdamW, fused": lambda p: torch.optim.AdamW(p, lr=1e-3, fused=True),
    "AdamW, amsgrad": lambda p: torch.optim.AdamW(p, lr=1e-3, amsgrad=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=1e-3),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=1e-3),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=1e-3),
}


def moments_of(optimizer: torch.optim.Optimizer, p: torch.Tensor) -> torch.Tensor:
    state = optimizer.state[p]
    names = ("max_exp_avg_sq", "exp_avg_sq", "square_avg", "sum")
    return next(state[name] for name in names if name in state)


def uneven_model() -> nn.Module:
    """One whose gradients differ in size by orders of magnitude."""
    model = make_model()
    with torch.no_grad():
        for n, p in enumerate(model.parameters()):
            p.mul_(3.0 ** (n % 3 - 1))
            if p.dim() > 1:
                p[::3] *= 0.02
    return model


def noise_by_layer(model, optimizer, expected: torch.Tensor, step: int) -> list[float]:
    """For each matrix, the mean of squared errors relative to v."""
    found = gradients_after(model, step)
    noise, at = [], 0
    for p in model.parameters():
        error = (found - expected)[at : at + p.numel()].view_as(p)
        at += p.numel()
        if p.dim() > 1:
            v = moments_of(optimizer, p)
            noise.append((error.square() / (v + 1e-6 * v.mean())).mean().item())
    return noise


@check
def noise_is_even_in_the_metric_of_every_optimizer():
    for name, make in OPTIMIZERS.items():
        model, plain = make_ddp(uneven_model()), make_ddp(uneven_model())
        optimizer = make(model.parameters())
        compression = compress(
            model, "dither:bits=2", optimizer=optimizer, exact_steps=0, measure_every=1
        )
        assert compression.metric == "adam", name
        train(model, range(4), optimizer)
        check_same_everywhere(weights(model))
        plain.load_state_dict(model.state_dict())
        noise = noise_by_layer(model, optimizer, gradients_after(plain, 9), 9)
        # The first layers share a bucket, and so one step of quantisation in the metric.
        assert max(noise) < 10 * min(noise), (name, noise)
        in_metric = compression.layers()[-1]
        assert in_metric.verdict in ("holds", "loose"), in_metric


@check
def without_second_moments_nothing_changes():
    for optimizer_of, metric in (
        (lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9), "auto"),
        (lambda p: torch.optim.AdamW(p, lr=1e-3), "plain"),
    ):
        model, other = make_ddp(), make_ddp()
        optimizers = [optimizer_of(m.parameters()) for m in (model, other)]
        with logged(logging.INFO) as lines:
            compression = compress(model, optimizer=optimizers[0], metric=metric)
        assert compression.metric == "plain"
        compress(other)
        train(model, range(4), optimizers[0])
        train(other, range(4), optimizers[1])
        assert torch.equal(weights(model), weights(other))
        said = [line for line in lines if "compressed as they are" in line]
        assert len(said) == (1 if dist.get_rank() == 0 else 0), lines


@check
def the_first_step_is_plain_and_a_resumed_one_is_not():
    model, other = make_ddp(), make_ddp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    compress(model, optimizer=optimizer, exact_steps=0)
    compress(other)
    assert torch.equal(gradients_after(model, 0), gradients_after(other, 0))
    train(model, range(3), optimizer)

    resumed = make_ddp()
    resumed.load_state_dict(model.state_dict())
    again = torch.optim.AdamW(resumed.parameters(), lr=1e-2)
    compression = compress(resumed, optimizer=again, exact_steps=3)
    again.load_state_dict(optimizer.state_dict())  # later than compress()
    plain = make_ddp()
    plain.load_state_dict(model.state_dict())
    expected = gradients_after(plain, 5)
    before = compression.stats().steps
    in_metric = gradients_after(resumed, 5)
    assert compression.stats().steps == before + 1
    compress(plain)
    assert not torch.equal(in_metric, gradients_after(plain, 5))
    assert relative_error(in_metric, expected) < 1.5


@check
def first_steps_go_uncompressed():
    model, plain = make_ddp(uneven_model()), make_ddp(uneven_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compression = compress(model, "dither:bits=2", optimizer=optimizer, exact_steps=3)
    errors, sent = [], []
    for step in range(6):
        plain.load_state_dict(model.state_dict())
        errors.append(
            relative_error(gradients_after(model, step), gradients_after(plain, step))
        )
        sent.append(compression.stats().bytes_up)
        optimizer.step()
    assert max(errors[:3]) < 1e-6 < min(errors[3:]), errors
    steps = [b - a for a, b in zip([0, *sent], sent, strict=False)]
    assert max(steps[3:]) < min(steps[:3]) / 3, steps
    check_same_everywhere(weights(model))


class Variant(torch.optim.Optimizer):
    """Of no class of PyTorch's, with or without second moments."""

    def __init__(self, parameters, moments: str):
        super().__init__(parameters, {"moments": moments})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state["step"] = state.get("step", 0) + 1
                v = state.setdefault(group["moments"], torch.zeros_like(p))
                v.mul_(0.9).addcmul_(p.grad, p.grad, value=0.1)
                p.sub_(1e-3 * p.grad / (v.sqrt() + 1e-8))


@check
def an_optimizer_of_ones_own_is_known_by_its_state():
    for moments, metric, uncompressed in (("exp_avg_sq", "adam", 3), ("other", "plain", 1)):
        model = make_ddp()
        optimizer = Variant(model.parameters(), moments)
        with logged(logging.INFO) as lines:
            compression = compress(model, optimizer=optimizer, exact_steps=3)
        said = "8 of 8 parameters .*, if Variant keeps them as exp_avg_sq"
        assert dist.get_rank() != 0 or any(re.search(said, line) for line in lines), lines
        sent = [0]
        with logged() as found:
            for step in range(5):
                train(model, [step], optimizer)
                sent.append(compression.stats().bytes_up)
        steps = [b - a for a, b in itertools.pairwise(sent)]
        assert max(steps[uncompressed:]) < min(steps[:uncompressed]) / 3, (moments, steps)
        assert compression.metric == metric
        assert [("has no exp_avg_sq" in line) for line in found] == [True] * (metric == "plain")
        check_same_everywhere(weights(model))


def foreign_adam(model: nn.Module) -> torch.optim.Optimizer:
    """Of PyTorch's name, and with v elsewhere in its state."""
    return type("AdamW", (Variant,), {"__module__": "others"})(model.parameters(), "state2")


@check
def an_optimizer_is_not_known_by_its_name_alone():
    model = make_ddp()
    optimizer = foreign_adam(model)
    compression = compress(model, optimizer=optimizer, exact_steps=0)
    assert compression.metric == "adam", "it may be one"
    with logged() as lines:
        train(model, range(3), optimizer)
    assert compression.metric == "plain"
    assert len(lines) == 1 and "the state of AdamW has no exp_avg_sq" in lines[0], lines
    model = make_ddp()
    optimizer = foreign_adam(model)
    compress(model, optimizer=optimizer, metric="plain")
    with logged() as lines:
        train(model, range(2), optimizer)
    assert lines == [], "that is what was asked for"


class Stateless(torch.optim.Optimizer):
    """As SGD without momentum, and of no class of PyTorch's."""

    def __init__(self, parameters):
        super().__init__(parameters, {})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.sub_(1e-3 * p.grad)


class Holder(torch.optim.Optimizer):
    """Holds other optimizers, and has no state of its own."""

    def __init__(self, optimizers):
        super().__init__([p for o in optimizers for p in groups_of([o])], {})
        self.optimizers = optimizers

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def sent_by_step(model, optimizer: Holder, steps: int) -> tuple[list[int], str]:
    """The bytes of each step, and the metric in the end."""
    compression = compress(model, optimizer=optimizer.optimizers, exact_steps=3)
    sent = [0]
    for step in range(steps):
        train(model, [step], optimizer)
        sent.append(compression.stats().bytes_up)
    return [b - a for a, b in itertools.pairwise(sent)], compression.metric


@check
def nobody_waits_for_an_optimizer_without_state_for_ever():
    for begun, metric in ((0, "plain"), (4, "adam")):
        model = make_ddp()
        parameters = list(model.parameters())
        others = [torch.optim.AdamW(parameters[:begun])] if begun else []
        with logged() as lines:
            optimizer = Holder([*others, Stateless(parameters[begun:])])
            steps, ended_as = sent_by_step(model, optimizer, 26)
        assert max(steps[23:]) < min(steps[:23]) / 3, steps
        assert ended_as == metric
        said = "Stateless has no state after 23 steps: what it moves is compressed as it is"
        assert [said in line for line in lines] == [True], lines
        check_same_everywhere(weights(model))


@check
def one_that_holds_others_stands_for_them():
    model = make_ddp()
    parameters = list(model.parameters())
    held = [torch.optim.AdamW(parameters[:4]), torch.optim.AdamW(parameters[4:])]
    optimizer = Holder([Holder(held)])
    with logged() as lines:
        steps, metric = sent_by_step(model, optimizer, 6)
    assert max(steps[3:]) < min(steps[:3]) / 3, steps
    assert metric == "adam" and lines == []
    check_same_everywhere(weights(model))


@check
def an_optimizer_of_copies_is_doubted():
    model = make_ddp()
    copies = [p.detach().clone().requires_grad_() for p in model.parameters()]
    for optimizer in (torch.optim.AdamW(copies), Variant(copies, "exp_avg_sq")):
        with logged() as lines:
            compression = compress(make_ddp(), optimizer=optimizer)
        assert compression.metric == "plain"
        said = "moves no parameter of the model, as one of copies in fp32 does not"
        assert [said in line for line in lines] == [True] * (dist.get_rank() == 0), lines
    with logged() as lines:
        compress(make_ddp(), optimizer=torch.optim.SGD(copies, lr=0.1))
    assert lines == [], "it has no second moments to lose"


@check
def a_group_that_is_added_has_its_metric():
    ends = []
    for is_added in (False, True):
        model = make_ddp(uneven_model())
        first, *rest = model.parameters()
        optimizer = torch.optim.AdamW([first], lr=1e-3)
        if not is_added:
            optimizer.add_param_group({"params": rest})
        compress(model, optimizer=optimizer, exact_steps=0)
        if is_added:
            optimizer.add_param_group({"params": rest})
        train(model, range(4), optimizer)
        ends.append(weights(model))
    assert torch.equal(*ends)


@check
def groups_accumulation_clipping_and_scaled_losses_go_with_it():
    model = make_ddp()
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "lr": 2e-3}, {"params": others, "weight_decay": 0.0}], lr=1e-3
    )
    compress(model, "dither:bits=3", optimizer=optimizer, exact_steps=2)
    for step in range(6):
        optimizer.zero_grad()
        with model.no_sync():
            loss_of(model, 2 * step).backward()
        (1024 * loss_of(model, 2 * step + 1)).backward()  # as GradScaler does
        for p in model.parameters():
            p.grad /= 1024
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        check_same_everywhere(weights(model))


@check
def several_optimizers_each_have_their_metric():
    model = make_ddp(uneven_model())
    first, *rest = model.parameters()
    adam, sgd = torch.optim.AdamW(rest, lr=1e-3), torch.optim.SGD([first], lr=0.1)
    with logged(logging.INFO) as lines:
        compression = compress(model, optimizer=[adam, sgd], exact_steps=0)
    assert compression.metric == "adam"
    assert dist.get_rank() != 0 or any("of 7 of 8 parameters" in line for line in lines), lines
    for step in range(3):
        adam.zero_grad()
        sgd.zero_grad()
        loss_of(model, step).backward()
        adam.step()
        sgd.step()
    check_same_everywhere(weights(model))


@check
def a_function_gives_any_metric():
    asked = set()

    def sizes(name: str, parameter: torch.Tensor) -> torch.Tensor | None:
        asked.add(name)
        return None if name.startswith("5") else parameter.detach().square() + 1e-8

    model = make_ddp(uneven_model())
    compression = compress(model, "dither:bits=2", metric=sizes)
    assert compression.metric == "adam"
    train(model, range(3))
    check_same_everywhere(weights(model))
    assert asked == {name for name, _ in model.module.named_parameters()}


@check
def memory_is_kept_in_the_metric_across_a_checkpoint():
    def start():
        model = make_ddp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        codec = "topk:ratio=0.1|ef"
        return model, optimizer, compress(model, codec, optimizer=optimizer, exact_steps=1)

    model, optimizer, compression = start()
    train(model, range(4), optimizer)
    states = [model.state_dict(), optimizer.state_dict(), compression.state_dict()]
    saved = copy.deepcopy(states)  # as from a file
    resumed, optimizer_again, again = start()
    for thing, state in zip((resumed, optimizer_again, again), saved, strict=True):
        thing.load_state_dict(state)
    train(model, range(4, 8), optimizer)
    train(resumed, range(4, 8), optimizer_again)
    assert relative_error(weights(resumed), weights(model)) < 1e-5
    check_same_everywhere(weights(model))


@check
def workers_whose_moments_differ_are_told():
    model = make_ddp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compress(model, optimizer=optimizer, exact_steps=1)
    train(model, range(2), optimizer)
    if dist.get_rank() == 1:
        matrix = next(model.parameters())
        optimizer.state[matrix]["exp_avg_sq"][0, 0] *= 1.01
    with raises(RuntimeError, "in another metric than worker .* optimisers differs"):
        gradients_after(model, 5)


@check
def join_is_refused_at_once():
    model = make_ddp()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    compress(model, optimizer=optimizer)
    with raises(ValueError, r"within join\(\), .* metric='plain'"), model.join():
        train(model, range(1), optimizer)
    again = make_ddp(model.module)
    compress(again, optimizer=optimizer, metric="plain")
    with again.join():
        train(again, range(1 + dist.get_rank()), optimizer)
    check_same_everywhere(weights(again))


@check
def what_cannot_be_a_metric_is_refused():
    zero = make_ddp()
    sharded = ZeroRedundancyOptimizer(zero.parameters(), torch.optim.AdamW, lr=1e-3)
    with raises(ValueError, "on one worker only.*metric='plain'"):
        compress(zero, optimizer=sharded)
    with raises(ValueError, "metric must be 'auto', 'plain' or a function"):
        compress(make_ddp(), metric="adam")
    with raises(ValueError, "exact_steps must be a number from 0 on, not -1"):
        compress(make_ddp(), exact_steps=-1)
    with raises(ValueError, "is a str, not one of torch.optim"):
        compress(make_ddp(), optimizer="adamw")
    with raises(RuntimeError, "metric"):
        compress(make_ddp(), metric="plain" if dist.get_rank() == 1 else lambda n, p: None)
    model = make_ddp()
    compress(model, metric=lambda name, p: torch.ones(3))
    with raises(ValueError, r"'0.weight' have the shape \(3,\)"):
        gradients_after(model, 0)
