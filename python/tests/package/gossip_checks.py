"""Checks of elastiquant.Gossip in a group of workers, for gossip_test.py."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from checking import check, logged, main, raises
from torch import nn

import elastiquant


def model_of(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


class Job:
    """A worker that trains on data of its own; all see other classes."""

    def __init__(self, rate: float = 0.05, **options):
        self.rank = dist.get_rank()
        self.model = model_of(self.rank)  # which are made alike
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=rate, momentum=0.9)
        options = {"timeout": 30.0} | options
        self.gossip = elastiquant.Gossip(self.optimizer, self.model, **options)

    def step(self, number: int) -> float:
        random = torch.Generator().manual_seed(1000 * number + self.rank)
        inputs = torch.randn(16, 8, generator=random)
        targets = (inputs[:, : 1 + self.rank % 4].sum(1) > 0).long() + self.rank % 2
        loss = nn.functional.cross_entropy(self.model(inputs), targets)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return float(loss.detach())

    def steps(self, first: int, last: int) -> None:
        for number in range(first, last):
            self.step(number)

    def weights(self) -> torch.Tensor:
        return torch.cat([p.detach().flatten() for p in self.model.parameters()])


def everyones(values: torch.Tensor) -> list[torch.Tensor]:
    found = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(found, values)
    return found


CASES = (
    {"algorithm": "dpsgd", "codec": "fp32", "graph": "ring"},
    {"algorithm": "choco", "codec": "dither:bits=2", "graph": "one-peer-exponential"},
    {"algorithm": "choco", "codec": "dither:bits=2", "graph": "ring", "delay": 1},
    {"algorithm": "gradient-tracking", "codec": "fp32", "graph": "complete"},
    {"algorithm": "noloco", "codec": "fp32", "graph": "random-pairs", "every": 4},
    {"algorithm": "ad-psgd", "codec": "fp32", "graph": "star"},
)


@check
def workers_start_alike_and_come_together() -> None:
    for case in CASES:
        job = Job(**case)
        start = everyones(job.weights())
        assert all(torch.equal(start[0], other) for other in start), case
        losses = [job.step(n) for n in range(40)]
        assert all(map(torch.isfinite, map(torch.tensor, losses)))
        apart = job.gossip.consensus_distance()
        assert 0 <= apart < 5, (case, apart)
        assert job.gossip.rounds == 40 // case.get("every", 1)
        assert job.gossip.stats().bytes_up > 0
        assert set(job.gossip.neighbours) <= set(range(dist.get_world_size())) - {job.rank}
        job.gossip.finish()
        ends = everyones(job.weights())
        assert all(torch.allclose(ends[0], other, atol=1e-6) for other in ends), case
        buffers = everyones(job.model[1].running_mean)
        assert all(torch.allclose(buffers[0], other) for other in buffers)
        job.step(99)  # is this worker's own
        job.gossip.close()


@check
def a_complete_graph_averages_as_an_all_reduce_does() -> None:
    job = Job(algorithm="choco", codec="fp32", graph="complete")
    job.steps(0, 5)
    ends = everyones(job.weights())
    assert all(torch.allclose(ends[0], other, atol=1e-6) for other in ends)
    job.gossip.close()


@check
def few_bits_are_few_bytes() -> None:
    sent = {}
    for codec in ("fp32", "dither:bits=1"):
        job = Job(algorithm="dpsgd", codec=codec, graph="ring", step=0.5)
        job.steps(0, 20)
        sent[codec] = job.gossip.stats().bytes_up
        assert job.gossip.gossip_step == 0.5
        assert (job.gossip.stats().nmse > 0) == (codec != "fp32")
        job.gossip.close()
    assert sent["dither:bits=1"] < sent["fp32"] / 2  # of so small a model much is headers


@check
def goes_on_exactly_from_what_was_saved() -> None:
    for case in CASES:
        if case["algorithm"] == "ad-psgd":
            continue
        whole = Job(**case)
        whole.steps(0, 12)
        first = Job(**case)
        first.steps(0, 8)
        parts = ("model", "optimizer", "gossip")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "state.pt")
            torch.save({part: getattr(first, part).state_dict() for part in parts}, path)
            saved = torch.load(path)
        then = Job(**case)
        for part in parts:
            getattr(then, part).load_state_dict(saved[part])
        then.steps(8, 12)
        assert torch.equal(then.weights(), whole.weights()), case
        for job in (whole, first, then):
            job.gossip.close()


@check
def replicas_are_the_same_on_both_ends_of_each_edge() -> None:
    for case in CASES:
        job = Job(**case)
        job.gossip.check_replicas()
        for first in range(0, 9, 3):  # also where every=4 has a round under way
            job.steps(first, first + 3)
            job.gossip.check_replicas()
        job.gossip.finish()
        job.gossip.check_replicas()
        job.gossip.close()


def flip_a_bit_of_a_replica(state: dict[str, Any]) -> None:
    """Of what the first one that this worker takes from has shown it."""
    replicas = f"rank{dist.get_rank()}/memory/gossip/in/"
    values = next(state[key] for key in sorted(state) if key.startswith(replicas))
    values.view(torch.int32)[0] ^= 1


@check
def replicas_that_differ_by_a_bit_are_named_on_all_workers() -> None:
    last = dist.get_world_size() - 1
    for case in (
        {"algorithm": "choco", "codec": "dither:bits=2", "graph": "complete"},
        {"algorithm": "choco", "codec": "dither:bits=2", "graph": "complete", "delay": 1},
        {"algorithm": "gradient-tracking", "codec": "dither:bits=2", "graph": "complete"},
        {"algorithm": "ad-psgd", "codec": "dither:bits=2", "graph": "star"},
    ):
        job = Job(**case)
        job.steps(0, 3)
        state = job.gossip.state_dict()
        if job.rank == last:
            flip_a_bit_of_a_replica(state)
        job.gossip.load_state_dict(state)
        words = f"^after step 3 the copies on edge.s. 0 > {last} differ: what the second"
        with raises(RuntimeError, words):
            job.gossip.check_replicas()
        job.gossip.close()


@check
def replicas_are_not_compared_where_there_are_none() -> None:
    job = Job(algorithm="dpsgd", codec="fp32", graph="one-peer-exponential")
    job.steps(0, 4)
    assert job.gossip.check_replicas() is None
    job.gossip.close()


def saved_by(steps: int = 2, **options) -> dict[str, Any]:
    job = Job(**options)
    job.steps(0, steps)
    state = job.gossip.state_dict()
    job.gossip.close()
    return state


def check_all_are_told(job: Job, train: Callable[[], Any], words: str) -> None:
    """Every worker gets an error, be it its own or another's that it is told of."""
    with raises(RuntimeError, words):
        train()
    job.gossip.close()
    dist.barrier()


