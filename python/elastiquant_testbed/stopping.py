"""What ends an experiment from outside ends its children and its namespaces, too."""

from __future__ import annotations

import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def on_signals() -> None:
    """Turns the first of these signals into KeyboardInterrupt, so that all that is under way
    is taken down on the way out. Further ones are ignored, as they would interrupt that. Those
    that are ignored already, as under nohup, stay so."""

    def leave(*_: object) -> None:
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    for number in SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, leave)
