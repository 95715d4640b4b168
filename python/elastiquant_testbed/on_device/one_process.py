"""What algorithms share whose workers are all in one process: the mean of what they send."""

from __future__ import annotations

import argparse

import torch

import elastiquant
from elastiquant_testbed.on_device.training import Training

BUCKET_KIB = 256  # as `train` has it


class OneProcess(Training):
    """The package's VirtualWorkers average what the workers send."""

    def __init__(self, o: argparse.Namespace, measure_every: int):
        super().__init__(o)
        self.workers = elastiquant.VirtualWorkers(
            self.network,
            o.workers,
            o.codec,
            exact=o.exact,
            exchange=o.exchange,
            seed=o.seed,
            bucket_kib=BUCKET_KIB,
            measure_every=measure_every,
        )
        self._rows = self.workers.zeros()
        self._skipped = 0

    def average(self, sent: torch.Tensor) -> torch.Tensor | None:
        """The mean of what the workers send, a row each, on the host; None if it is skipped
        because a number is not finite. Raises RuntimeError after too many in a row."""
        self._rows.copy_(sent)  # waits for the device
        self.workers.all_reduce(self._rows)
        stats = self.workers.stats()
        is_skipped = stats.skipped > self._skipped
        self._skipped = stats.skipped
        self.count_skipped(is_skipped, stats.skip_reason)
        return None if is_skipped else self._rows[0]

    def stats(self) -> dict:
        return self.counted(self.workers.stats())
