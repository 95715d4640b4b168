"""Trains as `elastiquant train` does with an all-reduce in each step, on a GPU.

All workers are in one process: each has its turn with its own batch, and the package's
VirtualWorkers make the mean of their gradients, with the codecs, exchanges and bytes of workers
on machines of their own. Options are those of `train` that it has, and so are the files in
--out. Order and augmentation of the images have other random numbers than there, and
evaluations of fp32 and bf16 alike are in fp32.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from pathlib import Path

import torch
from torch.nn import functional as F

if not __package__:  # started by the file's path
    # At the end: beside a build the package's sources lie there, too, without their module.
    sys.path.append(str(Path(__file__).resolve().parent.parent))

try:
    import elastiquant
except ImportError as error:
    sys.exit(
        f"training on a GPU needs the package elastiquant in {sys.executable}, which cannot "
        f"import it ({error}): install it there (docs/pytorch.md), or name another --python"
    )
from elastiquant_testbed import provenance
from elastiquant_testbed.images import Images
from elastiquant_testbed.networks import NETWORKS, initialise

MOST_SKIPPED = 10  # in a row, as `train` has it
WARM_UP = 3  # runs before a graph is captured, as PyTorch asks for


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--model", required=True, choices=NETWORKS)
    parser.add_argument("--data", required=True, type=Path, help="a folder with CIFAR-10")
    parser.add_argument("--out", required=True, type=Path)
    for name, default in (
        ("--workers", 1), ("--batch", 32), ("--epochs", 10), ("--steps", 0), ("--warmup", 0),
        ("--seed", 1), ("--eval-every", 1), ("--measure-every", 50), ("--threads", 1),
    ):  # fmt: skip
        parser.add_argument(name, type=int, default=default)
    for name, default in (("--lr", 0.1), ("--momentum", 0.9), ("--weight-decay", 1e-4)):
        parser.add_argument(name, type=float, default=default)
    parser.add_argument("--codec", default="elastic:bits=4")
    parser.add_argument("--exact", default="1d")
    parser.add_argument("--exchange", default="auto")
    parser.add_argument("--precision", default="fp32", choices=("fp32", "bf16"))
    parser.add_argument("--overwrite", action="store_true")
    parser.add_argument("--quiet", action="store_true")
    return parser.parse_args(arguments)


class Turns:
    """The workers' forwards and backwards of a step: each has a batch, and a row of gradients.

    On a GPU they are graphs that were captured once, and run side by side, since one of them
    alone has too little to do for it. Only worker 0 moves the batch norms' running statistics,
    as in `train`, where the others take over its own.
    """

    def __init__(self, network: torch.nn.Module, o: argparse.Namespace, elements: int, views):
        self.device = torch.device(o.device)
        self._network, self._bf16 = network, o.precision == "bf16"
        self._parameters = list(network.parameters())
        images = torch.empty(o.workers * o.batch, 3, 32, 32, device=self.device)
        self._images = images.to(memory_format=torch.channels_last)
        self._labels = torch.zeros(o.workers * o.batch, dtype=torch.long, device=self.device)
        self.gradients = torch.zeros(o.workers, elements, device=self.device)
        self.losses = torch.zeros(o.workers, device=self.device)
        self._views = [views(row) for row in self.gradients]
        self._batch = o.batch
        self._graphs: list[tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]] = []
        if self.device.type == "cuda":
            before = [b.clone() for b in network.buffers()]
            self._graphs = [self._capture(w) for w in range(o.workers)]
            torch._foreach_copy_(list(network.buffers()), before)

    def __call__(self, images: torch.Tensor, labels: torch.Tensor) -> None:
        """Leaves the gradients and losses of these images, worker by worker."""
        self._images.copy_(images)
        self._labels.copy_(labels)
        if not self._graphs:
            for worker in range(len(self._views)):
                self._turn(worker)
            return
        here = torch.cuda.current_stream()
        for graph, stream in self._graphs:
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                graph.replay()
        for _, stream in self._graphs:
            here.wait_stream(stream)

    def _capture(self, worker: int) -> tuple[torch.cuda.CUDAGraph, torch.cuda.Stream]:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                self._turn(worker)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            self._turn(worker)
        torch.cuda.current_stream().wait_stream(stream)
        return graph, stream

    def _turn(self, worker: int) -> None:
        part = slice(worker * self._batch, (worker + 1) * self._batch)
        for module in self._network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.track_running_stats = worker == 0
        with torch.autocast(self.device.type, torch.bfloat16, self._bf16, cache_enabled=False):
            logits = self._network(self._images[part])
        loss = F.cross_entropy(logits.float(), self._labels[part])
        torch._foreach_copy_(
            self._views[worker], list(torch.autograd.grad(loss, self._parameters))
        )
        self.losses[worker].copy_(loss.detach())


class Training:
    """A run, from its options to its summary."""

    def __init__(self, o: argparse.Namespace):
        self.o = o
        device = torch.device(o.device)
        random = torch.Generator().manual_seed(o.seed)
        self.network = NETWORKS[o.model]()
        initialise(self.network, random)
        self.network.to(device, memory_format=torch.channels_last)
        self.images = Images(o.data, device, o.seed)
        self.workers = elastiquant.VirtualWorkers(
            self.network,
            o.workers,
            o.codec,
            exact=o.exact,
            exchange=o.exchange,
            seed=o.seed,
            bucket_kib=256,  # as `train` has it
            measure_every=o.measure_every,
        )
        self.optimizer = torch.optim.SGD(self._groups(), lr=o.lr, weight_decay=o.weight_decay)
        self.turns = Turns(self.network, o, self.workers.elements, self.workers.views)
        self.rows = self.workers.zeros()
        self.mean = torch.zeros(self.workers.elements, device=device)
        views = self.workers.views(self.mean)
        for parameter, view in zip(self.network.parameters(), views, strict=True):
            parameter.grad = view
        self.steps_per_epoch = len(self.images) // (o.workers * o.batch)
        if self.steps_per_epoch == 0:
            raise ValueError(
                f"{len(self.images)} images are less than one batch of all workers"
            )
        self.total_steps = o.steps or o.epochs * self.steps_per_epoch
        self.step, self.skipped, self.skipped_in_a_row = 0, 0, 0

    def run(self) -> dict:
        """The summary, as `train` has it."""
        begun, epochs = time.monotonic(), []
        for epoch in range(math.ceil(self.total_steps / self.steps_per_epoch)):
            self.workers.set_epoch(epoch)
            told = {"train_loss": self._epoch(), "seconds": time.monotonic() - begun}
            told["bytes_up"] = self.workers.stats().bytes_up
            if self._evaluates_after(epoch):
                told["test_accuracy"], told["test_loss"] = self.evaluate()
            epochs.append(told)
            if not self.o.quiet:
                print(json.dumps({"epoch": epoch + 1, **told}), flush=True)
        stats = self.workers.stats()
        return {
            "test_accuracy": epochs[-1]["test_accuracy"],
            "test_loss": epochs[-1]["test_loss"],
            "nmse": stats.nmse,
            "steps": self.step,
            "steps_per_epoch": self.steps_per_epoch,
            "skipped_steps": stats.skipped,
            "bytes_up": stats.bytes_up,
            "world_size": self.o.workers,
            "seconds": time.monotonic() - begun,
            "device_machine": self._machine(),
            "epochs": epochs,
        }

    def evaluate(self) -> tuple[float, float]:
        """Per cent of the test images that are right, and the mean loss."""
        self.network.eval()
        right, loss, n = 0, 0.0, 0
        with torch.no_grad():
            for images, labels in self.images.test_batches():
                logits = self.network(images.contiguous(memory_format=torch.channels_last))
                right += int((logits.argmax(1) == labels).sum())
                loss += float(F.cross_entropy(logits, labels, reduction="sum"))
                n += len(labels)
        self.network.train()
        return 100 * right / n, loss / n

    def _machine(self) -> str:
        if self.turns.device.type != "cuda":
            return provenance.machine()
        return f"{torch.cuda.get_device_name(self.turns.device)}, {provenance.machine()}"

    def _epoch(self) -> float:
        """The mean loss of its batches."""
        sums = torch.zeros((), device=self.mean.device)
        size = self.o.workers * self.o.batch
        steps = min(self.steps_per_epoch, self.total_steps - self.step)
        for chosen in self.images.order()[: steps * size].split(size):
            self.turns(*self.images.batch(chosen))
            sums += self.turns.losses.mean()
            self._move()
        return float(sums) / steps

    def _move(self) -> None:
        """The weights, by the mean of what the workers send."""
        self.rows.copy_(self.turns.gradients)  # waits for the device
        self.workers.all_reduce(self.rows)
        stats = self.workers.stats()
        is_skipped = stats.skipped > self.skipped
        self.skipped = stats.skipped
        self.skipped_in_a_row = self.skipped_in_a_row + 1 if is_skipped else 0
        if self.skipped_in_a_row == MOST_SKIPPED:
            raise RuntimeError(
                f"gave up at step {self.step + 1}: {MOST_SKIPPED} steps in a row were skipped, "
                f"the last one because of {stats.skip_reason}"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate()
        if not is_skipped:
            self.mean.copy_(self.rows[0])
            self.optimizer.step()
        self.step += 1

    def _rate(self) -> float:
        """A cosine, after steps in which the rate grows to its peak."""
        rising = self.o.warmup
        if self.step < rising:
            return self.o.lr * (self.step + 1) / rising
        part = (self.step - rising) / (self.total_steps - rising)
        return self.o.lr * 0.5 * (1 + math.cos(math.pi * part))

    def _evaluates_after(self, epoch: int) -> bool:
        every = self.o.eval_every
        return self.step == self.total_steps or (every > 0 and (epoch + 1) % every == 0)

    def _groups(self) -> list[dict]:
        """By momentum. What a codec with a momentum of its own leaves exact has that in the
        optimiser."""
        own = elastiquant.Codec(self.o.codec)._momentum
        by: dict[tuple[float, bool], list[torch.nn.Parameter]] = {}
        named = dict(self.network.named_parameters())
        for name, spec in self.workers.codecs.items():
            is_left = own is not None and spec == "fp32"
            by.setdefault(own if is_left else (self.o.momentum, False), []).append(named[name])
        return [
            {"params": parameters, "momentum": momentum, "nesterov": nesterov}
            for (momentum, nesterov), parameters in by.items()
        ]


def main(arguments: list[str] | None = None) -> int:
    o = parse(arguments)
    torch.set_num_threads(o.threads)
    # fp32 is fp32 here, too: convolutions would be in TF32 otherwise.
    torch.backends.cudnn.allow_tf32 = False
    o.out.mkdir(parents=True, exist_ok=True)
    try:
        summary = Training(o).run()
    except (ValueError, RuntimeError, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    (o.out / "metrics.jsonl").write_text("")
    # In one move: who sees the file takes the run for made.
    new = o.out / "summary.json.new"
    new.write_text(json.dumps(summary, indent=1) + "\n")
    os.replace(new, o.out / "summary.json")
    return 0


if __name__ == "__main__":
    sys.exit(main())
