"""What all algorithms share on a device: images, epochs, the rate, evaluations, the summary."""

from __future__ import annotations

import argparse
import json
import math
import time

import torch
from torch.nn import functional as F

import elastiquant
from elastiquant_testbed import provenance
from elastiquant_testbed.on_device.images import Images
from elastiquant_testbed.on_device.networks import NETWORKS, initialise
from elastiquant_testbed.on_device.turns import Turns, Views

MOST_SKIPPED = 10  # in a row, as `train` has it


def prepare(o: argparse.Namespace) -> None:
    """To be called once in each process that trains."""
    torch.set_num_threads(o.threads)
    # fp32 is fp32 here, too: convolutions would be in TF32 otherwise.
    torch.backends.cudnn.allow_tf32 = False


class Training:
    """A run, from its options to its summary, of one process.

    An algorithm has `turns`, and makes a step of what they leave.
    """

    turns: Turns
    averaged = "steps"  # what has one mean each, in words of errors

    def __init__(self, o: argparse.Namespace, rank: int | None = None):
        """rank: of the one worker of this process; None if it has all of them."""
        self.o, self._rank = o, rank
        self.device = torch.device(o.device)
        self.network = NETWORKS[o.model]()
        initialise(self.network, torch.Generator().manual_seed(o.seed))
        self.network.to(self.device, memory_format=torch.channels_last)
        self.images = Images(o.data, self.device, o.seed, rank)
        self.steps_per_epoch = len(self.images) // (o.workers * o.batch)
        if self.steps_per_epoch == 0:
            raise ValueError(
                f"{len(self.images)} images are less than one batch of all workers"
            )
        self.total_steps = o.steps or o.epochs * self.steps_per_epoch
        self.step, self.skipped_in_a_row = 0, 0

    def make_step(self) -> None:
        """Moves the weights after the turns of step number `step`."""
        raise NotImplementedError

    def finish(self) -> None:
        """After the last step, before its evaluation."""

    def stats(self) -> dict:
        """What the summary has of skipped_steps, bytes_up and nmse."""
        raise NotImplementedError

    def set_epoch(self, epoch: int) -> None:
        """An epoch begins, from 0."""

    def evaluates_after(self, epoch: int) -> bool:
        every = self.o.eval_every
        return self.step == self.total_steps or (every > 0 and (epoch + 1) % every == 0)

    def evaluated(self) -> torch.nn.Module:
        """The network that the run stands for at this step."""
        return self.network

    def run(self) -> dict:
        """The summary, with the keys of `train`'s that experiments read. Seconds are not by
        phase, and bytes of an epoch are those that it has sent, as `train` has it."""
        begun, epochs = time.monotonic(), []
        ended, sent = begun, 0  # at the end of the epoch before
        for epoch in range(math.ceil(self.total_steps / self.steps_per_epoch)):
            self.set_epoch(epoch)
            told = {"train_loss": self._epoch()}
            if self.step == self.total_steps:
                self.finish()
            now, sent_now = time.monotonic(), self.stats()["bytes_up"]
            told |= {"seconds": now - ended, "bytes_up": sent_now - sent}
            ended, sent = now, sent_now
            if self.evaluates_after(epoch):
                told["test_accuracy"], told["test_loss"] = self.evaluate()
            epochs.append(told)
            if not self.o.quiet and not self._rank:
                print(json.dumps({"epoch": epoch + 1, **told}), flush=True)
        stats = self.stats()
        return {
            "algorithm": self.o.algorithm.spec,
            "test_accuracy": epochs[-1]["test_accuracy"],
            "test_loss": epochs[-1]["test_loss"],
            "steps": self.step,
            "steps_per_epoch": self.steps_per_epoch,
            **stats,
            "bits_per_coordinate": self._bits(stats["bytes_up"]),
            "world_size": self.o.workers,
            "seconds": time.monotonic() - begun,
            "device_machine": self._machine(),
            "epochs": epochs,
        }

    def evaluate(self) -> tuple[float, float]:
        """Per cent of the test images that are right, and the mean loss."""
        network = self.evaluated()
        network.eval()
        right, loss, n = 0, 0.0, 0
        with torch.no_grad():
            for images, labels in self.images.test_batches():
                logits = network(images.contiguous(memory_format=torch.channels_last))
                right += int((logits.argmax(1) == labels).sum())
                loss += float(F.cross_entropy(logits, labels, reduction="sum"))
                n += len(labels)
        network.train()
        return 100 * right / n, loss / n

    def make_turns(self, networks: list, elements: int, views: Views, **more) -> Turns:
        bf16 = self.o.precision == "bf16"
        return Turns(networks, self.o.batch, elements, views, bf16=bf16, **more)

    @staticmethod
    def counted(stats: elastiquant.Stats) -> dict:
        """What the summary has of a session's statistics."""
        return {
            "nmse": stats.nmse,
            "skipped_steps": stats.skipped,
            "bytes_up": stats.bytes_up,
        }

    def move(self, optimizer: torch.optim.Optimizer) -> None:
        """The optimiser's step number `step`, at its rate."""
        for group in optimizer.param_groups:
            group["lr"] = self.rate(self.step)
        optimizer.step()

    def rate(self, step: int) -> float:
        """A cosine, after steps in which the rate grows to its peak."""
        rising = self.o.warmup
        if step < rising:
            return self.o.lr * (step + 1) / rising
        part = (step - rising) / (self.total_steps - rising)
        return self.o.lr * 0.5 * (1 + math.cos(math.pi * part))

    def count_skipped(self, is_skipped: bool, reason: str) -> None:
        """Raises RuntimeError after too many in a row."""
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if is_skipped else 0
        if self.skipped_in_a_row == MOST_SKIPPED:
            raise RuntimeError(
                f"gave up at step {self.step + 1}: {MOST_SKIPPED} {self.averaged} in a row "
                f"were skipped, the last one because of {reason}"
            )

    def _epoch(self) -> float:
        """The mean loss of its batches."""
        sums = torch.zeros((), device=self.device)
        of_all = self.o.workers * self.o.batch
        steps = min(self.steps_per_epoch, self.total_steps - self.step)
        for chosen in self.images.order()[: steps * of_all].split(of_all):
            own = chosen if self._rank is None else chosen.view(-1, self.o.batch)[self._rank]
            self.turns(*self.images.batch(own))
            sums += self.turns.losses.mean()
            self.make_step()
            self.step += 1
        return float(sums) / steps

    def _bits(self, sent: int) -> float:
        """Bits for each 32 of an all-reduce of fp32 at every step."""
        parameters = sum(p.numel() for p in self.network.parameters())
        whole = 2 * (self.o.workers - 1) / self.o.workers * 4 * parameters * self.step
        return 32 * sent / whole if whole else 0.0

    def _machine(self) -> str:
        if self.device.type != "cuda":
            return provenance.machine()
        return f"{torch.cuda.get_device_name(self.device)}, {provenance.machine()}"
