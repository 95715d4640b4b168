"""How far a worker has come in its rounds, and how that goes into a checkpoint."""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from elastiquant import _core
from elastiquant._ahead import Ahead
from elastiquant._outer import Outer, fields_in


@dataclass
class Progress:
    """What changes from step to step, apart from what codecs remember."""

    anchor: list[torch.Tensor]  # the model that all workers share, by parameter
    ahead: Ahead | None = None  # of an eager worker
    reference: list[torch.Tensor] = field(default_factory=list)  # that of Buffers
    step: int = 0  # inner steps counted
    rounds: int = 0  # means applied
    under_way: set[int] = field(default_factory=set)  # fragments
    # Of those, what has been waited for: means on the host, and why they are skipped, or "".
    arrived: dict[int, tuple[list[torch.Tensor], str]] = field(default_factory=dict)
    # What Buffers.read() gave when fragment 0 was sent last, for as long as it is under way.
    sent_buffers: list[torch.Tensor] = field(default_factory=list)


# Keys of a state: among its settings the digest of its fragments, the class of the outer
# optimiser and what this kept; and what was sent of buffers. Earlier versions lack some.
_DIVISION, _CLASS, _KEPT, _SENT = "division", "outer", "outer-kept", "sent-buffers"
# The mean of batch norms' means that all workers had last, which earlier versions did not save.
_REFERENCE = "norms-reference"


