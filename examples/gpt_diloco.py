"""A small byte-level GPT whose workers train alone and meet every 32 steps, in one bit a value.

    torchrun --standalone --nproc-per-node=2 examples/gpt_diloco.py --text book.txt --save run

Run it again to go on from the last checkpoint in --save. Without --text it reads the sources of
Python's own library.
"""

import argparse
import os
import pathlib
import sysconfig

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

import elastiquant

CONTEXT = 128  # bytes


class Layer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend_in, self.attend_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU())
        self.mlp.append(nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = self.attend_in(self.norm1(x)).chunk(3, -1)
        q, k, v = (t.unflatten(-1, (-1, 32)).transpose(1, 2) for t in parts)  # heads of 32
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attend_out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.embed, self.place = nn.Embedding(256, width), nn.Embedding(CONTEXT, width)
        self.layers = nn.Sequential(*(Layer(width) for _ in range(4)), nn.LayerNorm(width))
        self.head = nn.Linear(width, 256, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(self.embed(tokens) + self.place.weight))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=pathlib.Path, help="a file")
    parser.add_argument("--save", type=pathlib.Path, help="folder of checkpoints")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--every", type=int, default=32, help="steps between two rounds")
    parser.add_argument("--codec", default="dither:bits=1")
    parser.add_argument("--width", type=int, default=128, help="a multiple of 32")
    args = parser.parse_args()

    dist.init_process_group("gloo")
    rank, first = dist.get_rank(), 0
    model = GPT(args.width)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    diloco = elastiquant.DiLoCo(model, optimizer, every=args.every, codec=args.codec)
    kept = {"model": model, "optimizer": optimizer, "diloco": diloco}
    # Between two rounds workers have models of their own, and so have checkpoints.
    checkpoint = args.save / f"worker{rank}.pt" if args.save else None
    if checkpoint and checkpoint.exists():
        saved = torch.load(checkpoint)
        first = saved["step"]
        for name, thing in kept.items():
            thing.load_state_dict(saved[name])

    library = sorted(pathlib.Path(sysconfig.get_path("stdlib")).glob("*.py"))
    data = b"".join(f.read_bytes() for f in ([args.text] if args.text else library))
    text = torch.frombuffer(bytearray(data), dtype=torch.uint8)
    for step in range(first + 1, args.steps + 1):
        random = torch.Generator().manual_seed(step * dist.get_world_size() + rank)
        starts = torch.randint(len(text) - CONTEXT, (16, 1), generator=random)
        tokens = text[starts + torch.arange(CONTEXT + 1)].long()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if rank == 0 and step % 10 == 0:
            print(f"step {step}: {loss / 0.6931:.2f} bits a byte, {diloco.summary()}")
        if checkpoint and (step % 100 == 0 or step == args.steps):
            saved = {name: thing.state_dict() for name, thing in kept.items()}
            args.save.mkdir(exist_ok=True)
            torch.save(saved | {"step": step}, checkpoint.with_suffix(".new"))
            os.replace(checkpoint.with_suffix(".new"), checkpoint)  # whole, or not at all
    diloco.finish()  # all workers now have the same model
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
