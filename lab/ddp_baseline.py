#!/usr/bin/env python3
"""Times PyTorch's DistributedDataParallel on the network that ElastiQuant is measured on.

    sudo lab/netns.py --rate 20mbit -- .venv/bin/python lab/ddp_baseline.py --hook fp16

Trains ResNet-20 in its CIFAR form (269,722 parameters) on random images, one thread a worker,
and prints a JSON object from rank 0. Run it under lab/netns.py or torchrun: it reads RANK,
WORLD_SIZE, MASTER_ADDR and MASTER_PORT.
"""

import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

HOOKS = {
    "fp32": None,
    "fp16": default_hooks.fp16_compress_hook,
    "bf16": default_hooks.bf16_compress_hook,
}


class Block(nn.Module):
    """Two 3x3 convolutions, and a shortcut that subsamples and pads with zero channels."""

    def __init__(self, channels_in: int, channels: int, stride: int):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels)
        self.stride = stride
        self.padding = (channels - channels_in) // 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = F.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        if self.stride != 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.padding, self.padding))
        return F.relu(out + x)


def resnet20() -> nn.Module:
    """He et al. 2016, section 4.2, with option A shortcuts."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, 16, 3, padding=1, bias=False),
        nn.BatchNorm2d(16),
        nn.ReLU(),
    ]
    channels_in = 16
    for channels, stride in ((16, 1), (32, 2), (64, 2)):
        for block in range(3):
            layers.append(Block(channels_in, channels, stride if block == 0 else 1))
            channels_in = channels
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def measure(hook: str, batch: int, warm_up: int, steps: int) -> list[float]:
    """Seconds of each step after the warm-up, the workers starting it together."""
    model = DistributedDataParallel(resnet20())
    if HOOKS[hook] is not None:
        model.register_comm_hook(None, HOOKS[hook])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    images = torch.randn(batch, 3, 32, 32)
    labels = torch.randint(10, (batch,))
    seconds = []
    for step in range(warm_up + steps):
        if step == warm_up:
            dist.barrier()
        start = time.perf_counter()
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if step >= warm_up:
            seconds.append(time.perf_counter() - start)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--hook", choices=HOOKS, default="fp32", help="what DDP sends (fp32)")
    parser.add_argument("--batch", type=int, default=16, help="images a worker a step (16)")
    parser.add_argument("--warm-up", type=int, default=5, help="steps not counted (5)")
    parser.add_argument("--steps", type=int, default=30, help="steps counted (30)")
    arguments = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    seconds = measure(arguments.hook, arguments.batch, arguments.warm_up, arguments.steps)
    if dist.get_rank() == 0:
        result = {
            "hook": arguments.hook,
            "world_size": dist.get_world_size(),
            "batch": arguments.batch,
            "parameters": sum(p.numel() for p in resnet20().parameters()),
            "steps": arguments.steps,
            "seconds_per_step": round(statistics.fmean(seconds), 4),
            "median_seconds_per_step": round(statistics.median(seconds), 4),
        }
        print(json.dumps(result), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
