"""Gossip: each worker is a process of its own, with the package's Gossip."""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

import elastiquant
from elastiquant_testbed import stopping
from elastiquant_testbed.on_device.training import Training, prepare

SUMMARY = "summary.json"  # worker 0's, in the folder that the workers share
PATIENCE = timedelta(minutes=5)  # of a start beside many others


class GossipTraining(Training):
    """One worker. Its accuracy is that of the mean of all models, after the last step."""

    def __init__(self, o: argparse.Namespace, rank: int):
        super().__init__(o, rank)
        parameters = list(self.network.parameters())
        sizes = [p.numel() for p in parameters]

        def views(row: torch.Tensor) -> list[torch.Tensor]:
            # Laid out as the parameters are, so that SGD moves all of them at once.
            parts = zip(row.split(sizes), parameters, strict=True)
            return [part.as_strided(p.shape, p.stride()) for part, p in parts]

        # Before Gossip follows the network: forwards that are captured are no steps.
        self.turns = self.make_turns([self.network], sum(sizes), views)
        for parameter, view in zip(parameters, views(self.turns.gradients[0]), strict=True):
            parameter.grad = view
        self.optimizer = torch.optim.SGD(
            parameters, lr=o.lr, momentum=o.momentum, weight_decay=o.weight_decay
        )
        self.gossip = elastiquant.Gossip(
            self.optimizer,
            self.network,
            graph=o.graph,
            algorithm=o.algorithm.name,
            codec=o.codec,
            step=o.gossip_step,
            seed=o.seed,
            timeout=PATIENCE.total_seconds(),
        )
        self._distance = 0.0

    def make_step(self) -> None:
        self.move(self.optimizer)

    def evaluates_after(self, epoch: int) -> bool:
        return self.step == self.total_steps  # workers have no mean before

    def finish(self) -> None:
        self._distance = self.gossip.consensus_distance()
        self.gossip.finish()

    def stats(self) -> dict:
        return {
            **self.counted(self.gossip.stats()),
            "gossip_step": self.gossip.gossip_step,
            "consensus_distance": self._distance,
        }


def run(o: argparse.Namespace) -> dict:
    """The summary, as worker 0 has it. Raises RuntimeError with what the first worker that
    failed has said."""
    with tempfile.TemporaryDirectory() as folder:
        start = multiprocessing.get_context("spawn").Process
        workers = [start(target=_work, args=(o, r, Path(folder))) for r in range(o.workers)]
        try:
            # A child whose start is interrupted would fail at reading what it is to do.
            with stopping.afterwards():
                for worker in workers:
                    worker.start()
            for worker in workers:
                worker.join()
        finally:
            started = [worker for worker in workers if worker.pid is not None]
            for worker in started:
                worker.terminate()
            for worker in started:
                worker.join()
        errors = sorted(Path(folder).glob("error*"), key=lambda path: path.stat().st_mtime_ns)
        if errors:
            raise RuntimeError(errors[0].read_text())
        if codes := [w.exitcode for w in workers if w.exitcode != 0]:
            raise RuntimeError(f"a worker ended with exit status {codes[0]}")
        return json.loads((Path(folder) / SUMMARY).read_text())


def _work(o: argparse.Namespace, rank: int, folder: Path) -> None:
    prepare(o)
    store = dist.FileStore(str(folder / "store"), o.workers)
    dist.init_process_group(
        "gloo", store=store, rank=rank, world_size=o.workers, timeout=PATIENCE
    )
    training: GossipTraining | None = None
    try:
        training = GossipTraining(o, rank)
        summary = training.run()
        training.gossip.close()
    except Exception as error:
        at = "" if training is None else f"step {training.step + 1}: "
        (folder / f"error{rank}").write_text(f"{at}{error}")
        time.sleep(1)  # who ends first is told of as the cause, by those that wait for it
        raise SystemExit(1) from error
    if rank == 0:
        (folder / SUMMARY).write_text(json.dumps(summary))
    dist.destroy_process_group()
