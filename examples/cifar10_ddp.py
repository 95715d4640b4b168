"""ResNet-20 on CIFAR-10 with DistributedDataParallel and compressed gradients.

    torchrun --standalone --nproc-per-node=2 examples/cifar10_ddp.py --data cifar-10-batches-bin

--data is the folder of CIFAR-10's binary version (https://www.cs.toronto.edu/~kriz/cifar.html);
without it images are made, for a try: ten patterns under noise.
"""

import argparse
import pathlib
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import elastiquant


class Block(nn.Module):
    def __init__(self, given: int, channels: int):
        super().__init__()
        stride = 1 if given == channels else 2
        self.conv = nn.Sequential(
            *(nn.Conv2d(given, channels, 3, stride, 1, bias=False), nn.BatchNorm2d(channels)),
            *(nn.ReLU(), nn.Conv2d(channels, channels, 3, 1, 1, bias=False)),
            nn.BatchNorm2d(channels),
        )
        self.skip = nn.Conv2d(given, channels, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.conv(x) + self.skip(x))


def resnet20() -> nn.Module:
    layers = [nn.Conv2d(3, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU()]
    widths = [16] * 4 + [32] * 3 + [64] * 3
    layers += map(Block, widths[:-1], widths[1:])
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def read(folder: pathlib.Path | None, train: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Images of mean 0, and their classes."""
    if folder is None:
        random = torch.Generator().manual_seed(int(train))
        classes = torch.randint(10, (2048 if train else 256,), generator=random)
        patterns = torch.randn(10, 3, 4, 4, generator=torch.Generator().manual_seed(2))
        noise = torch.randn(len(classes), 3, 32, 32, generator=random)
        return F.interpolate(patterns, scale_factor=8)[classes] + noise, classes
    names = [f"data_batch_{i}.bin" for i in range(1, 6)] if train else ["test_batch.bin"]
    data = b"".join((folder / name).read_bytes() for name in names)
    rows = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, 3073)
    return rows[:, 1:].view(-1, 3, 32, 32).float() / 64 - 2, rows[:, 0].long()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--codec", default="dither:bits=2")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--batch", type=int, default=32, help="images a worker a step")
    parser.add_argument("--link", help='a slow link to emulate: "20mbit,10ms"')
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # of batches; DDP gives all workers the weights of the first
    model = DistributedDataParallel(resnet20())
    compression = elastiquant.compress(model, args.codec, link=args.link)  # the one line
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=args.steps)

    images, classes = (t[rank::workers] for t in read(args.data, train=True))
    begun = time.monotonic()
    for step in range(1, args.steps + 1):
        chosen = torch.randint(len(images), (args.batch,))
        x = images[chosen].flip(3) if step % 2 else images[chosen]
        loss = F.cross_entropy(model(x), classes[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if rank == 0 and step % 10 == 0:
            each = (time.monotonic() - begun) / step
            line = f"step {step}: loss {loss:.3f}, {each:.3f} s, {compression.summary()}"
            print(f"\r{line:120}", end="", flush=True)
    if rank == 0:
        model.eval()
        with torch.no_grad():
            images, classes = read(args.data, train=False)
            right = [model.module(x).argmax(1) for x in images.split(250)]
        print(f"\ntest accuracy {(torch.cat(right) == classes).float().mean():.1%}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
