"""What DiLoCo and LocalSGD do on several workers: see diloco_test.py."""

from __future__ import annotations

import dataclasses
import math
import re
import tempfile
import time
from pathlib import Path

import torch
import torch.distributed as dist
from checking import check, check_scaler_is_warned_of, logged, main, raises
from diloco_training import (
    SCHEDULES,
    anchor_of,
    check_same_everywhere,
    make_inner,
    make_model,
    start,
    train,
    weights,
)
from torch import nn

import elastiquant
from elastiquant._record import intervals, read_records


@check
def leaves_the_same_bits_on_all():
    for codec in ("dither:bits=1", "elastic:bits=2|ef"):
        for options in SCHEDULES:
            model, inner, rounds = start(every=4, codec=codec, exact="none", **options)
            train(model, inner, range(13))
            check_same_everywhere(anchor_of(rounds))
            rounds.finish()
            check_same_everywhere(weights(model))
            assert rounds.stats().bytes_up > 0 and rounds.layers()
            rounds.close()


@check
def starts_alike_whatever_the_strides():
    rank = dist.get_rank()
    model = nn.Linear(20, 4)
    model.weight = nn.Parameter(torch.randn(4, 40, generator=torch.manual_seed(rank))[:, ::2])
    model.register_buffer("wide", torch.full((1,), float(rank)).expand(300))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    rounds = elastiquant.LocalSGD(model, inner, every=2, codec="fp32")
    check_same_everywhere(weights(model))
    assert float(model.wide[299]) == 0
    model.wide[:1].fill_(rank)
    train(model, inner, range(4))
    rounds.finish()
    check_same_everywhere(weights(model))
    check_same_everywhere(model.wide[:1].clone())
    rounds.close()


@check
def does_not_depend_on_the_default_dtype():
    torch.set_default_dtype(torch.bfloat16)
    try:
        model = nn.Linear(20, 4, dtype=torch.float32)
        inner = torch.optim.SGD(model.parameters(), lr=0.1)
        rounds = elastiquant.LocalSGD(model, inner, every=2, codec="fp32")
        for _ in range(2):
            inner.zero_grad()
            model(torch.ones(2, 20, dtype=torch.float32)).sum().backward()
            inner.step()
        assert rounds.rounds == 1
        rounds.close()
    finally:
        torch.set_default_dtype(torch.float32)


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
def a_late_mean_of_batch_norm_leaves_what_was_seen_since():
    """Worker r sends r and has 10 + r by the time that the mean arrives."""
    rank, mean = dist.get_rank(), (dist.get_world_size() - 1) / 2
    for options in ({"eager": True}, {"delay": 1, "mix": 0.5}):
        ends = []
        for is_resumed in (False, True):
            model = nn.Sequential(nn.Linear(20, 4), nn.BatchNorm1d(4))
            inner = torch.optim.SGD(model.parameters(), lr=0.1)
            rounds = elastiquant.DiLoCo(model, inner, every=2, codec="fp32", **options)
            norm = model[1].eval()
            norm.running_mean.fill_(rank)
            train(model, inner, range(2))
            if is_resumed:  # while the mean is under way
                saved = rounds.state_dict()
                rounds.close()
                rounds = elastiquant.DiLoCo(model, inner, every=2, codec="fp32", **options)
                norm.running_mean.fill_(rank)
                rounds.load_state_dict(saved)
            norm.running_mean.fill_(10 + rank)
            train(model, inner, range(2, 4))
            torch.testing.assert_close(norm.running_mean, torch.full((4,), 10 + mean))
            norm.running_mean.fill_(20 + rank)
            train(model, inner, range(4, 5))
            rounds.finish()
            ends.append(torch.cat([norm.running_mean, norm.running_var]))
            check_same_everywhere(ends[-1])
            torch.testing.assert_close(norm.running_mean, torch.full((4,), 20 + mean))
            rounds.close()
        assert torch.equal(*ends), options


