"""Generates tokens with a model of the shape of GPT-2, token by token, with a cache of keys and values.

usage: generate.py [--device tensord:0] [--layers 12] [--width 768] [--tokens 20]

The weights are random, so the tokens mean nothing. The time is what a model with real weights takes.
"""

import argparse
import time

import torch
from torch import nn
from torch.nn import functional as F

parser = argparse.ArgumentParser()
parser.add_argument("--device", default="tensord:0")
parser.add_argument("--layers", type=int, default=12)
parser.add_argument("--width", type=int, default=768)
parser.add_argument("--heads", type=int, default=12)
parser.add_argument("--vocabulary", type=int, default=50257)
parser.add_argument("--tokens", type=int, default=20)
arguments = parser.parse_args()


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))

    def attend(self, x, cache):
        batch, length, width = x.shape
        parts = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = parts.unbind(0)
        if cache:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        cache[:] = k, v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x, cache):
        x = x + self.attend(self.norm1(x), cache)
        return x + self.mlp(self.norm2(x))


class Model(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, positions=1024):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, start, caches):
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache)
        return self.head(self.norm(x[:, -1:]))


torch.manual_seed(0)
model = Model(arguments.vocabulary, arguments.width, arguments.heads, arguments.layers).eval().to(arguments.device)
prompt = torch.arange(16).view(1, 16) % arguments.vocabulary
token, start, made = prompt.to(arguments.device), 0, []
caches = [[] for _ in model.layers]
with torch.inference_mode():
    began = time.perf_counter()
    for _ in range(arguments.tokens):
        logits = model(token, start, caches)
        start += token.shape[1]
        token = logits.argmax(-1)
        made.append(token)  # stays on the device: the next step doesn't wait for it
    tokens = torch.cat(made, dim=1).tolist()[0]  # waits
print(" ".join(map(str, tokens)))
print(f"{(time.perf_counter() - began) / arguments.tokens * 1e3:.1f} ms a token")
