"""Links of a training in namespaces that are held to a rate from its second step on.

Before the first step worker 0 sends its weights, and the state of its optimiser, to all others.
Over a slow link that takes many times as long as an exchange, and is part of no step.
"""

from __future__ import annotations

import os
import pathlib
import signal

import namespaces


class LateLink:
    """To be called again and again while the training runs, as Network.run() does."""

    def __init__(
        self, network: namespaces.Network, bits_per_second: int, metrics: pathlib.Path
    ):
        """metrics: the metrics.jsonl of the training."""
        self._network, self._rate, self._metrics = network, bits_per_second, metrics
        self._steps: int | None = None  # that were over when the links became slow

    def __call__(self, workers: list[namespaces.Worker]) -> None:
        if self._steps is not None or not self._lines():
            return
        # Nobody gets on meanwhile, so that no exchange is fast in one part and slow in another.
        running = [worker.process.pid for worker in workers if worker.process.poll() is None]
        for pid in running:
            os.kill(pid, signal.SIGSTOP)
        try:
            self._network.hold(self._rate)
            self._steps = self._lines()
        finally:
            for pid in running:
                os.kill(pid, signal.SIGCONT)

    def check(self) -> None:
        """Raises LabError if the second step may have been over before links were slow."""
        if self._steps != 1:
            raise namespaces.LabError(
                f"links became slow after {self._steps or 'all'} steps, not after the first "
                "one: steps are too short"
            )

    def _lines(self) -> int:
        """Whole ones."""
        return self._metrics.read_bytes().count(b"\n") if self._metrics.exists() else 0