def workers_but(one: int) -> str:
    """All others, as messages name them."""
    others = [str(worker) for worker in range(dist.get_world_size()) if worker != one]
    return f"worker{'s' if len(others) > 1 else ''} {', '.join(others)}"


@check
def workers_that_go_on_from_different_rounds_are_told() -> None:
    for options, early, late, words in (
        ({}, 4, 8, r"worker 0 from round 4 \(after 4 steps\), {} from round 8"),
        ({"algorithm": "dpsgd", "codec": "fp32"}, 4, 5, "worker 0 from round 4 .*, {} from "),
        ({"delay": 1}, 3, 4, "worker 0 from round 3 .*, {} from round 4"),
        ({"every": 4}, 5, 6, r"worker 0 from round 1 \(after 5 steps\), {} .* \(after 6"),
        ({"graph": "one-peer-exponential"}, 0, 2, "worker 0 from round 0 .*, {} from round 2"),
        ({"on_loss": "go-on"}, 4, 8, "worker 0 from round 4 .*, {} from round 8"),
    ):
        options = {"algorithm": "choco", "graph": "ring", "step": 0.5} | options
        states = [saved_by(steps, **options) for steps in (early, late)]
        job = Job(**options)
        job.gossip.load_state_dict(states[0 if job.rank == 0 else 1])
        words = "workers go on from different rounds, " + words.format(workers_but(0))
        check_all_are_told(job, lambda job=job: job.steps(0, 4), words)


