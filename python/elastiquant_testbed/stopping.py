"""What ends an experiment from outside ends its children and its namespaces, too."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

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


@contextlib.contextmanager
def pool(threads: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that wait for processes. They are all done at the end of the block. If an error
    or a signal ends the block, waiting tasks are not begun, and the processes are ended."""
    made = ThreadPoolExecutor(threads)
    try:
        yield made
    except BaseException:
        _end(made)
        raise
    made.shutdown()


def _end(pool: ThreadPoolExecutor) -> None:
    """Ends the processes that the pool's threads wait for, and those that they still start,
    until all threads have ended."""
    pool.shutdown(wait=False, cancel_futures=True)
    waiting = threading.Thread(target=pool.shutdown)
    waiting.start()
    while waiting.is_alive():
        end_children()
        waiting.join(0.05)


def end_children() -> None:
    """Ends the processes that this one has started, in any thread."""
    for listed in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(FileNotFoundError):  # the thread has ended
            for child in listed.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(child), signal.SIGTERM)
