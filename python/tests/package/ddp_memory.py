"""What compress() remembers of a step, and when a step is none: see ddp_checks.py."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from checking import check, compress, logged, raises
from ddp_training import (
    Branches,
    batch,
    check_same_everywhere,
    loss_of,
    make_ddp,
    make_model,
    relative_error,
    train,
    weights,
)
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import elastiquant


def memory_of(compression: elastiquant.Compression, parameter: str) -> torch.Tensor:
    return memory_in(compression.state_dict(), parameter)


def memory_in(state: dict[str, Any], parameter: str) -> torch.Tensor:
    return torch.cat([v for k, v in state.items() if "memory/" in k and k.endswith(parameter)])


def step_of_branches(model: DistributedDataParallel, step: int, second: bool) -> None:
    """A forward and a backward, which uses one of the branches."""
    model.zero_grad()
    inputs, classes = batch(step)
    nn.functional.cross_entropy(model(inputs, second), classes).backward()


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
            # From step 5 on the first worker goes another way: then all are used.
            second = (step % 2 == 1) != (step > 4 and dist.get_rank() == 0)
            before = {n: memory_of(compression, n) for n in compression.codecs if "weight" in n}
            step_of_branches(model, step, second)
            for name, was in before.items():
                unused = name == "never.weight" or (
                    step < 5 and name == ("first.weight" if second else "second.weight")
                )
                same = torch.equal(memory_of(compression, name), was)
                not_mine = name == ("first.weight" if second else "second.weight")
                assert same == unused or (not_mine and not unused), (spec, step, name)
        assert memory_of(compression, "never.weight").count_nonzero() == 0
        assert memory_of(compression, "second.weight").count_nonzero() > 0


@check
def what_ddp_discards_is_not_forgotten_where_statistics_begin_anew():
    ends = []
    for resets in (False, True):
        model = make_ddp(Branches(), find_unused_parameters=True)
        compression = compress(model, "topk:ratio=0.1|ef")
        for step in range(6):
            step_of_branches(model, step, second=step % 2 == 1)
            if resets:
                compression.reset_stats()
        assert compression.stats().steps == (0 if resets else 6)
        ends.append(compression.state_dict())
    names = [name for name in compression.codecs if "weight" in name]
    for name in names:
        memories = [memory_in(end, name) for end in ends]
        assert torch.equal(*memories), name
    assert memory_in(ends[0], "first.weight").count_nonzero() > 0


@check
def a_state_that_is_loaded_replaces_what_ddp_would_have_discarded():
    model = make_ddp(Branches(), find_unused_parameters=True)
    compression = compress(model, "topk:ratio=0.1|ef")
    for step in range(4):
        step_of_branches(model, step, second=False)
    saved = compression.state_dict()
    step_of_branches(model, 4, second=False)
    step_of_branches(model, 5, second=True)  # DDP discards what this sends of the first branch
    compression.load_state_dict(saved)
    model(batch(6)[0], True)  # before which it is restored, if that is still to be done
    for name in ("first.weight", "second.weight"):
        assert torch.equal(memory_of(compression, name), memory_in(saved, name)), name


@check
def a_worker_without_data_does_not_forget_what_ddp_discards():
    """Within join() it makes no forward, before which others hear of what was discarded."""
    model = make_ddp(Branches(), find_unused_parameters=True)
    compression = compress(model, "topk:ratio=0.1|ef")
    for step in range(4):
        step_of_branches(model, step, second=False)
    before = memory_of(compression, "first.weight")
    with model.join():
        for step in range(4, 5 + 3 * dist.get_rank()):
            step_of_branches(model, step, second=True)
    assert before.count_nonzero() > 0
    assert torch.equal(memory_of(compression, "first.weight"), before)


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
def an_evaluation_compares_nothing():
    model = make_ddp()
    compression = compress(model)
    if dist.get_rank() == 0:
        with torch.no_grad():
            model.eval()
            loss_of(model, 0)
            model.train()
        assert not compression._same_round.is_told
    dist.barrier()
    train(model, range(2))
    assert compression._same_round.is_checked