@check
def a_worker_that_alone_has_loaded_a_state_is_told() -> None:
    last = dist.get_world_size() - 1
    for options, loaded, not_loaded in (
        ({"algorithm": "choco", "graph": "ring", "step": 0.5}, "round 2 .*", "round 0 .*"),
        ({"algorithm": "ad-psgd", "graph": "star"}, "a state", "the beginning"),
    ):
        for which, other in ((0, last), (last, 0)):
            state = saved_by(**options)
            job = Job(**options)
            if job.rank == which:
                job.gossip.load_state_dict(state)
            place = {which: loaded, other: not_loaded}
            words = f"worker.* 0.* from {place[0]}, worker.* {last} from {place[last]}"
            meet = job.gossip.consensus_distance  # before any step
            check_all_are_told(job, meet if which else lambda job=job: job.steps(0, 4), words)


@check
def a_worker_that_alone_loads_between_two_steps_is_told() -> None:
    last = dist.get_world_size() - 1
    job = Job(algorithm="choco", graph="ring", codec="fp32")
    job.steps(0, 3)
    state = copy.deepcopy(job.gossip.state_dict())
    job.steps(3, 5)
    if job.rank == last:

        def train() -> None:
            job.gossip.load_state_dict(state)
    else:

        def train() -> None:
            job.steps(5, 8)

    words = f"worker {last} has loaded a state after fewer rounds than this one|goes on, where"
    check_all_are_told(job, train, words + "|closed its gossip")


@check
def a_worker_that_alone_loads_of_the_same_round_is_told_when_all_meet() -> None:
    last = dist.get_world_size() - 1
    job = Job(algorithm="choco", graph="ring", codec="fp32")
    job.steps(0, 3)
    state = job.gossip.state_dict()
    if job.rank == last:
        job.gossip.load_state_dict(state)
    job.steps(3, 5)
    words = f"{workers_but(last)} loaded no state when the others did, .* from round 3 .after 3"

    def train() -> None:
        job.gossip.consensus_distance()  # where it finds out
        job.steps(5, 9)

    check_all_are_told(job, train, words)


@check
def workers_that_wait_for_nobody_go_on_from_different_steps() -> None:
    like = {"algorithm": "ad-psgd", "codec": "fp32", "graph": "star"}
    first = Job(**like)
    first.steps(0, 3 + 2 * first.rank)
    state = first.gossip.state_dict()
    first.gossip.close()
    job = Job(**like)
    job.gossip.load_state_dict(state)
    job.steps(0, 6 - job.rank)
    job.gossip.finish()
    ends = everyones(job.weights())
    assert all(torch.allclose(ends[0], other, atol=1e-6) for other in ends)
    job.gossip.close()


@check
def workers_go_back_together() -> None:
    for case in CASES:
        job = Job(**case)
        job.steps(0, 4)
        parts = (job.model, job.optimizer, job.gossip)
        saved = [copy.deepcopy(part.state_dict()) for part in parts]
        ends = []
        for _ in range(2):
            for part, state in zip(parts, saved, strict=True):
                part.load_state_dict(copy.deepcopy(state))
            job.steps(4, 9)  # which sends ahead what nobody takes any more
            ends.append(job.weights())
        assert case["algorithm"] == "ad-psgd" or torch.equal(*ends), case
        job.gossip.finish()
        job.gossip.close()


def write_edges(path: str, weight: float, backwards: bool = False) -> str:
    """Worker 0 writes a graph in which all average with all, and all know that it is there."""
    workers = range(dist.get_world_size())
    if dist.get_rank() == 0:
        edges = [(a, b) for a in workers for b in workers if a < b]
        if backwards:
            edges = [(b, a) for a, b in reversed(edges)]
        Path(path).write_text("".join(f"{a} {b} {weight}\n" for a, b in edges))
    dist.barrier()
    return path


