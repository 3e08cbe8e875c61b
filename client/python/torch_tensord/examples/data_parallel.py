"""Trains on several devices, one process for each: DistributedDataParallel over the devices of the servers.

usage: TENSORD_SERVERS=gpu-a:50051,gpu-b:50051 torchrun --nproc-per-node=2 data_parallel.py [--steps 50]

Each process sees all devices of all servers, and uses the one with its rank. The servers exchange the gradients; the
processes only send commands.
"""

import argparse
import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=50)
arguments = parser.parse_args()

if "RANK" not in os.environ:
    sys.exit("data_parallel.py: start it with torchrun: torchrun --nproc-per-node=2 data_parallel.py")
rank = int(os.environ["RANK"])
count = torch.tensord.device_count()
if count <= rank:
    sys.exit(
        f"data_parallel.py: the process of rank {rank} needs the device tensord:{rank}, but the number of devices is "
        f"{count}. Name more servers in TENSORD_SERVERS, or start fewer processes: torchrun --nproc-per-node"
    )
device = torch.device("tensord", rank)
torch.tensord.set_device(device)
dist.init_process_group("tensord")

torch.manual_seed(0)  # the same model in each process; DistributedDataParallel copies rank 0's anyway
model = nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 4)).to(device)
model = DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
teacher = torch.randn(32, 4)

torch.manual_seed(rank + 1)  # each process has its own part of the data
for _ in range(arguments.steps):
    x = torch.randn(64, 32)
    y = (x @ teacher).argmax(1)
    loss = F.cross_entropy(model(x.to(device, non_blocking=True)), y.to(device, non_blocking=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
loss = loss.detach()
dist.all_reduce(loss, op=dist.ReduceOp.AVG)
weight = next(model.parameters()).sum().item()
print(f"rank {rank} on {torch.tensord.get_device_name(device)}: loss {loss.item():.4f}, weights {weight:.6f}")
dist.destroy_process_group()
