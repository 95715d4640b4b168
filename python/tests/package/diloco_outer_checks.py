"""What DiLoCo saves and loads of its outer optimiser: see diloco_test.py."""

from __future__ import annotations

import copy
import json
import tempfile
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from checking import check, main, raises
from diloco_training import anchor_of, make_inner, make_model, train
from torch import nn

import elastiquant

MakeOuter = Callable[[nn.Module], torch.optim.Optimizer]


def sgd(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.7, momentum=0.9, nesterov=True)


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(model.parameters(), lr=0.01)


def start(make_outer: MakeOuter = sgd, **options):
    model = make_model()
    inner, outer = make_inner(model), make_outer(model)
    rounds = elastiquant.DiLoCo(model, inner, outer, every=2, codec="fp32", **options)
    return model, inner, outer, rounds


def saved_after(steps: int, make_outer: MakeOuter = sgd, **options) -> dict[str, Any]:
    model, inner, _, rounds = start(make_outer, **options)
    train(model, inner, range(steps))
    saved = rounds.state_dict()
    rounds.close()
    return saved


def with_settings(state: dict[str, Any], change: Callable[[dict[str, Any]], None]):
    key = f"rank{dist.get_rank()}/rounds/settings"
    settings = json.loads(state[key])
    change(settings)
    return state | {key: json.dumps(settings)}


def through_checkpoint(saved: dict[str, Any], into: dict[str, Any]) -> dict[str, Any]:
    """What torch.distributed.checkpoint makes of a state that is to be loaded."""
    with tempfile.TemporaryDirectory() as folder:
        dcp.save({"rounds": saved}, checkpoint_id=folder, no_dist=True)
        state = {"rounds": into}
        dcp.load(state, checkpoint_id=folder, no_dist=True)
    return state["rounds"]


@check
def refuses_a_state_without_the_momentum_that_it_was_saved_with():
    for make_outer, words in (
        (sgd, "outer of the state has momentum_buffer of 0 parameters in place of 8"),
        (adam, "exp_avg of 0 parameters in place of 8, exp_avg_sq of 0 .*, step of 0"),
    ):
        saved = saved_after(2, make_outer)
        _, _, outer, rounds = start(make_outer)
        loaded = through_checkpoint(saved, rounds.state_dict())
        with raises(elastiquant.CorruptFrameError, f"{words}.*: save with torch.save"):
            rounds.load_state_dict(loaded)
        assert rounds.step == 0 and not outer.state
        rounds.load_state_dict(saved)
        assert rounds.step == 2
        rounds.close()


@check
def refuses_an_eager_workers_state_without_its_own_momentum():
    saved = saved_after(2, eager=True)
    key = f"rank{dist.get_rank()}/rounds/own-outer"
    rounds = start(eager=True)[3]
    with raises(elastiquant.CorruptFrameError, "own-outer .* has momentum_buffer of 0 .* of 8"):
        rounds.load_state_dict(saved | {key: saved[key] | {"state": {}}})
    rounds.load_state_dict(saved)
    rounds.close()


@check
def takes_what_a_checkpoint_makes_of_a_state_that_lacks_nothing():
    """Before the first round an outer optimiser has kept nothing."""
    saved = saved_after(1)
    rounds = start()[3]
    rounds.load_state_dict(through_checkpoint(saved, rounds.state_dict()))
    assert rounds.step == 1
    rounds.close()


@check
def takes_states_that_do_not_tell_what_was_kept():
    """As earlier versions saved them."""
    saved = with_settings(saved_after(2), lambda s: (s.pop("outer"), s.pop("outer-kept")))
    rounds = start()[3]
    rounds.load_state_dict(saved)
    assert rounds.step == 2
    rounds.close()


@check
def refuses_a_state_of_another_class():
    saved = saved_after(2)
    rounds = start(adam)[3]
    with raises(elastiquant.CorruptFrameError, "it is of SGD, and this one is AdamW"):
        rounds.load_state_dict(saved)
    older = with_settings(saved, lambda s: (s.pop("outer"), s.pop("outer-kept")))
    with raises(elastiquant.CorruptFrameError, "it has no amsgrad, betas, .* which AdamW has"):
        rounds.load_state_dict(older)
    assert rounds.step == 0
    rounds.close()


@check
def a_scheduler_may_be_made_before_or_after_loading():
    """Schedulers leave marks in the groups of an optimiser."""

    def schedule(outer: torch.optim.Optimizer, last: int = -1):
        return torch.optim.lr_scheduler.LambdaLR(outer, lambda s: 1 / (1 + s), last)

    model, inner, outer, rounds = start()
    scheduler = schedule(outer)
    for step in range(0, 4, 2):
        train(model, inner, (step, step + 1))
        scheduler.step()
    saved = copy.deepcopy((model, inner.state_dict(), rounds.state_dict()))
    train(model, inner, range(4, 6))
    for is_made_first in (True, False):
        again, inner_again, outer_again, resumed = start()
        if is_made_first:
            schedule(outer_again)
        again.load_state_dict(saved[0].state_dict())
        inner_again.load_state_dict(copy.deepcopy(saved[1]))
        resumed.load_state_dict(saved[2])
        assert outer_again.param_groups[0]["lr"] == 0.7 / 3
        if not is_made_first:
            assert schedule(outer_again, 1).get_last_lr() == [0.7 / 3]
        train(again, inner_again, range(4, 6))
        assert torch.equal(anchor_of(resumed), anchor_of(rounds))
        resumed.close()
    rounds.close()
    unscheduled = saved_after(2)
    _, _, outer, rounds = start()
    schedule(outer)
    rounds.load_state_dict(unscheduled)
    assert outer.param_groups[0]["initial_lr"] == 0.7
    rounds.close()


if __name__ == "__main__":
    main()