@check
def a_state_of_something_else_is_refused() -> None:
    like = {"algorithm": "choco", "codec": "dither:bits=2", "graph": "ring", "step": 0.5}
    state = saved_by(**like)
    for options, words in (
        ({"algorithm": "d2", "graph": "complete"}, "another algorithm: 'choco', .* has 'd2'"),
        ({"algorithm": "dcd", "step": None}, "another algorithm: 'choco', .* has 'dcd'"),
        ({"graph": "complete"}, "another graph: 'ring', and this Gossip has 'complete'"),
        ({"step": 0.25}, "another gossip step: 0.5, .* has 0.25. .*, and step=0.5"),
        ({"codec": "dither:bits=3"}, "codec"),
        ({"delay": 1}, "another delay: 0, and this Gossip has 1"),
    ):
        other = Job(**like | options)
        before = other.weights()
        with raises(elastiquant.CorruptFrameError, words):
            other.gossip.load_state_dict(state)
        assert torch.equal(before, other.weights())
        other.steps(0, 2)
        other.gossip.close()


@check
def a_damaged_state_is_refused() -> None:
    like = {"algorithm": "choco", "codec": "dither:bits=2", "graph": "ring", "step": 0.5}
    state, own = saved_by(**like), f"rank{dist.get_rank()}/own/"
    other = Job(**like)
    settings = json.loads(state[f"{own}settings"]) | {"set of neighbours": [7]}
    for values, words in (
        ({"settings": "{"}, "own/settings or own/steps of the state is damaged"),
        ({"steps": "two"}, "own/settings or own/steps of the state is damaged"),
        ({"settings": json.dumps(settings)}, r"another set of neighbours: \[7\]"),
        ({"more": "of it"}, "more.* does not know"),
    ):
        with raises(elastiquant.CorruptFrameError, words):
            other.gossip.load_state_dict(state | {own + k: v for k, v in values.items()})
    for key in ("steps", "settings"):
        less = {k: v for k, v in state.items() if k != own + key}
        with raises(elastiquant.CorruptFrameError, f"lacks {own}{key}: it may be of an older"):
            other.gossip.load_state_dict(less)
    other.gossip.load_state_dict(state)  # nothing has changed by what was refused
    other.gossip.close()


@check
def a_file_of_edges_is_known_by_its_edges() -> None:
    like = {"algorithm": "dpsgd", "codec": "fp32"}
    share = 1 / dist.get_world_size()
    with tempfile.TemporaryDirectory() as own:
        folder = [own]
        dist.broadcast_object_list(folder)
        one, moved = f"{folder[0]}/one.txt", f"{folder[0]}/moved.txt"
        state = saved_by(graph=write_edges(one, share), **like)
        same = Job(graph=write_edges(moved, share, backwards=True), **like)
        same.gossip.load_state_dict(state)
        same.gossip.close()
        other = Job(graph=write_edges(one, share / 2), **like)
        words = "another graph: 'a file of edges with the digest"
        with raises(elastiquant.CorruptFrameError, words):
            other.gossip.load_state_dict(state)
        other.gossip.close()
        dist.barrier()


@check
def a_step_to_nan_is_taken_back_here_alone() -> None:
    job = Job(algorithm="dpsgd", codec="fp32", graph="ring")
    job.steps(0, 3)
    if job.rank == 0:
        for p in job.model.parameters():
            p.data.fill_(float("nan"))
    job.model.eval()  # nor does a forward for an evaluation begin a round
    job.model(torch.randn(2, 8))
    job.model.train()
    for p in job.model.parameters():
        p.grad = torch.zeros_like(p)
    with logged() as lines:
        job.optimizer.step()
    assert len(lines) == (1 if job.rank == 0 else 0), lines
    assert torch.isfinite(job.weights()).all()
    job.steps(4, 6)
    job.gossip.close()


