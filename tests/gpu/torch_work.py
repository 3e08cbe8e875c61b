"""The work of torch_rows.py: each row is a function that makes work for a device.

Work is called with a number of repetitions. It returns values that both devices must agree on: losses of training
steps, or sums of results.
"""

import torch
from torch import nn
from torch.nn import functional as F


def choose_repeatable_kernels():
    """Makes PyTorch on CUDA choose convolutions that give the same bits each time, and sums in float32, as tensord does."""
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


class Block(nn.Module):
    """A basic block of ResNet."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.shortcut = nn.Sequential()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        return F.relu(y + self.shortcut(x))


def resnet18(classes, width=64):
    stages, inputs = [], width
    for outputs, stride in ((width, 1), (2 * width, 2), (4 * width, 2), (8 * width, 2)):
        stages += [Block(inputs, outputs, stride), Block(outputs, outputs, 1)]
        inputs = outputs
    stem = [nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    return nn.Sequential(*stem, *stages, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * width, classes))


class Layer(nn.Module):
    """A layer of GPT-2. If it has a cache, it appends its keys and values to the cache."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend, self.project = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.widen, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, cache=None):
        n, t, width = x.shape
        q, k, v = (
            part.view(n, t, self.heads, width // self.heads).transpose(1, 2)
            for part in self.attend(self.norm1(x)).split(width, dim=2)
        )
        if cache is not None:
            if cache:
                k, v = torch.cat([cache[0], k], 2), torch.cat([cache[1], v], 2)
            cache[:] = [k, v]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=t > 1)
        x = x + self.project(y.transpose(1, 2).reshape(n, t, width))
        return x + self.narrow(F.gelu(self.widen(self.norm2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, tokens, context, width, heads, layers):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, ids, caches=None, start=0):
        place = torch.arange(start, start + ids.shape[1], device=ids.device)
        x = self.tokens(ids) + self.positions(place)
        for i, layer in enumerate(self.layers):
            x = layer(x, caches[i] if caches else None)
        return self.norm(x) @ self.tokens.weight.t()


def gpt2(tiny):
    return Gpt2(97, 32, 32, 2, 2) if tiny else Gpt2(50257, 1024, 768, 12, 12)


def training(model, x, y, optimizer, device, precision):
    """Returns work: training steps, whose last loss it returns."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    model = model.to(device, dtype)
    x, y = (x.to(dtype) if x.is_floating_point() else x).to(device), y.to(device)
    stepper = optimizer(model.parameters())

    def work(count):
        for _ in range(count):
            stepper.zero_grad()
            logits = model(x)
            loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), y.reshape(-1))
            loss.backward()
            stepper.step()
        return [loss.item()]

    return work


def train_mlp(device, tiny, precision):
    width = 16 if tiny else 1024
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    x, y = torch.randn(8 if tiny else 256, width), torch.randint(10, (8 if tiny else 256,))
    return training(model, x, y, lambda p: torch.optim.Adam(p, lr=1e-3), device, precision)


def train_resnet18(device, tiny, precision):
    n, size = (8, 64) if tiny else (32, 224)
    x, y = torch.randn(n, 3, size, size), torch.randint(10, (n,))
    model = resnet18(10, width=4 if tiny else 64)
    return training(model, x, y, lambda p: torch.optim.SGD(p, lr=1e-3, momentum=0.9), device, precision)


def train_gpt2(device, tiny, precision):
    ids = torch.randint(97 if tiny else 50257, (2, 9) if tiny else (4, 257))
    adam = lambda p: torch.optim.AdamW(p, lr=1e-4)
    return training(gpt2(tiny), ids[:, :-1].contiguous(), ids[:, 1:].contiguous(), adam, device, precision)


def generate(device, tiny, precision):
    """Generates tokens with a cache. Returns the tokens."""
    torch.backends.cuda.matmul.allow_tf32 = False
    model = gpt2(tiny).to(device, torch.bfloat16 if precision == "bfloat16" else torch.float32).eval()
    prompt = torch.randint(97 if tiny else 50257, (1, 8)).to(device)
    length = 4 if tiny else 64

    def work(count):
        with torch.no_grad():
            for _ in range(count):
                caches, ids, made, start = [[] for _ in model.layers], prompt, [], 0
                for _ in range(length):
                    logits = model(ids, caches, start)
                    start += ids.shape[1]
                    ids = logits[:, -1].argmax(-1, keepdim=True)
                    made.append(ids)
                tokens = torch.cat(made, 1).cpu()[0].tolist()
        return tokens

    return work


def small_adds(device, tiny, in_place):
    x, one = torch.zeros(1024, device=device), torch.ones(1024, device=device)

    def work(count):
        y = x.clone()
        for _ in range(10 if tiny else 1000):
            y = y.add_(one) if in_place else y + one
        return [y.sum().item()]

    return lambda count: [work(count) for _ in range(count)][-1]


def add_and_item(device, tiny):
    x = torch.zeros((), device=device)
    return lambda count: [[(x + 1).item()] for _ in range(count)][-1]


def transfer(device, tiny, direction):
    host = torch.arange(1 << (12 if tiny else 24), dtype=torch.float32)
    there = host.to(device)

    def work(count):
        for _ in range(count):
            copy = host.to(device) if direction == "upload" else there.cpu()
        return [copy[-1].item()]

    return work


ROWS = {"add and item": add_and_item}
for _precision in ("float32", "tf32", "bfloat16"):
    for _model in (train_mlp, train_resnet18, train_gpt2):
        ROWS[f"{_model.__name__} {_precision}"] = lambda d, t, m=_model, p=_precision: m(d, t, p)
for _precision in ("float32", "bfloat16"):
    ROWS[f"generate {_precision}"] = lambda d, t, p=_precision: generate(d, t, p)
ROWS["small adds"] = lambda d, t: small_adds(d, t, False)
ROWS["small adds in place"] = lambda d, t: small_adds(d, t, True)
for _direction in ("upload", "download"):
    ROWS[f"{_direction} 64 MiB"] = lambda d, t, w=_direction: transfer(d, t, w)
ROWS = {name.replace(" ", "_"): make for name, make in ROWS.items()}  # the protocol separates words by spaces


def make(row, kind, tiny):
    torch.manual_seed(7)  # parameters and data are made on the CPU, so both devices get the same
    return ROWS[row](torch.device(kind), tiny)
