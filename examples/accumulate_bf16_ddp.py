"""Gradient accumulation with no_sync() and bf16 autocast, under compressed gradients.

    torchrun --standalone --nproc-per-node=2 examples/accumulate_bf16_ddp.py

Gradients are summed on each worker for --accumulate batches, and go out with the last one:
compressed once, so that bytes and rounding are those of one large batch. The task is made up:
which of ten hidden directions does each vector follow most?
"""

import argparse
import contextlib

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import elastiquant


def make_batch(size: int, random: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    hidden = torch.randn(64, 10, generator=torch.Generator().manual_seed(1))
    vectors = torch.randn(size, 64, generator=random)
    return vectors, (vectors @ hidden).argmax(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--codec", default="topk:ratio=0.05|ef")
    parser.add_argument("--steps", type=int, default=300, help="of the optimizer")
    parser.add_argument("--accumulate", type=int, default=4, help="batches a step")
    parser.add_argument("--batch", type=int, default=32)
    args = parser.parse_args()

    # On GPUs: "nccl", torch.cuda.set_device(), .cuda() and torch.autocast("cuda").
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 512), nn.GELU(), nn.Linear(512, 512), nn.GELU())
    model = DistributedDataParallel(net.append(nn.Linear(512, 10)))
    compression = elastiquant.compress(model, args.codec, measure_every=10)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    random = torch.Generator().manual_seed(100 + rank)

    for step in range(args.steps):
        optimizer.zero_grad()
        for part in range(args.accumulate):
            last = part + 1 == args.accumulate
            with contextlib.nullcontext() if last else model.no_sync():
                vectors, classes = make_batch(args.batch, random)
                with torch.autocast("cpu", dtype=torch.bfloat16):
                    scores = model(vectors)
                loss = F.cross_entropy(scores.float(), classes) / args.accumulate
                loss.backward()
        # All workers see the same gradient here, so clipping is the same too. A worker's NaN or
        # infinity is a NaN on all of them.
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm.isfinite():
            optimizer.step()
        if rank == 0 and (step + 1) % 10 == 0:
            right = (scores.argmax(1) == classes).float().mean()
            print(f"step {step + 1}: {right:.0%} right, {compression.summary()}", flush=True)

    if rank == 0:
        print("layer, bits a value, relative error")
        for layer in compression.layers():
            print(f"{layer.name or 'all'}, {layer.bits:.2f}, {layer.nmse or 0:.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
