"""Accelerate: torchrun --standalone --nproc-per-node=2 examples/frameworks/accelerate_ddp.py"""

import torch
from accelerate import Accelerator
from torch import nn

import elastiquant

accelerator = Accelerator(cpu=True)
torch.manual_seed(0)  # the same data and weights on all workers
model = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
inputs = torch.randn(4096, 64)
data = torch.utils.data.TensorDataset(inputs, inputs[:, :10].argmax(1))
loader = torch.utils.data.DataLoader(data, batch_size=32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)

compression = elastiquant.compress(model, "dither:bits=1", optimizer=optimizer)

for x, y in loader:
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    accelerator.backward(loss)
    optimizer.step()
accelerator.print(f"loss {loss.item():.3f}, {compression.metric}, {compression.summary()}")
accelerator.end_training()