@check
def workers_that_wait_for_nobody_may_make_different_numbers_of_steps() -> None:
    for graph in ("star", "ring"):
        job = Job(algorithm="ad-psgd", codec="fp32", graph=graph)
        for _ in range(2):  # in each some worker makes none
            job.steps(0, 3 * job.rank)
            job.gossip.consensus_distance()
            job.steps(0, 3 * (dist.get_world_size() - 1 - job.rank))
            job.gossip.consensus_distance()
        assert job.gossip.rounds == 6 * (dist.get_world_size() - 1)
        job.gossip.finish()
        ends = everyones(job.weights())
        assert all(torch.allclose(ends[0], other, atol=1e-6) for other in ends)
        job.gossip.close()


@check
def workers_that_wait_for_nobody_may_meet_within_a_round() -> None:
    for first_is_ahead in (False, True):  # the one that asks, or that answers
        job = Job(algorithm="ad-psgd", codec="fp32", graph="star", every=3)
        job.steps(0, 5 - job.rank % 3 if first_is_ahead else 3 + job.rank % 3)
        before = job.weights()
        distance = job.gossip.consensus_distance()
        mean = torch.stack(everyones(job.weights())).double().mean(0)
        apart = torch.stack(everyones(job.weights())).double() - mean
        assert abs(distance - float(apart.square().sum(1).mean().sqrt())) < 1e-4
        job.gossip.finish()
        assert torch.allclose(job.weights().double(), mean, atol=1e-6)
        assert not torch.equal(job.weights(), before)
        job.gossip.close()


@check
def wrong_arguments_are_told_to_all() -> None:
    for options, words in (
        ({"graph": "rings"}, "is not known"),
        ({"algorithm": "chocolate"}, "valid are: ad-psgd, choco"),
        ({"codec": "dither:bits=99"}, "bits"),
        ({"step": 2.0}, "at most 1"),
        ({"every": 0}, "at least 1"),
        ({"on_loss": "restart"}, "valid are: 'stop', 'go-on'"),
        ({"on_loss": "go-on", "algorithm": "gradient-tracking"}, "take dpsgd, dcd, choco"),
        ({"algorithm": "ad-psgd", "graph": "complete:lazy=1,p=3"}, "it has lazy"),
        ({"codec": "dgc"}, "has momentum of its own, and Gossip"),
        ({"codec": "efsign|ef"}, "the learning rate in its memory.* lr=outside"),
        ({"codec": "alq"}, "fits its levels as training goes on, and Gossip"),
    ):
        with raises(ValueError, words):
            Job(**options)


@check
def arguments_of_other_types_are_refused() -> None:
    for options, words in (
        ({"every": 2.5}, "every is 2.5; it must be a whole number"),
        ({"delay": None}, "delay is None; it must be a whole number"),
        ({"step": "0.5"}, "step is '0.5'; it must be a number"),
        ({"graph": None}, "graph is None; it must be a string"),
        ({"codec": 1}, "codec is 1; it must be a string"),
    ):
        with raises(TypeError, words):
            Job(**options)
    model = model_of(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for arguments, words in (
        ((model, optimizer), r"have changed places: call Gossip\(optimizer, model, ...\)"),
        ((optimizer, None), "model is a NoneType; it must be a torch.nn.Module"),
        ((None, model), "optimizer is a NoneType; it must be a torch.optim.Optimizer"),
    ):
        with raises(TypeError, words):
            elastiquant.Gossip(*arguments)


@check
def an_optimizer_that_is_followed_is_refused() -> None:
    job = Job(algorithm="dpsgd", codec="fp32", graph="ring")
    with raises(ValueError, r"a Gossip follows this optimizer already: close\(\) it"):
        elastiquant.Gossip(job.optimizer, job.model, graph="ring")
    job.steps(0, 2)
    assert job.gossip.rounds == 2
    job.gossip.close()


if __name__ == "__main__":
    main()
