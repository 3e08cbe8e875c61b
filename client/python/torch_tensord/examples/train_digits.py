"""Trains a small convolutional network on handwritten digits, saves a checkpoint, and continues from it.

usage: train_digits.py [--device tensord:0] [--epochs 6] [--compile] [--checkpoint FILE]

The only line about the device is its name. If FILE exists, the training continues from it, also on another server.
"""

import argparse
import pathlib

import numpy
import tensord
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

DATA = pathlib.Path(__file__).parents[4] / "tests" / "data" / "digits.safetensors"

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="tensord:0")
parser.add_argument("--epochs", type=int, default=6)
parser.add_argument("--compile", action="store_true", help="run each graph as a program of the server")
parser.add_argument("--checkpoint", type=pathlib.Path)
arguments = parser.parse_args()


def load_digits():
    """Returns the images, 8 by 8 pixels from 0 to 1, and the digits."""
    arrays = {name: torch.from_numpy(numpy.array(x.numpy())) for name, x in tensord.load_safetensors(str(DATA)).items()}
    return arrays["images"].float().view(-1, 1, 8, 8), arrays["labels"].long()


torch.manual_seed(0)
images, labels = load_digits()
training = TensorDataset(images[:1200], labels[:1200])
loader = DataLoader(training, batch_size=100, shuffle=True, pin_memory=True)

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1),
    nn.ReLU(),
    nn.Flatten(),
    nn.Linear(32 * 16, 10),
).to(arguments.device)
optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, fused=True)
first = 0
if arguments.checkpoint and arguments.checkpoint.exists():
    state = torch.load(arguments.checkpoint, map_location=arguments.device)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["epoch"] + 1
    print(f"continues with epoch {first}")
forward = torch.compile(model, backend="tensord") if arguments.compile else model

for epoch in range(first, arguments.epochs):
    model.train()
    total = torch.zeros((), device=arguments.device)
    for x, y in loader:
        x, y = x.to(arguments.device, non_blocking=True), y.to(arguments.device, non_blocking=True)
        loss = F.cross_entropy(forward(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.detach()  # loss.item() would wait in each step
    print(f"epoch {epoch}: loss {total.item() / len(loader):.4f}")
    if arguments.checkpoint:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
        unfinished = arguments.checkpoint.with_name(arguments.checkpoint.name + ".new")
        torch.save(state, unfinished)
        unfinished.replace(arguments.checkpoint)  # after an interruption, the old or the new file is there and complete

model.eval()
with torch.no_grad():
    guessed = model(images[1200:].to(arguments.device)).argmax(1).cpu()
print(f"{(guessed == labels[1200:]).sum()} of {len(guessed)} test digits are right")
