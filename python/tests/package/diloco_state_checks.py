"""What DiLoCo saves, loads, refuses to load, and leaves behind: see diloco_test.py."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from checking import check, main, raises
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


def saved_after(steps: int, **options) -> dict[str, Any]:
    model, inner, rounds = start(**options)
    train(model, inner, range(steps))
    saved = rounds.state_dict()
    rounds.close()
    return saved


def prefix() -> str:
    return f"rank{dist.get_rank()}/rounds/"


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
            assert (resumed.step, resumed.rounds) != (rounds.step, rounds.rounds)
            train(again, inner_again, range(stop, 13))
            assert torch.equal(weights(again), weights(model)), (options, stop)
            assert (resumed.step, resumed.rounds) == (rounds.step, rounds.rounds)
            for r in (rounds, resumed):
                r.close()


@check
def refuses_states_that_do_not_fit():
    options = {"every": 4, "delay": 2, "fragments": 2, "codec": "elastic:bits=2|ef"}
    good, at = saved_after(5, **options), prefix()  # the second fragment is under way

    def other(**values: Any) -> dict[str, Any]:
        return good | {at + key: value for key, value in values.items()}

    def without(key: str) -> dict[str, Any]:
        assert key in good, sorted(good)
        return {k: v for k, v in good.items() if k != key}

    two = torch.zeros(2, dtype=torch.int64)
    adam = torch.optim.AdamW(make_model().parameters()).state_dict()
    half = torch.optim.SGD([next(make_model().parameters())]).state_dict()
    velocity = copy.deepcopy(good[f"{at}outer"])
    velocity["state"][0]["momentum_buffer"] = torch.zeros(3, 4)
    model, _, rounds = start(**options)
    before = weights(model)
    for state, words in (
        (without(f"{at}anchor/0.bias"), "has no anchor/0.bias"),
        (without(f"{at}settings"), "has no settings"),
        (other(settings="{}"), "does not say of which rounds it is"),
        (other(settings=3), "does not say of which rounds it is"),
        (without(f"{at}mean/1/1"), "has no mean/1/1"),
        (without(f"{at}skipped/1"), "has no skipped/1"),
        (
            other(**{"anchor/0.bias": torch.zeros(31)}),
            r"anchor/0.bias .*\(31,\); it must be .*30",
        ),
        (other(**{"anchor/0.bias": torch.zeros(30).double()}), "float64"),
        (other(**{"anchor/0.bias": "text"}), "anchor/0.bias of the state is no tensor"),
        (other(**{"mean/1/0": torch.zeros(2, 2)}), r"mean/1/0 .*\(2, 2\)"),
        (other(**{"anchor/9.bias": torch.zeros(1)}), "has anchor/9.bias, which"),
        (other(counters=torch.zeros(3, dtype=torch.int64)), "counters"),
        (
            other(counters=two),
            r"has fragments \[1\] under way after step 0, when only \[\] can",
        ),
        (other(**{"under-way": torch.tensor([7])}), r"fragments \[7\] under way"),
        (other(outer=adam), "outer of the state is of another kind: it has no damp"),
        (other(outer=half), "other groups of parameters"),
        (other(outer=7), "no state of an optimiser"),
        (other(outer=velocity), r"momentum_buffer of parameter 0 has the shape \(3, 4\)"),
        ({k: v for k, v in good.items() if "/rounds/" in k}, "nothing of rank"),
    ):
        with raises(elastiquant.CorruptFrameError, words):
            rounds.load_state_dict(state)
        assert (rounds.step, rounds.rounds) == (0, 0)
        assert torch.equal(anchor_of(rounds), before), words
    rounds.load_state_dict(good)  # nothing has changed by what was refused
    assert rounds.step == 5
    rounds.close()


@check
def refuses_states_of_other_rounds():
    good = saved_after(4, every=4)
    for options, words in (
        ({"every": 5}, r"of other rounds, with every=4 \(here 5\): give DiLoCo"),
        ({"every": 4, "mix": 0.5}, r"with mix=0.0 \(here 0.5\)"),
        ({"every": 4, "fragments": 2}, r"with fragments=1 \(here 2\)"),
        ({"every": 4, "eager": True}, r"with delay=0 \(here 4\), eager=False \(here True\)"),
    ):
        rounds = start(**options)[2]
        with raises(elastiquant.CorruptFrameError, words):
            rounds.load_state_dict(good)
        rounds.close()
    model = nn.Sequential(nn.Linear(20, 31), nn.Tanh(), nn.Linear(31, 5))
    rounds = elastiquant.DiLoCo(model, make_inner(model), every=4)
    with raises(elastiquant.CorruptFrameError, r"anchor/0.weight .*\(30, 20\); .*\(31, 20\)"):
        rounds.load_state_dict(good)
    rounds.close()
    rounds = start(every=4)[2]
    with raises(elastiquant.CorruptFrameError, "nothing of rank"):
        rank = (dist.get_rank() + 1) % dist.get_world_size()
        rounds.load_state_dict(
            {k.replace(prefix()[:5], f"rank{rank}"): v for k, v in good.items()}
        )
    rounds.close()


def without_division(state: dict[str, Any]) -> dict[str, Any]:
    """As a version saved it that dealt single parameters."""
    key = f"{prefix()}settings"
    settings = json.loads(state[key])
    del settings["division"]
    return state | {key: json.dumps(settings)}


@check
def refuses_states_of_other_fragments():
    saved = saved_after(4, every=4, fragments=2)
    other = make_model()
    other[4] = nn.Linear(6, 500)  # which is the largest now
    for model, state in ((make_model(), without_division(saved)), (other, saved)):
        rounds = elastiquant.DiLoCo(model, make_inner(model), every=4, fragments=2)
        words = "the state's 2 fragments have other parameters .* Load the weights alone"
        with raises(elastiquant.CorruptFrameError, words):
            rounds.load_state_dict(state)
        assert rounds.step == 0
        rounds.close()
    # One fragment can only be the whole model.
    rounds = start(every=4)[2]
    rounds.load_state_dict(without_division(saved_after(4, every=4)))
    assert rounds.step == 4
    rounds.close()


@check
def refuses_states_of_the_other_kind():
    kinds = (elastiquant.DiLoCo, elastiquant.LocalSGD)
    for kind, other in (kinds, kinds[::-1]):
        rounds = start(kind, every=4)[2]
        saved = rounds.state_dict()
        rounds.close()
        model, inner, rounds = start(other, every=4)
        words = f"of {kind.__name__}, .* and this is {other.__name__}: load it into a "
        with raises(elastiquant.CorruptFrameError, words + kind.__name__):
            rounds.load_state_dict(saved)
        train(model, inner, range(4))
        assert rounds.rounds == 1
        rounds.close()


@check
def refuses_weights_that_were_loaded_once_it_was_made():
    """Every worker is told, also the one whose weights are as they were."""
    for kind in (elastiquant.DiLoCo, elastiquant.LocalSGD):
        for loading in ((0, 1), (1,)):
            model, inner, rounds = start(kind, every=4)
            if dist.get_rank() in loading:
                with torch.no_grad():
                    model[0].bias.add_(1.0)
            own = rf"'0.bias' has changed since this {kind.__name__} was made, .* before you"
            words = own if loading == (0, 1) else f"{own}|worker 1 stopped: RuntimeError"
            check_all_are_told((model, inner, rounds), range(4), words)


@check
def another_optimizer_may_step_before_the_inner_one():
    model = make_model()
    first = torch.optim.SGD(model[0].parameters(), lr=0.1)
    inner = torch.optim.SGD([p for layer in model[1:] for p in layer.parameters()], lr=0.1)
    rounds = elastiquant.LocalSGD(model, inner, every=2, codec="fp32")
    for step in range(4):
        model(torch.randn(8, 20, generator=torch.manual_seed(step))).square().mean().backward()
        for optimizer in (first, inner):
            optimizer.step()
            optimizer.zero_grad()
    assert rounds.rounds > 0
    check_same_everywhere(weights(model))
    rounds.close()


@check
def goes_on_from_weights_that_were_loaded_with_its_state():
    model, inner, rounds = start(every=4)
    saved = copy.deepcopy((model.state_dict(), rounds.state_dict()))  # before the first step
    train(model, inner, range(2))
    rounds.load_state_dict(saved[1])
    model.load_state_dict(saved[0])
    train(model, inner, range(4))
    assert rounds.rounds == 1
    rounds.close()


@check
def loads_nothing_while_a_mean_is_under_way():
    saved = saved_after(3, every=4, delay=2)
    model, inner, rounds = start(every=4, delay=2)
    train(model, inner, range(5))
    with raises(RuntimeError, "a mean is under way"):
        rounds.load_state_dict(saved)
    rounds.close()


def check_all_are_told(parts: tuple, steps: Iterable[int], words: str) -> None:
    """Every worker gets an error, be it its own or another's that it is told of."""
    model, inner, rounds = parts
    with raises(RuntimeError, words):
        train(model, inner, steps)
    rounds.close()
    dist.barrier()


