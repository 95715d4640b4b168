"""Whether all workers go on from the same round or step, be it from loaded states or not."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from datetime import timedelta

import torch.distributed as dist

from elastiquant import _group


class SameRound:
    """Compares by the store of a meeting where workers start from: before the first round, and
    before the first one after each load.

    A worker tells the others by tell() before it sends anything, waits a little until all have
    told, and reads what they have. A place is a text, which is the same for workers that may go
    on together. Of two workers that differ at least one sees it, whoever is first, before
    either has the other's message; so no round of theirs ends, and none waits for a message
    that never comes, as would happen if they sent different fragments. Both see it if they come
    within _PATIENCE; otherwise the second one does, and the first is told by its loss (under
    on_loss="go-on" it goes on without that one). check(), when all must have told, finds those
    that were left behind, and those that have loaded nothing while this worker has.
    """

    def __init__(self, meeting: _group.Meeting, place: str, places: str = "rounds"):
        """To be called when the engine is connected: only then worker 0 keeps its store until
        all have left. `place` is where one starts that loads nothing, and `places` are what
        messages say that workers start from."""
        self._rank, self._world_size = meeting.rank, meeting.world_size
        self._timeout = meeting.timeout
        self._store: dist.Store | None = None
        if meeting.world_size > 1:
            with contextlib.suppress(RuntimeError):  # worker 0 is gone: a round tells why
                self._connect(meeting)
        self._place, self._places = place, places
        self._count = 0  # of starts that were told
        self.is_told = self.is_checked = False

    def _connect(self, meeting: _group.Meeting) -> None:
        self._store = dist.TCPStore(
            meeting.host,
            meeting.port,
            is_master=False,
            timeout=timedelta(seconds=meeting.timeout),
            wait_for_workers=False,
        )
        # Worker 0 may leave before any round, because nobody waits for a message of its. Its
        # store would end with it, while others still connect.
        until = time.monotonic() + self._timeout
        self._await_all(self._store, "elastiquant/start/connected", until)

    def start(self, place: str) -> None:
        """This worker goes on from here, and has sent nothing since."""
        self._place = place
        self.is_told = self.is_checked = False

    def tell(self) -> None:
        """Must be called before a round is sent. Raises RuntimeError, which names the rounds,
        if another worker has told that it starts elsewhere."""
        if self.is_told:
            return
        self.is_told = True
        self._count += 1
        told = self._ask(json.dumps([self._rank, self._place]) + "\n", _PATIENCE)
        if told is not None:
            self._check_equal(told)

    def check(self, lost: list[int]) -> None:
        """Must be called when something has ended that all workers have a part in, before which
        they must have told; `lost` are those that had none. Raises RuntimeError as tell() does,
        and if one has told nothing. (At the first start one can only have had nothing to do, as
        in DDP's join(): whoever has made a step has told.)"""
        if self.is_checked:
            return
        self.is_checked = True
        told = self._ask()
        if told is None:
            return
        self._check_equal(told)
        if self._count == 1:
            return
        silent = sorted(set(range(self._world_size)) - told.keys() - set(lost))
        if silent:
            raise RuntimeError(
                f"{_workers(silent)} loaded no state when the others did, which go on from "
                f"{self._place}: {_ADVICE}"
            )

    def close(self) -> None:
        self._store = None

    def _check_equal(self, told: dict[int, str]) -> None:
        """Raises RuntimeError unless all workers start from the same place."""
        workers: dict[str, list[int]] = {}
        for worker in sorted(told):
            workers.setdefault(told[worker], []).append(worker)
        if len(workers) > 1:
            starts = ", ".join(f"{_workers(w)} from {place}" for place, w in workers.items())
            raise RuntimeError(
                f"workers go on from different {self._places}, {starts}: {_ADVICE}"
            )

    def _ask(self, line: str = "", patience: float = 0) -> dict[int, str] | None:
        """Adds a line to what workers have told of this start, and returns all of it, by
        worker, once all have told something or after so many seconds. None if there is no
        answer: worker 0, which has the store, is alone, gone or frozen, and the round itself
        tells of a lost worker, with the reason."""
        store, key = self._store, f"elastiquant/start/{self._count}"
        answers: list[dict[int, str]] = []

        def ask() -> None:
            until = time.monotonic() + min(patience, self._timeout)
            with contextlib.suppress(RuntimeError):
                if line:
                    store.append(key, line)
                while True:
                    answers.append(_parse(store.get(key)))
                    if len(answers[-1]) == self._world_size or time.monotonic() >= until:
                        break
                    time.sleep(_PAUSE)
                if patience:
                    # If worker 0 raises before that, the others have no store to read from.
                    self._await_all(store, f"{key}/read", until)

        if store is not None:
            # PyTorch waits for ever for the answer of a host that is frozen.
            asking = threading.Thread(target=ask, daemon=True)
            asking.start()
            asking.join(self._timeout + min(patience, self._timeout))
        return answers[-1] if answers else None

    def _await_all(self, store: dist.Store, key: str, until: float) -> None:
        """Says that this worker has come to this point. Worker 0 waits until all have said so,
        because the store ends with it."""
        come = store.add(key, 1)
        while self._rank == 0 and come < self._world_size and time.monotonic() < until:
            time.sleep(_PAUSE)
            come = store.add(key, 0)


# Seconds that a worker waits for the others to tell where they start, and between two looks.
_PATIENCE, _PAUSE = 5.0, 0.02
_ADVICE = (
    "load on each worker the state that it has saved itself, when the others saved theirs, or "
    "load none on any"
)


def place_of(step: int, rounds: int) -> str:
    """Where workers start whose steps and rounds must be the same."""
    return f"round {rounds} (after {step} steps)"


def _parse(lines: bytes) -> dict[int, str]:
    return dict(map(json.loads, lines.decode().splitlines()))


def _workers(numbers: list[int]) -> str:
    return f"worker{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"
