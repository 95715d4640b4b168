"""Three workers under compress(), and the same three in one process: virtual_workers_test.py
starts it."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from virtual_workers_test import average, gradient, loss_of, make_model

import elastiquant

CODECS = ("dither:bits=2", "elastic:bits=4|rans", "topk:ratio=0.1", "qsgd:bits=4")
STEPS = 4  # DDP has its buckets in the order of backward from the second or third on

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
for codec in CODECS:
    ddp = DistributedDataParallel(make_model())
    elastiquant.compress(ddp, codec, seed=5, switch=False)
    alone = make_model()
    workers = elastiquant.VirtualWorkers(alone, world, codec, seed=5)
    for step in range(STEPS):
        ddp.zero_grad()
        loss_of(ddp, rank, step).backward()
        found = average(workers, alone, step)
    assert torch.equal(found, gradient(ddp.module)), codec
print("same bits", flush=True)
dist.destroy_process_group()