@check
def tells_workers_that_they_go_on_from_different_rounds():
    first = dist.get_rank() == 0
    for options, early, late, words in (
        ({}, 4, 8, r"worker 0 from round 1 \(after 4 steps\), worker 1 from round 2"),
        ({}, 5, 6, r"worker 0 from round 1 \(after 5 steps\), .* round 1 \(after 6"),
        ({"eager": True}, 5, 9, "worker 0 from round 0 .*, worker 1 from round 1"),
        # Which send other fragments next, so that each would wait for the other one's.
        ({"fragments": 2}, 4, 6, "worker 0 from round 2 .*, worker 1 from round 3"),
        ({"fragments": 2, "delay": 1}, 4, 6, "worker 0 from round 1 .*, worker 1 from round 2"),
        ({"on_loss": "go-on"}, 4, 8, "worker 0 from round 1 .*, worker 1 from round 2"),
    ):
        options = options | {"every": 4, "codec": "fp32"}
        states = [saved_after(steps, **options) for steps in (early, late)]
        parts = start(**options)
        parts[2].load_state_dict(states[0 if first else 1])
        check_all_are_told(parts, range(12), f"go on from different rounds, {words}")


@check
def tells_a_worker_that_it_has_loaded_nothing():
    for which in range(2):  # has
        saved = saved_after(5, every=4)
        parts = start(every=4)
        if dist.get_rank() == which:
            parts[2].load_state_dict(saved)
        words = rf"worker {1 - which} from round 0 .*|worker {1 - which} loaded no state"
        check_all_are_told(parts, range(12), words)


