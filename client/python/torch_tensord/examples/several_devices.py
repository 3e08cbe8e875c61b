"""Splits a model between two devices, which may be on different servers.

usage: several_devices.py        with TENSORD_SERVERS=gpu-a:50051,gpu-b:50051, or a server with several devices
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

count = torch.tensord.device_count()
if count == 0:
    sys.exit(
        "several_devices.py: there is no server. Start one with `tensord --devices=cpu,cpu` on this machine, or name "
        "yours: TENSORD_SERVERS=gpu-a:50051,gpu-b:50051"
    )
for i in range(count):
    print(f"tensord:{i} is {torch.tensord.get_device_name(i)} at {torch.tensord.get_device_server(i)}")
first, second = torch.device("tensord", 0), torch.device("tensord", min(1, count - 1))


class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(16, 64), nn.ReLU()).to(first)
        self.decoder = nn.Linear(64, 2).to(second)

    def forward(self, x):
        return self.decoder(self.encoder(x).to(second))  # the servers copy; this program doesn't wait


torch.manual_seed(0)
model = Split()
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
x = torch.randn(256, 16)
y = (x[:, 0] > x[:, 1]).long().to(second)
x = x.to(first)
for step in range(30):
    loss = F.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 10 == 9:
        print(f"step {step}: loss {loss.item():.4f}")