class Various(nn.Module):
    """Buffers of each kind beside a parameter."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(20))
        self.register_buffer("plain", torch.zeros(3))
        self.register_buffer("mask", torch.full((2, 2), -math.inf).triu(1))
        self.register_buffer("cache", torch.zeros(2), persistent=False)
        self.register_buffer("running_mean", torch.zeros(2))
        self.register_buffer("running_var", torch.zeros(2, 2))  # is of no norm, by its shape

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return inputs * self.weight


@check
def averages_the_buffers_that_a_module_has_now():
    rank, mean = dist.get_rank(), (dist.get_world_size() - 1) / 2
    model = Various()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    rounds = elastiquant.LocalSGD(model, inner, every=2, codec="fp32")
    model.plain = torch.full((3,), float(rank))  # other tensors than at the start
    model.running_mean, model.running_var = model.running_mean + rank, model.running_var + rank
    model.cache = torch.full((4 + rank,), 9.0)
    train(model, inner, range(2))
    assert rounds.rounds == 1 and not rounds.stats().skipped
    for name in ("plain", "running_mean", "running_var"):
        buffer = getattr(model, name)
        torch.testing.assert_close(buffer, torch.full_like(buffer, mean))
    assert torch.equal(model.mask, Various().mask)
    assert torch.equal(model.cache, torch.full((4 + rank,), 9.0))
    model.plain = torch.zeros(5)
    with raises(RuntimeError, "the buffer 'plain' had 3 values when .* has 5 now"):
        train(model, inner, range(2, 4))
    rounds.close()


@check
def names_the_buffer_that_has_lost_a_round():
    model = nn.Sequential(nn.Linear(20, 4), nn.BatchNorm1d(4))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    rounds = elastiquant.DiLoCo(model, inner, every=2, codec="fp32")
    train(model, inner, range(1))
    if dist.get_rank() == 1:
        model[1].running_mean[2] = math.inf
    with logged() as lines:
        train(model, inner, range(1, 2))
    (line,) = lines
    assert "worker 1: infinity in the buffer '1.running_mean' at 2" in line, line
    assert "buffer '1.running_mean'" in rounds.summary(), rounds.summary()
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
def gives_up_where_every_round_is_lost():
    model, inner, rounds = start(every=1, codec="fp32")
    with logged(), raises(RuntimeError, "gave up after 10 in a row: rounds were lost"):
        for step in range(20):
            if dist.get_rank() == 1:
                with torch.no_grad():
                    next(model.parameters())[0, 0] = float("nan")
            train(model, inner, range(step, step + 1))
    assert rounds.rounds == 10, rounds.rounds
    rounds.close()


@check
def records_what_a_report_draws():
    for kind in (elastiquant.DiLoCo, elastiquant.LocalSGD):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "run.jsonl")
            model, inner, rounds = start(kind, every=4, exact="none", fragments=2)
            for step in range(1, 13):
                train(model, inner, [step])
                if step % 3 == 0:  # so that a round is between some records only
                    rounds.record(path, step)
            recorded = read_records(path)
            assert [r.step for r in recorded] == [3, 6, 9, 12]
            assert [r.stats.steps for r in recorded] == [1, 3, 4, 6]  # means of a fragment
            # The end of the last message may still be on its way when a round is over.
            now = rounds.stats()
            assert 0 < recorded[-1].stats.wire_seconds <= now.wire_seconds
            now = dataclasses.replace(now, wire_seconds=recorded[-1].stats.wire_seconds)
            assert recorded[-1].stats == now
            assert recorded[-1].layers == tuple(rounds.layers())
            names = [layer.name for layer in recorded[-1].layers]
            assert set(names) == {*rounds.codecs, ""}, names
            # Times are those of the script's steps, of which there are more than means.
            waited = sum(3 * interval.wait for interval in intervals(recorded))
            first, last = recorded[0].stats, recorded[-1].stats
            assert math.isclose(waited, last.wait_seconds - first.wait_seconds)
            made = elastiquant.report(path)
            assert "| steps | 6, and 0 skipped |" in made.table
            assert f"{last.bytes_up / 1e6:.3g} MB" in made.table
            assert len(made.files) == 7
            assert all(file.stat().st_size > 300 for file in made.files)
            rounds.close()


@check
def can_be_recorded_while_a_round_is_under_way():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.jsonl")
        model, inner, rounds = start(every=4, exact="none", eager=True)
        train(model, inner, range(4))
        rounds.state_dict()  # waits for the mean
        rounds.reset_stats()
        if dist.get_rank() > 0:  # which cannot have a mean without worker 0
            train(model, inner, range(4, 8))
            while rounds.stats().bytes_up == 0:
                time.sleep(0.01)
        rounds.record(path, 8)
        stats = rounds.stats()
        assert (stats.steps, stats.ratio, stats.bits_per_coordinate) == (0, 1, 32), stats
        dist.barrier()
        if dist.get_rank() == 0:
            train(model, inner, range(4, 8))
        rounds.finish()
        rounds.record(path, 8)
        assert read_records(path)[1].stats.ratio > 4
        rounds.close()


@check
def warns_of_a_grad_scaler():
    def train_and_close():
        model, inner, rounds = start(every=4)
        train(model, inner, range(5))
        rounds.close()

    check_scaler_is_warned_of(train_and_close)


@check
def refuses_what_cannot_be():
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    for options, words in (
        ({"every": 0}, "at least 1"),
        ({"mix": 1.0}, "mix is 1.0"),
        ({"weight": 0.0}, "weight is 0.0"),
        ({"fragments": 0}, "fragments is 0; with this model it can be from 1 to 4"),
        ({"fragments": 5}, "fragments is 5; with this model it can be from 1 to 4"),
        ({"every": 4, "fragments": 2, "delay": 3}, "delay is 3"),
        ({"every": 4, "delay": 4}, "overwrites all that this round has learnt: use eager"),
        ({"eager": True, "mix": 0.5}, "eager needs"),
        ({"outer": inner}, "another optimiser"),
        ({"codec": "nonsense"}, "nonsense"),
        ({"on_loss": "restart"}, "valid are: 'stop', 'go-on'"),
        ({"on_loss": "go-on", "delay": 1}, "needs delay=0"),
        ({"on_loss": "go-on", "codec": "powersgd:rank=2"}, "alike on all workers"),
        ({"codec": "dgc"}, "has momentum of its own, and DiLoCo"),
        ({"codec": "dither:bits=2|dgc"}, "momentum of its own"),
        ({"codec": "efsign|ef"}, "the learning rate in its memory.* lr=outside"),
        ({"codec": "alq"}, "fits its levels as training goes on"),
        ({"codec": "amq|ef"}, "fits its levels as training goes on"),
        ({"down": "alq"}, "'alq.* fits its levels as training goes on, and DiLoCo"),
        ({"down": "dgc"}, "'dgc.* has momentum of its own, and DiLoCo"),
    ):
        with raises(ValueError, words):
            elastiquant.DiLoCo(model, inner, **options)
    with raises(ValueError, "'alq.* and LocalSGD does not let it"):
        elastiquant.LocalSGD(model, inner, codec="alq")
    earlier = torch.optim.SGD(make_model().parameters(), lr=0.1)
    for kind in (elastiquant.DiLoCo, elastiquant.LocalSGD):
        with raises(
            ValueError, "inner trains no parameter of the model: make it of this model"
        ):
            kind(model, earlier)
    with raises(RuntimeError, "call DiLoCo with different arguments: every is"):
        elastiquant.DiLoCo(model, inner, every=4 + dist.get_rank())
    outer = torch.optim.SGD(model.parameters(), lr=0.7 if dist.get_rank() == 0 else 0.5)
    with raises(RuntimeError, "the outer optimiser is .*'lr': 0.5.* and .*'lr': 0.7"):
        elastiquant.DiLoCo(model, inner, outer)
    last = dist.get_rank() == dist.get_world_size() - 1
    why = "mix is" if last else "worker . cannot call DiLoCo: ValueError: mix is"
    with raises(ValueError if last else RuntimeError, why):
        elastiquant.DiLoCo(model, inner, mix=1.0 if last else 0.0)


@check
def refuses_what_differs_beside_the_trained_parameters():
    rank = dist.get_rank()
    model = nn.Sequential(nn.Linear(20, 4), nn.Linear(4 + rank, 4).requires_grad_(False))
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    words = "frozen parameter '1.weight' is (torch.float32, (4, 5)) and (torch.float32, (4, 4))"
    with raises(RuntimeError, re.escape(words)):
        elastiquant.Gossip(inner, model, graph="ring")
    model = nn.Linear(20, 4)
    model.register_buffer("seen", torch.zeros(2, dtype=torch.int64 if rank else torch.float32))
    words = "the buffer 'seen' is (torch.int64, (2,)) and (torch.float32, (2,))"
    with raises(RuntimeError, re.escape(words)):
        elastiquant.DiLoCo(model, make_inner(model))


@check
def refuses_arguments_of_other_types():
    model = make_model()
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    for options, words in (
        ({"every": 2.5}, "every is 2.5; it must be a whole number"),
        ({"every": 2.5, "eager": True}, "every is 2.5; it must be a whole number"),
        ({"every": None}, "every is None; it must be a whole number"),
        ({"fragments": "2"}, "fragments is '2'; it must be a whole number"),
        ({"delay": 1.0}, "delay is 1.0; it must be a whole number"),
        ({"threads": True}, "threads is True; it must be a whole number"),
        ({"bucket_kib": 1.5}, "bucket_kib is 1.5; it must be a whole number"),
        ({"mix": "half"}, "mix is 'half'; it must be a number"),
        ({"weight": None}, "weight is None; it must be a number"),
        ({"timeout": "20s"}, "timeout is '20s'; it must be a number"),
        ({"codec": None}, "codec is None; it must be a string"),
        ({"down": 2}, "down is 2; it must be a string, or None"),
        ({"link": 3}, "link is 3; it must be a string, or None"),
        ({"eager": "yes"}, "eager is 'yes'; it must be True or False"),
        ({"outer": 0.7}, "outer is a float; it must be a torch.optim.Optimizer, or None"),
    ):
        with raises(TypeError, words):
            elastiquant.DiLoCo(model, inner, **options)
    for arguments, words in (
        ((inner, model), r"have changed places: call LocalSGD\(model, inner, ...\)"),
        ((None, inner), "model is a NoneType; it must be a torch.nn.Module"),
        ((model, None), "inner is a NoneType; it must be a torch.optim.Optimizer"),
    ):
        with raises(TypeError, words):
            elastiquant.LocalSGD(*arguments)
    last = dist.get_rank() == dist.get_world_size() - 1
    why = "inner is a" if last else "worker . cannot call DiLoCo: TypeError: inner is a"
    with raises(TypeError if last else RuntimeError, why):
        elastiquant.DiLoCo(model, None if last else inner)


@check
def follows_no_optimiser_that_is_followed():
    model, inner, rounds = start(every=2)
    with raises(ValueError, r"a DiLoCo follows this optimizer already: close\(\) it before"):
        elastiquant.LocalSGD(model, inner, every=2)
    with raises(ValueError, "a DiLoCo follows this optimizer already"):
        elastiquant.Gossip(inner, model)
    train(model, inner, range(2))
    assert rounds.rounds == 1  # it goes on as if nothing had been
    rounds.close()
    gossip = elastiquant.Gossip(inner, model, graph="ring", codec="fp32")
    with raises(ValueError, "a Gossip follows this optimizer already"):
        elastiquant.DiLoCo(model, inner)
    gossip.finish()
    elastiquant.DiLoCo(model, inner).close()
    gossip.close()


@check
def refuses_parameters_that_are_trained_later():
    words = "the parameter '4.bias' is trained now, and was not when this {} was made: workers"
    for kind in (elastiquant.DiLoCo, elastiquant.Gossip):
        model = make_model()
        model[4].bias.requires_grad_(False)
        inner = make_inner(model)
        if kind is elastiquant.DiLoCo:
            rounds = kind(model, inner, every=2, codec="fp32")
        else:
            rounds = kind(inner, model, graph="ring", codec="fp32")
        train(model, inner, range(2))
        model[0].bias.requires_grad_(False)  # is sent on, with the values that it has
        train(model, inner, range(2, 4))
        model[4].bias.requires_grad_(True)
        with raises(RuntimeError, words.format(kind.__name__)):
            train(model, inner, range(4, 6))
        rounds.close()
        dist.barrier()


class Wrapped(torch.optim.Optimizer):
    """As Accelerate wraps one: it has no hooks of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer):
        self.optimizer = optimizer

    @property
    def param_groups(self):
        return self.optimizer.param_groups

    def zero_grad(self):
        self.optimizer.zero_grad()

    def step(self):
        self.optimizer.step()


@check
def follows_an_optimiser_that_is_wrapped():
    model = make_model()
    inner = Wrapped(make_inner(model))
    outer = torch.optim.SGD(model.parameters(), lr=1.0)
    with elastiquant.DiLoCo(model, inner, Wrapped(outer), every=2) as rounds:
        with raises(ValueError, "a DiLoCo follows this optimizer already"):
            elastiquant.Gossip(inner.optimizer, model)
        train(model, inner, range(2))
        assert (rounds.step, rounds.rounds) == (2, 1)
    with raises(ValueError, "outer must be another optimiser"):
        elastiquant.DiLoCo(model, inner, inner.optimizer)
    with elastiquant.Gossip(inner, model, graph="ring", codec="fp32") as gossip:
        train(model, inner, range(2))
        assert gossip.rounds == 2


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
