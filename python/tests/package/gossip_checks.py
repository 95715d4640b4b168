"""How workers of elastiquant.Gossip train, in a group: see gossip_test.py."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist
from checking import check, check_scaler_is_warned_of, logged, main, raises
from gossip_training import CASES, Job, everyones, model_of

import elastiquant


@check
def worker_0_closes_at_once_and_leaves_nobody_behind() -> None:
    def late(*args, connect=dist.TCPStore, **kwargs) -> dist.TCPStore:
        time.sleep(1.5 if dist.get_rank() else 0)
        return connect(*args, **kwargs)

    with mock.patch.object(dist, "TCPStore", late):
        job = Job(graph="one-peer-exponential", timeout=5.0)
    job.gossip.close()


@check
def worker_0_warns_of_training_that_may_diverge() -> None:
    for codec, is_doubtful in (("qsgd:bits=2", True), ("qsgd:bits=8", False)):
        with logged() as lines:
            Job(algorithm="dcd", codec=codec, graph="complete").gossip.close()
        told = [line for line in lines if f"dcd under {codec} on complete may diverge" in line]
        assert len(told) == (is_doubtful and dist.get_rank() == 0), lines


@check
def workers_warn_of_a_grad_scaler() -> None:
    def train_and_close() -> None:
        job = Job(graph="complete", codec="fp32")
        job.steps(0, 5)
        job.gossip.close()

    check_scaler_is_warned_of(train_and_close)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(torch.ones(()))
    with logged() as lines:  # where all may make different numbers of steps it does no harm
        job = Job(graph="star", codec="fp32", algorithm="ad-psgd")
        job.steps(0, 5)
        job.gossip.close()
    assert lines == []


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
        for _ in range(2):
            job.gossip.close()
            assert job.gossip.rounds == 40 // case.get("every", 1)
            assert job.gossip.summary().startswith(f"{job.gossip.rounds} rounds, ")
            assert job.gossip.parts == [list(range(dist.get_world_size()))]


@check
def forwards_without_a_step_before_the_end_move_nothing() -> None:
    """As of batches that gradient accumulation has left over."""
    for case in CASES:
        ends = []
        for has_step in (False, True):
            job = Job(**case)
            job.steps(0, 7)
            job.optimizer.param_groups[0]["lr"] = 0.0
            job.loss(7).backward()
            if has_step:
                job.optimizer.step()
            job.gossip.finish()
            assert job.gossip.rounds == 8 // case.get("every", 1)
            ends.append(job.weights())
            job.gossip.close()
        if case["algorithm"] == "ad-psgd":  # whose pairs meet as the clock has it
            ends[1] = everyones(ends[0])[0]
        assert torch.allclose(ends[0], ends[1], atol=1e-6), case


@check
def forwards_of_one_worker_alone_before_the_end_are_an_error_on_all() -> None:
    job = Job(algorithm="choco", codec="fp32", graph="complete")
    job.steps(0, 3)
    if job.rank == 1:
        job.loss(3)
    with raises(dist.DistBackendError, "worker 1 |after fewer rounds than this one"):
        job.gossip.finish()
    job.gossip.close()


@check
def a_complete_graph_averages_as_an_all_reduce_does() -> None:
    job = Job(algorithm="choco", codec="fp32", graph="complete")
    job.steps(0, 5)
    ends = everyones(job.weights())
    assert all(torch.allclose(ends[0], other, atol=1e-6) for other in ends)
    job.gossip.close()


@check
def a_compiled_model_trains_like_any_other() -> None:
    """Nothing of Gossip is compiled with it, which an unbroken graph would not allow."""
    for options in ({"algorithm": "choco"}, {"algorithm": "dpsgd"}):
        jobs = [
            Job(graph="complete", codec="fp32", compiled=compiled, **options)
            for compiled in (False, True)
        ]
        for job in jobs:
            job.steps(0, 5)
        torch.testing.assert_close(jobs[1].weights(), jobs[0].weights())
        for job in jobs:
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
        assert job.gossip.stats().coordinates == 20 * job.weights().numel()
        job.gossip.close()
    assert sent["dither:bits=1"] < sent["fp32"] / 2  # of so small a model much is headers


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


@check
def what_else_moves_weights_between_steps_is_kept() -> None:
    """As another optimiser does, or clipping: the mean of all moves by the mean of it."""
    extra = {"algorithm": "choco", "codec": "fp32", "graph": "ring", "every": 2}
    for case in (*CASES, extra):
        if case["algorithm"] == "noloco":  # whose momentum makes more of it
            continue
        job = Job(rate=0.0, **case)
        expected = job.weights()
        for number in range(5):
            job.step(number)
            with torch.no_grad():
                for p in job.model.parameters():
                    p += 1 + job.rank
            expected += (1 + dist.get_world_size()) / 2
        job.gossip.finish()
        assert torch.allclose(job.weights(), expected, atol=1e-4), case
        job.gossip.close()


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
        ({"link": 3}, "link is 3; it must be a string, or None"),
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
