"""What Gossip saves, loads and refuses to load: see gossip_test.py."""

from __future__ import annotations

import copy
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from checking import check, main, raises
from gossip_training import CASES, Job, everyones

import elastiquant


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
    job.gossip.consensus_distance()  # after which nobody misses a message by what follows
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


def averages_in(state: dict[str, Any]) -> dict[int, int]:
    """How many a worker has made with each neighbour, as its state has it."""
    counts = f"rank{dist.get_rank()}/step/gossip/"
    return {
        int(key.removeprefix(counts)): int(value)
        for key, value in state.items()
        if key.startswith(counts)
    }


@check
def workers_that_wait_for_nobody_save_what_fits_together() -> None:
    """Those that answer on a ring are asked by two, one of which is late here."""
    for on_loss in ("stop", "go-on"):
        options = {"on_loss": on_loss, "stall_timeout": 20.0}
        job = Job(algorithm="ad-psgd", codec="fp32", graph="ring", **options)
        states = []
        for late in range(dist.get_world_size()):
            job.steps(0, 3)
            if job.rank == late:
                time.sleep(0.3)
            states.append(job.gossip.state_dict())  # the others go on at once
        job.gossip.finish()
        job.gossip.close()
        for state in states:
            all_counts: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(all_counts, averages_in(state))
            for worker, counts in enumerate(all_counts):
                assert counts == {n: all_counts[n][worker] for n in counts}, all_counts


@check
def a_worker_saves_alone() -> None:
    for case in CASES:
        if case["algorithm"] == "ad-psgd":
            continue
        whole = Job(**case)
        whole.steps(0, 12)
        saved: list[dict[str, Any]] = []
        for one in range(dist.get_world_size()):
            job = Job(**case)
            parts = (job.model, job.optimizer, job.gossip)
            job.steps(0, 8)
            if job.rank == one:
                saved = [copy.deepcopy(part.state_dict()) for part in parts]
            job.steps(8, 12)  # the others have not paused
            assert torch.equal(job.weights(), whole.weights()), case
            job.gossip.close()
        then = Job(**case)
        for part, state in zip((then.model, then.optimizer, then.gossip), saved, strict=True):
            part.load_state_dict(state)
        then.steps(8, 12)
        assert torch.equal(then.weights(), whole.weights()), case
        for job in (whole, then):
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


if __name__ == "__main__":
    main()