class Checkpoint:
    """Makes values by key of Progress and the outer optimiser, and takes them back."""

    def __init__(
        self,
        names: list[str],
        members: list[list[int]],
        scalars: int,
        schedule: _core._RoundSchedule,
        settings: Mapping[str, Any],
        digest: str,
    ):
        """names: of the parameters; members: by fragment, the numbers of its parameters;
        scalars: values of buffers, which are averaged with fragment 0; settings: what the
        rounds that load a state must have been made with beside the schedule's options, and
        their "kind", which is the name of their class; digest: of the members, or "" if there
        is one fragment."""
        self._names, self._members, self._scalars = names, members, scalars
        self._schedule = schedule
        options = zip(("every", "fragments", "delay"), schedule.options(), strict=True)
        self._settings = dict(options) | dict(settings)
        self._digest = digest

    def save(self, progress: Progress, outer: Outer) -> dict[str, Any]:
        """Copies. All that is under way must have arrived."""
        outers = {"outer": copy.deepcopy(outer.optimizer.state_dict())}
        if progress.ahead is not None:
            with outer.having(progress.ahead.state):
                outers["own-outer"] = copy.deepcopy(outer.optimizer.state_dict())
        settings = self._settings | {_DIVISION: self._digest}
        settings |= {_CLASS: type(outer.optimizer).__name__}
        settings |= {_KEPT: {key: fields_in(saved) for key, saved in outers.items()}}
        state: dict[str, Any] = {
            "settings": json.dumps(settings),
            "counters": torch.tensor([progress.step, progress.rounds]),
            # Fewer than the schedule says if finish() has applied them before their time.
            "under-way": torch.tensor(sorted(progress.arrived), dtype=torch.int64),
        }
        state |= outers
        state |= {key: t.clone() for key, t in self._tensors(progress).items()}
        for fragment, (tensors, skipped) in progress.arrived.items():
            state[f"skipped/{fragment}"] = skipped
            state |= {f"mean/{fragment}/{i}": t.clone() for i, t in enumerate(tensors)}
        if 0 in progress.arrived:
            sent = [t.clone() for t in progress.sent_buffers]
            state |= zip(self._sent_buffers(), sent, strict=True)
        return state

    def check(self, state: Mapping[str, Any], progress: Progress, outer: Outer) -> None:
        """Raises CorruptFrameError unless load() can take all of the state."""
        for key in ("settings", "under-way"):
            self._need(state, key)
        theirs = _settings_in(state["settings"])
        self._check_settings(theirs)
        self._check_tensor(state, "counters", torch.empty(2, dtype=torch.int64))
        expected: dict[str, torch.Tensor] = self._tensors(progress)
        optimizers = ["outer", *(["own-outer"] if progress.ahead is not None else [])]
        known = {"settings", "counters", "under-way", *optimizers}
        for fragment in self._under_way(state):
            self._need(state, f"skipped/{fragment}")
            known.add(f"skipped/{fragment}")
            expected |= self._means(fragment, progress)
            expected |= self._sent_buffers() if fragment == 0 else {}
        if _REFERENCE in expected and _REFERENCE not in state:
            self._check_can_do_without_reference(state)
            del expected[_REFERENCE]
        for key, tensor in expected.items():
            self._check_tensor(state, key, tensor)
        for key in optimizers:
            self._need(state, key)
            why = _other_class(theirs, outer) or outer.mismatch(state[key])
            if why:
                raise _core.CorruptFrameError(f"{key} of the state is of another kind: {why}")
            _check_is_whole(theirs, key, state[key])
        if unknown := state.keys() - expected.keys() - known:
            raise _core.CorruptFrameError(
                f"the state has {', '.join(sorted(unknown))}, which these rounds do not know"
            )

    def _check_can_do_without_reference(self, state: Mapping[str, Any]) -> None:
        if 0 in self._under_way(state):
            raise _core.CorruptFrameError(
                "the state is of an older version, and was saved while means of batch norms "
                "were under way, in a form that is no longer sent: load the weights alone, and "
                "then make the rounds anew"
            )

    def _check_settings(self, told: Mapping[str, Any]) -> None:
        """Raises CorruptFrameError naming what the rounds of a state had otherwise."""
        division = told.get(_DIVISION, "")  # earlier versions told none
        theirs = {k: v for k, v in told.items() if k not in (_DIVISION, _CLASS, _KEPT)}
        ours = self._settings
        if theirs["kind"] != ours["kind"]:
            raise _core.CorruptFrameError(
                f"the state is of {theirs['kind']}, whose outer optimiser is another one, and "
                f"this is {ours['kind']}: load it into a {theirs['kind']}"
            )
        differ = sorted(k for k in theirs | ours if theirs.get(k) != ours.get(k))
        if differ:
            told = ", ".join(f"{k}={theirs.get(k)} (here {ours.get(k)})" for k in differ)
            raise _core.CorruptFrameError(
                f"the state is of other rounds, with {told}: give {ours['kind']} the options "
                "that it was saved with"
            )
        if division != self._digest:
            raise _core.CorruptFrameError(
                f"the state's {ours['fragments']} fragments have other parameters than these: "
                "it is of another model, or of an older version, which dealt single parameters "
                "and not layers. Load the weights alone, and then make the rounds anew"
            )

    def load(self, state: Mapping[str, Any], progress: Progress, outer: Outer) -> None:
        """Takes a state that check() has let pass."""
        for key, tensor in self._tensors(progress).items():
            # Without a reference it is zero, which every worker has, as it has no other one.
            tensor.copy_(state.get(key, torch.zeros_like(tensor)))
        if progress.ahead is not None:
            # An optimiser makes its state anew as it loads one.
            outer.load(state["own-outer"])
            progress.ahead.state = dict(outer.optimizer.state)
        outer.load(state["outer"])
        progress.step, progress.rounds = state["counters"].tolist()
        progress.arrived = {}
        for fragment in self._under_way(state):
            means = [state[key].cpu().clone() for key in self._means(fragment, progress)]
            progress.arrived[fragment] = (means, state[f"skipped/{fragment}"])
        progress.under_way = set(progress.arrived)
        if 0 in progress.arrived:
            progress.sent_buffers = [state[key].cpu().clone() for key in self._sent_buffers()]

    def _under_way(self, state: Mapping[str, Any]) -> list[int]:
        """The fragments that were under way; raises CorruptFrameError if they cannot be."""
        step, listed = int(state["counters"][0]), state["under-way"]
        possible = [
            fragment
            for fragment in range(len(self._members))
            if self._schedule.is_under_way(fragment, step)
        ]
        listed = listed.tolist() if isinstance(listed, torch.Tensor) else listed
        if not isinstance(listed, list) or not set(listed) <= set(possible):
            raise _core.CorruptFrameError(
                f"the state has fragments {listed} under way after step {step}, when only "
                f"{possible} can be"
            )
        return listed

    def _tensors(self, progress: Progress) -> dict[str, torch.Tensor]:
        """Those of Progress itself, by key: one for each parameter and field, and the reference
        if there is one."""
        fields = {"anchor": progress.anchor}
        fields |= progress.ahead.tensors() if progress.ahead is not None else {}
        tensors = {
            f"{name_of_field}/{name}": tensor
            for name_of_field, of_it in fields.items()
            for name, tensor in zip(self._names, of_it, strict=True)
        }
        return tensors | dict(zip([_REFERENCE], progress.reference, strict=False))

    def _sent_buffers(self) -> dict[str, torch.Tensor]:
        """By key, a tensor of the shape that Buffers.read() has, if it has any."""
        if not self._scalars:
            return {}
        return {_SENT: torch.empty(self._scalars, dtype=torch.float32, device="meta")}

    def _means(self, fragment: int, progress: Progress) -> dict[str, torch.Tensor]:
        """By key, tensors of the shapes that a mean under way has."""
        shapes = [progress.anchor[i] for i in self._members[fragment]]
        shapes += self._sent_buffers().values() if fragment == 0 else []
        return {f"mean/{fragment}/{i}": t for i, t in enumerate(shapes)}

    def _need(self, state: Mapping[str, Any], key: str) -> None:
        if key not in state:
            raise _core.CorruptFrameError(f"the state has no {key}")

    def _check_tensor(self, state: Mapping[str, Any], key: str, like: torch.Tensor) -> None:
        self._need(state, key)
        found = state[key]
        if not isinstance(found, torch.Tensor):
            raise _core.CorruptFrameError(f"{key} of the state is no tensor")
        if found.shape != like.shape or found.dtype != like.dtype:
            raise _core.CorruptFrameError(
                f"{key} of the state is a tensor of {found.dtype} and shape "
                f"{tuple(found.shape)}; it must be {like.dtype} and {tuple(like.shape)}"
            )