@check
def tells_a_worker_that_it_has_not_gone_back_with_the_others():
    model, inner, rounds = start(every=2)
    train(model, inner, range(2))
    saved = copy.deepcopy(rounds.state_dict())
    train(model, inner, range(2, 6))
    rounds.load_state_dict(saved)  # together they may
    train(model, inner, range(2, 8))
    if dist.get_rank() == 1:
        rounds.load_state_dict(saved)
    words = r"worker 0 loaded no state when the others did, which go on from round 1 \(after 2"
    check_all_are_told((model, inner, rounds), range(2, 8), words)


@check
def ends_at_the_anchor():
    for options in SCHEDULES:
        for steps in (3, 4, 6, 8):
            model, inner, rounds = start(every=4, **options)
            with rounds:
                train(model, inner, range(steps))
                rounds.finish()
                ended = anchor_of(rounds)
                assert torch.equal(weights(model), ended)
                state, count = rounds.state_dict(), rounds.rounds
                for name, tensor in rounds.anchor().items():
                    if "eager" in options:  # nothing of its own is left
                        assert torch.equal(state[f"{prefix()}own/{name}"], tensor)
                        assert not state[f"{prefix()}last_sent/{name}"].any()
                        assert not state[f"{prefix()}last_mean/{name}"].any()
                rounds.finish()  # once is enough
            assert torch.equal(anchor_of(rounds), ended) and rounds.rounds == count
            assert torch.equal(weights(model), ended)
            with raises(RuntimeError, "has finished"):
                rounds.load_state_dict(state)


@check
def goes_on_from_where_it_has_finished():
    for options in SCHEDULES:
        options = options | {"every": 4, "codec": "elastic:bits=2|ef"}
        model, inner, rounds = start(**options)
        train(model, inner, range(5))
        rounds.finish()
        saved = rounds.state_dict()
        ends = []
        for pause in (6, 9):  # and once more on the way
            again, inner_again, resumed = start(**options)
            again.load_state_dict(model.state_dict())
            inner_again.load_state_dict(copy.deepcopy(inner.state_dict()))
            resumed.load_state_dict(saved)
            assert torch.equal(anchor_of(resumed), weights(model))
            train(again, inner_again, range(5, pause))
            state = resumed.state_dict()
            final, inner_final, last = start(**options)
            final.load_state_dict(again.state_dict())
            inner_final.load_state_dict(inner_again.state_dict())
            last.load_state_dict(state)
            train(final, inner_final, range(pause, 14))
            check_same_everywhere(anchor_of(last))
            assert last.rounds > resumed.rounds
            last.finish()
            check_same_everywhere(weights(final))
            ends.append(weights(final))
            resumed.close()
            last.close()
        assert torch.equal(*ends)
        rounds.close()


if __name__ == "__main__":
    main()
