#!/usr/bin/env python3
"""Trains with DistributedDataParallel, its gradients sent by one method, and times the steps.

    sudo lab/netns.py --rate 20mbit -- .venv/bin/python lab/ddp_methods.py --method fp16

One thread a worker; on random images, or CIFAR-10 with --data. Prints a JSON object from
rank 0. Run it under lab/netns.py or torchrun: it reads RANK, WORLD_SIZE, MASTER_ADDR and
MASTER_PORT.
ElastiQuant's methods need the package: PYTHONPATH=build/release/python, or installed.
"""

import argparse
import dataclasses
import json
import logging
import pathlib
import resource
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from images import Images
from models import MODELS
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

# Steps in which PyTorch's PowerSGD sends fp32: it needs two at least.
POWER_SGD_START = 2


def register(model: DistributedDataParallel, method: str, exchange: str, switch: bool) -> Any:
    """Makes `method` the model's; returns elastiquant's handle, if it is one of its."""
    if method == "fp32":
        return None
    if method in ("fp16", "bf16"):
        model.register_comm_hook(None, getattr(default_hooks, f"{method}_compress_hook"))
        return None
    if method.startswith("torch-powersgd"):
        rank = int(method.removeprefix("torch-powersgd"))
        state = powerSGD_hook.PowerSGDState(
            None, matrix_approximation_rank=rank, start_powerSGD_iter=POWER_SGD_START
        )
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
        return None
    import elastiquant

    return elastiquant.compress(model, method, exchange=exchange, switch=switch)


def peak_memory() -> int:
    """The most bytes that any worker's process has had in memory."""
    peak = torch.tensor([resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024])
    dist.all_reduce(peak, dist.ReduceOp.MAX)
    return int(peak)


def bytes_sent() -> int:
    """By this namespace's card, all headers included; of the machine without one."""
    cards = [p for p in pathlib.Path("/sys/class/net").iterdir() if p.name != "lo"]
    cards = [p for p in cards if p.name == "eth0"] or [pathlib.Path("/sys/class/net/lo")]
    return int((cards[0] / "statistics/tx_bytes").read_text())


class Training:
    def __init__(self, arguments: argparse.Namespace):
        self.model = DistributedDataParallel(MODELS[arguments.model]())
        self.compression = register(
            self.model, arguments.method, arguments.exchange, arguments.switch
        )
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4
        )
        total = arguments.warm_up + arguments.steps
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, max_lr=0.1, total_steps=total + 1, cycle_momentum=False
        )
        self.images = Images(
            arguments.data, dist.get_rank(), dist.get_world_size(), arguments.batch
        )

    def step(self) -> float:
        images, labels = self.images.next()
        start = time.perf_counter()
        self.optimizer.zero_grad()
        F.cross_entropy(self.model(images), labels).backward()
        self.optimizer.step()
        seconds = time.perf_counter() - start
        self.schedule.step()
        return seconds


@dataclasses.dataclass
class Timed:
    seconds: list[float]  # of each step
    sent: int  # bytes
    processor: float  # seconds of all threads of this process


def timed(step: Callable[[], float], steps: int) -> Timed:
    """All workers start together."""
    dist.barrier()
    sent, processor = bytes_sent(), time.process_time()
    seconds = [step() for _ in range(steps)]
    return Timed(seconds, bytes_sent() - sent, time.process_time() - processor)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--method",
        default="fp32",
        help="fp32, fp16, bf16, torch-powersgdRANK, or a spec of elastiquant's (fp32)",
    )
    parser.add_argument(
        "--exchange", default="auto", help="of elastiquant's, as compress() takes it (auto)"
    )
    parser.add_argument("--model", choices=MODELS, default="resnet20")
    parser.add_argument("--data", type=pathlib.Path, help="folder of CIFAR-10's .bin files")
    parser.add_argument("--batch", type=int, default=16, help="images a worker a step (16)")
    parser.add_argument("--warm-up", type=int, default=5, help="steps not counted (5)")
    parser.add_argument("--steps", type=int, default=30, help="steps counted (30)")
    parser.add_argument("--switch", action="store_true", help="send fp32 where that is faster")
    parser.add_argument("--test", action="store_true", help="test the model at the end")
    arguments = parser.parse_args()

    logging.basicConfig(stream=sys.stderr)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    training = Training(arguments)
    timed(training.step, arguments.warm_up)
    taken = timed(training.step, arguments.steps)
    peak = peak_memory()
    accuracy = None
    if dist.get_rank() == 0:
        if arguments.test:
            accuracy = training.images.test(training.model.module)
        stats = training.compression.stats() if training.compression else None
        result = {
            "method": arguments.method,
            "model": arguments.model,
            "world_size": dist.get_world_size(),
            "batch": arguments.batch,
            "parameters": sum(p.numel() for p in training.model.parameters()),
            "steps": arguments.steps,
            "seconds_per_step": round(statistics.fmean(taken.seconds), 4),
            "median_seconds_per_step": round(statistics.median(taken.seconds), 4),
            "processor_seconds_per_step": round(taken.processor / arguments.steps, 4),
            "peak_memory": peak,
            "bytes_per_step": round(taken.sent / arguments.steps),
            "test_accuracy": accuracy,
            "fp32_steps": stats.fp32_steps if stats else None,
        }
        print(json.dumps(result), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
