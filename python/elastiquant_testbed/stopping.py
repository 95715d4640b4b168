"""What ends an experiment from outside ends its children and its namespaces, too."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class _State:
    waits = False  # until a section is over that must not be interrupted
    has_come = False  # one of the signals


def on_signals() -> None:
    """Turns the first of these signals into KeyboardInterrupt, so that all that is under way
    is taken down on the way out. Further ones are ignored, as they would interrupt that. Those
    that are ignored already, as under nohup, stay so."""

    def leave(*_: object) -> None:
        # Handlers stay where SIG_IGN would be kept by a child that starts in this moment.
        if not _State.has_come:
            _State.has_come = True
            if not _State.waits:
                raise KeyboardInterrupt

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, leave)


@contextlib.contextmanager
def afterwards() -> Iterator[None]:
    """Has a signal that comes meanwhile interrupt at the end: a thread whose start is
    interrupted runs all the same, and nobody knows of it."""
    _State.waits = True
    try:
        yield
    finally:
        _State.waits = False
    if _State.has_come:
        raise KeyboardInterrupt
