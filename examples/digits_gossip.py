"""A small network whose workers average with two neighbours each, in one bit a value.

    torchrun --standalone --nproc-per-node=2 examples/digits_gossip.py --graph ring

There is no all-reduce: a step waits for the neighbours alone. Each worker sees pictures of some
of the ten classes only, and still learns all of them from the others. The pictures are made.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import elastiquant

CLASSES, SIDE = 10, 12


def pictures(count: int, classes: torch.Tensor, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A pattern for each class, under noise; of these classes only."""
    patterns = torch.randn(CLASSES, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(seed)
    labels = classes[torch.randint(len(classes), (count,), generator=random)]
    noise = 1.5 * torch.randn(count, 1, SIDE, SIDE, generator=random)
    return F.interpolate(patterns, scale_factor=SIDE // 4)[labels] + noise, labels


def network() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(
            nn.Flatten(),
            nn.Linear(32 * (SIDE // 4) ** 2, 64),
            nn.ReLU(),
            nn.Linear(64, CLASSES),
        ),
    )


def accuracy(model: nn.Module) -> float:
    images, labels = pictures(1000, torch.arange(CLASSES), seed=1)
    model.eval()
    with torch.no_grad():
        right = (model(images).argmax(1) == labels).float().mean().item()
    model.train()
    return right


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--graph", default="one-peer-exponential")
    parser.add_argument("--algorithm", default="choco")
    parser.add_argument("--codec", default="dither:bits=1")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--link", help='a slow link to emulate: "20mbit,100ms"')
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    gossip = elastiquant.Gossip(  # all that is new
        optimizer,
        model,
        graph=args.graph,
        algorithm=args.algorithm,
        codec=args.codec,
        link=args.link,
    )
    if rank == 0:
        print(f"{args.graph}: neighbours {gossip.neighbours}, gap {gossip.spectral_gap:.2f}")
    mine = torch.arange(CLASSES)[rank::workers]
    for step in range(1, args.steps + 1):
        images, labels = pictures(32, mine, seed=1000 * step + rank)
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print(f"step {step}: loss {loss:.3f}, {gossip.summary()}")
    alone, apart = accuracy(model), gossip.consensus_distance()
    gossip.finish()  # all workers now have the mean of all models
    if rank == 0:
        print(
            f"accuracy {alone:.1%} of worker 0's model (models are {apart:.2g} from the mean)"
        )
        print(f"accuracy {accuracy(model):.1%} of the mean")
    gossip.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