def _other_class(settings: Mapping[str, Any], outer: Outer) -> str:
    """In words, if a state is of an outer optimiser of another class; else ""."""
    ours = type(outer.optimizer).__name__
    theirs = settings.get(_CLASS, ours)
    return "" if theirs == ours else f"it is of {theirs}, and this one is {ours}"


def _check_is_whole(settings: Mapping[str, Any], key: str, saved: Mapping[str, Any]) -> None:
    """Raises CorruptFrameError if the state of an optimiser has lost what it had when it was
    saved. torch.distributed.checkpoint loads only what the state it is given has already, and
    that of an optimiser which has made no step has nothing."""
    was, found = settings.get(_KEPT, {}).get(key), fields_in(saved)
    if was is None or was == found:
        return
    differ = ", ".join(
        f"{name} of {found.get(name, 0)} parameters in place of {was.get(name, 0)}"
        for name in sorted(was | found)
        if was.get(name) != found.get(name)
    )
    raise _core.CorruptFrameError(
        f"{key} of the state has {differ}, as when torch.distributed.checkpoint has loaded it "
        "into rounds that have made no step: save with torch.save(), a file for each worker"
    )


def _settings_in(text: Any) -> dict[str, Any]:
    """The settings of a state; raises CorruptFrameError if it tells none."""
    try:
        settings = json.loads(text)
        if isinstance(settings["kind"], str):
            return settings
    except (KeyError, TypeError, ValueError):
        pass
    raise _core.CorruptFrameError(
        f"settings of the state is {text!r}, which does not say of which rounds it is: it may "
        "be of an older version"
    )
