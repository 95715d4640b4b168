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
        # This handler stays for later signals, which it ignores. A child that is started just
        # now would inherit SIG_IGN, and could not be ended by a signal; it inherits no handler.
        if not _State.has_come:
            _State.has_come = True
            if not _State.waits:
                raise KeyboardInterrupt

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, leave)


@contextlib.contextmanager
def afterwards() -> Iterator[None]:
    """A signal that comes within this block raises KeyboardInterrupt at its end. It is for
    starting threads and processes: one whose start is interrupted may run all the same, and is
    not known to whoever would have to end it."""
    _State.waits = True
    try:
        yield
    finally:
        _State.waits = False
    if _State.has_come:
        raise KeyboardInterrupt
