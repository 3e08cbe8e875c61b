"""The models of client/examples in PyTorch."""

import torch
from torch import nn


class BasicBlock(nn.Module):
    def __init__(self, before, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(before, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = None
        if stride != 1 or before != channels:
            self.downsample = nn.Sequential(
                nn.Conv2d(before, channels, 1, stride, bias=False), nn.BatchNorm2d(channels)
            )

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        before = 64
        for i in range(1, 5):
            channels = 32 << i
            setattr(
                self,
                f"layer{i}",
                nn.Sequential(BasicBlock(before, channels, 1 if i == 1 else 2), BasicBlock(channels, channels, 1)),
            )
            before = channels
        self.fc = nn.Linear(before, classes)

    def forward(self, x):
        y = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        for i in range(1, 5):
            y = getattr(self, f"layer{i}")(y)
        return self.fc(y.mean((-2, -1)))


class Gpt2Block(nn.Module):
    """A block with a cache of keys and values, which are views of two tensors for all positions."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x, begin=0, cache=None):
        batch, length, width = x.shape
        q, k, v = (
            part.reshape(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.attn.c_attn(self.ln_1(x)).split(width, 2)
        )
        if cache is not None:
            end = begin + length
            for all_positions, part in zip(cache, (k, v)):
                all_positions[:, :, begin:end] = part
            k, v = (all_positions[:, :, :end] for all_positions in cache)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=begin == 0)
        x = x + self.attn.c_proj(y.transpose(1, 2).reshape(x.shape))
        hidden = nn.functional.gelu(self.mlp.c_fc(self.ln_2(x)), approximate="tanh")
        return x + self.mlp.c_proj(hidden)


class Gpt2(nn.Module):
    def __init__(self, vocabulary=50257, positions=1024, width=768, layers=12, heads=12):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.h = nn.ModuleList(Gpt2Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)

    def forward(self, tokens):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T

    def make_cache(self):
        positions, width = self.wpe.weight.shape
        heads = self.h[0].heads
        shape = (1, heads, positions, width // heads)
        return [(torch.zeros(shape), torch.zeros(shape)) for _ in self.h]

    def append(self, tokens, begin, cache):
        """Returns the logits after the last of the tokens, which come at the position `begin`. A
        later token comes alone."""
        x = self.wte(tokens) + self.wpe.weight[begin : begin + tokens.shape[1]]
        for block, own in zip(self.h, cache):
            x = block(x, begin, own)
        return self.ln_f(x[:, -1]) @ self.wte.weight.T


class Decoder:
    """Generates tokens after a prompt, greedily. At the limit of the length, begins again after the prompt."""

    def __init__(self, model, prompt, limit):
        self.model, self.prompt, self.limit = model, prompt, limit
        self.cache = model.make_cache()
        self.begin = prompt.shape[1]
        self.token = model.append(prompt, 0, self.cache).argmax(1, keepdim=True)

    def step(self):
        if self.begin == self.limit:
            self.begin = self.prompt.shape[1]
        self.token = self.model.append(self.token, self.begin, self.cache).argmax(1, keepdim=True)
        self.begin += 1
