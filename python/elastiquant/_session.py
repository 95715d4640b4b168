"""What compress(), DiLoCo and Gossip give a script alike: statistics, and an orderly end."""

from __future__ import annotations

import atexit
import json
import logging
import os
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch

from elastiquant import _group, _model
from elastiquant._between_steps import LOOK_AT, scaler_in_use
from elastiquant._record import Record
from elastiquant._same_round import SameRound
from elastiquant._stats import LayerStats, Stats, layer_stats

_log = logging.getLogger("elastiquant")

_MOST_LOST_IN_A_ROW = 10

# The optimiser's attribute that keeps what follows it alive as long as itself.
_FOLLOWER = "_elastiquant_rounds"


class Measured:
    """What an engine of _core counts, as scripts ask for it."""

    _engine: Any

    def _open(self, engine: Any) -> None:
        self._engine = engine
        self._began = time.monotonic()
        self._resets = 0
        self._steps_before_reset = 0

    def stats(self) -> Stats:
        """Sums since the last reset, of this worker. A step is a mean that it had a part in: of
        gradients, of a fragment's work, or with its neighbours. What the bytes are compared
        with is an all-reduce in its place: fp32_bytes_up and fp32_ratio are of one in fp32,
        `ratio` is of one in the gradients' own types."""
        return Stats(**self._engine.stats())

    def reset_stats(self) -> None:
        """Begins the sums of stats() and layers() anew. Not within a backward."""
        self._steps_before_reset = self._steps_ever()
        self._engine.reset_stats()
        self._resets += 1

    def _steps_ever(self) -> int:
        """Steps since the engine was made: by these time is told, which no reset turns back."""
        return self._steps_before_reset + self._engine.stats()["steps"]

    def layers(self) -> list[LayerStats]:
        """The measured variance of each compressed layer, and of all ('' last)."""
        return [layer_stats(json.loads(line)) for line in self._engine.layers()]

    def summary(self) -> str:
        """stats() in a line: progress.set_postfix_str(session.summary())."""
        return self.stats().summary()

    def record(self, path: str | os.PathLike, step: int) -> None:
        """Appends stats() and layers() as of a step of the script to a file, as one line of
        JSON, which elastiquant.report(path) draws. One worker's suffices; any steps do."""
        seconds = time.monotonic() - self._began
        layers = tuple(self.layers())
        Record(step, seconds, self.stats(), layers, self._resets).append_to(path)

    def __repr__(self) -> str:
        return f"<elastiquant.{type(self).__name__}: {self.summary()}>"


class Session(Measured):
    """A script's use of an engine of _core, whose threads must not outlive the interpreter."""

    _farewell = "it closed its session"  # what close() tells the other workers
    _same_round: SameRound | None = None

    def _open(self, engine: Any) -> None:
        super()._open(engine)
        _sessions.add(self)

    def close(self) -> None:
        """Ends communication. Happens at exit by itself."""
        self._close(self._farewell, error="")

    def _close(self, farewell: str, error: str) -> None:
        self._engine.close(farewell, error)
        if self._same_round is not None:
            self._same_round.close()

    def _compare(self, compare: Callable[[], None]) -> None:
        """Ends communication if workers go on from different states, so that all are told why
        and none waits for a message of this worker."""
        try:
            compare()
        except RuntimeError as e:
            self._close("it goes on from another state", f"RuntimeError: {e}")
            raise


class Rounds(Session):
    """One that follows the steps of an optimiser by hooks, and meets others between some."""

    _same_round: SameRound
    _parameters: list[torch.nn.Parameter]  # trained ones
    _known_lost: frozenset[int] = frozenset()
    _lost_in_a_row = 0
    _steps_seen = 0  # of the optimiser

    @property
    def lost(self) -> list[int]:
        """Workers of the group that were lost, while the others go on."""
        return sorted(self._known_lost | set(self._engine.lost()))  # kept after close()

    def _count_lost(self, is_lost: bool, what: str) -> None:
        """Raises RuntimeError once as many in a row are lost as `train` skips steps by default.
        An optimiser whose momentum has become NaN would lose all that follow."""
        self._lost_in_a_row = self._lost_in_a_row + 1 if is_lost else 0
        if self._lost_in_a_row == _MOST_LOST_IN_A_ROW:
            raise RuntimeError(
                f"gave up after {_MOST_LOST_IN_A_ROW} in a row: {what}. The optimiser's own "
                "state may have become NaN: go on from a checkpoint, and leave out steps whose "
                "loss or gradient is not finite"
            )

    def _check_trained(self, module: torch.nn.Module) -> None:
        """Raises RuntimeError if the module trains a parameter that it did not have, or did not
        train, at the start: no worker would send it."""
        known = set(self._parameters)
        new = next((name for name, p in _model.trained(module) if p not in known), None)
        if new is not None:
            kind = type(self).__name__
            raise RuntimeError(
                f"the parameter {new!r} is trained now, and was not when this {kind} was made: "
                f"workers would not average it. finish() before you unfreeze or replace "
                f"parameters, and make another {kind} then"
            )

    def _look_for_scaler(self) -> None:
        """Must be called after each step of the optimiser, of which all workers must make the
        same number."""
        self._steps_seen += 1
        if self._steps_seen in LOOK_AT and scaler_in_use():
            self._steps_seen = LOOK_AT[-1]  # said once
            _log.warning(
                "a GradScaler is in use, which skips steps on single workers, whose rounds "
                "then are no longer those of the others: train without one, in bf16"
            )

    def _tell_losses(self) -> None:
        lost = frozenset(self.lost)
        for worker in sorted(lost - self._known_lost):
            _log.warning("worker %d is lost: the others go on without it", worker)
        self._known_lost = lost

    def _check_free(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises ValueError if another one follows the optimiser: both would move the model
        after the same step."""
        if (other := getattr(optimizer, _FOLLOWER, None)) is not None:
            raise ValueError(
                f"a {type(other).__name__} follows this optimizer already: close() it before "
                f"you make a {type(self).__name__}, or give this one another optimizer"
            )

    def _follow(self, optimizer: torch.optim.Optimizer, hooks: list[Any]) -> None:
        self._hooks = hooks
        setattr(optimizer, _FOLLOWER, self)
        self._followed = weakref.ref(optimizer)

    def _detach(self) -> None:
        for hook in self._hooks:
            hook.remove()
        optimizer = self._followed()
        if optimizer is not None and getattr(optimizer, _FOLLOWER, None) is self:
            delattr(optimizer, _FOLLOWER)

    @property
    def rounds(self) -> int:
        raise NotImplementedError

    def finish(self) -> None:
        raise NotImplementedError

    def summary(self) -> str:
        """stats() in a line, whose steps are rounds."""
        told = self.stats().summary().replace("up a step", "up a round")
        return f"{self.rounds} rounds, {told}"

    def __enter__(self) -> Any:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _: object) -> None:
        if error is None:
            self.finish()
            self.close()
        else:
            self._close("its training failed", _group.told(error))


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


# A forked process has nothing of its parent's engines but their memory.
os.register_at_fork(after_in_child=_sessions.clear)


@atexit.register
def _close_all() -> None:
    for session in list(_sessions):
        session._close(_group.SCRIPT_ENDED, _group.unhandled_error())
