"""Compares the PyTorch device of torch_tensord with PyTorch on this machine's processors, in one run.

usage: torch_device.py [--threads COUNT] [--rounds COUNT] [--filter REGEX] [--compile] [--size tiny|real|both]
                       [--latency MS] [--host] [--cpp] [--json FILE]

Both sides use the same number of threads. The rounds of both alternate, and a row has the least time of a round. A
ratio above 1 says that the device is faster. "CPU" is the processor time of a step, which other programs on the machine
disturb less: of PyTorch, of the program with the device, and of its server. The last two run at the same time. The
server is the program tensord of TENSORD_BINARY, of the interpreter's folder, or of PATH. --compile also compares
torch.compile(backend="tensord") with inductor, which needs a compiler of C++.

--latency compares the device with itself instead. One side runs training steps on a server nearby. The other side runs
them on the same server through a proxy (TENSORD_DELAY_PROXY). The proxy adds MS milliseconds to each round trip and
passes 1 GiB a second. The first side goes through a proxy without delay, because a proxy takes processor time. A step
uploads its batch, and no step waits. At the end of a round, the program waits once.

--host instead measures the processor time that a call of an op takes on the calling thread, in nanoseconds. A row has
the least time of a round. The operands have a few elements. The calls come from C++, in inference mode. The script
compiles torch_host_ops.cc, which has the list of ops and their goals.

--cpp instead runs the training steps in a program in C++, torch_training.cc, which the script builds with CMake and
Ninja. It takes --threads, --rounds and --filter.
"""

import argparse
import ctypes
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

parser = argparse.ArgumentParser()
parser.add_argument("--threads", type=int, default=os.cpu_count())
parser.add_argument("--rounds", type=int, default=7)
parser.add_argument("--filter", default="")
parser.add_argument("--compile", action="store_true")
parser.add_argument("--size", default="both", choices=["tiny", "real", "both"])
parser.add_argument("--latency", type=float, metavar="MS")
parser.add_argument("--host", action="store_true")
parser.add_argument("--cpp", action="store_true")
parser.add_argument("--json", default="")
arguments = parser.parse_args()


def start_server():
    """Starts a server that ends with this process."""
    beside = os.path.join(os.path.dirname(sys.executable), "tensord")
    binary = os.environ.get("TENSORD_BINARY") or (beside if os.path.exists(beside) else "tensord")
    folder = tempfile.mkdtemp(prefix="tensord-bench-")
    listen = f"unix:{folder}/socket" if arguments.latency is None else "127.0.0.1:0"
    command = [binary, "--until-eof", f"--listen={listen}", f"--port-file={folder}/ready"]
    process = subprocess.Popen(
        [*command, "--devices=cpu", f"--cpu-threads={arguments.threads}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
    )
    while not os.path.exists(f"{folder}/ready"):
        if process.poll() is not None:
            sys.exit(f"{binary} didn't start")
        time.sleep(0.01)
    with open(f"{folder}/ready") as file:
        os.environ["TENSORD_SERVER"] = file.read().strip()
    return process


def start_proxy(address, *limits):
    """Starts a proxy to the server, and returns its address. It ends with this process."""
    process = subprocess.Popen(
        [os.environ["TENSORD_DELAY_PROXY"], address, *limits],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: ctypes.CDLL(None).prctl(1, signal.SIGTERM),
    )
    return re.findall(r"127\.0\.0\.1:\d+", process.stdout.readline())[0]


server = start_server()
if arguments.latency is not None:
    os.environ["TENSORD_SHARED_MEMORY"] = "0"
    address = os.environ["TENSORD_SERVER"]
    far = start_proxy(address, f"--delay-ms={arguments.latency / 2}", f"--bytes-per-second={1 << 30}")
    os.environ["TENSORD_SERVERS"] = f"{start_proxy(address)},{far}"

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(arguments.threads)
DEVICES = ("cpu", "tensord:0") if arguments.latency is None else ("tensord:0", "tensord:1")


def synchronize(device):
    if device != "cpu":
        torch.tensord.synchronize(device)


# ---- models


class Block(nn.Module):
    def __init__(self, channels_in, channels_out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(channels_out)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(channels_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or channels_in != channels_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride, bias=False), nn.BatchNorm2d(channels_out)
            )

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        blocks = []
        channels = width
        for i, stride in enumerate((1, 1, 2, 1, 2, 1, 2, 1)):
            blocks.append(Block(channels, width << i // 2, stride))
            channels = width << i // 2
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(channels, 10)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class Transformer(nn.Module):
    def __init__(self, width, heads, layers, vocabulary):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.head(self.layers(self.embedding(x))).transpose(1, 2)


class Layers(nn.Module):
    """A module of recurrent layers, and a classifier of the last state."""

    def __init__(self, make, features, width):
        super().__init__()
        self.layers = make(features, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        return self.head(self.layers(x)[0][-1])


class Recurrent(nn.Module):
    """A cell of an RNN in a loop of Python."""

    def __init__(self, features, width):
        super().__init__()
        self.cell = nn.RNNCell(features, width)
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        state = torch.zeros(x.shape[1], self.cell.hidden_size, device=x.device)
        for step in x:
            state = self.cell(step, state)
        return self.head(state)


def mlp():
    return nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))


def images(batch, *shape):
    return lambda: (torch.randn(batch, *shape), torch.randint(10, (batch,)))


def tokens(batch, length, vocabulary):
    return lambda: (torch.randint(vocabulary, (batch, length)), torch.randint(vocabulary, (batch, length)))


def sequence(length, batch, features):
    return lambda: (torch.randn(length, batch, features), torch.randint(10, (batch,)))


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, foreach=True)


def adamw(parameters):
    return torch.optim.AdamW(parameters)


# name: model, data, optimizer, steps a round
TINY = {
    "MLP 784-256-10, batch 8, SGD": (mlp, images(8, 784), sgd, 50),
    "MLP, batch 8, Adam": (mlp, images(8, 784), adam, 50),
    "ResNet-18, width 8, batch 1, SGD momentum": (lambda: ResNet18(8), images(1, 3, 32, 32), momentum, 5),
    "Transformer, 4 layers of 32, batch 2x16, AdamW": (
        lambda: Transformer(32, 4, 4, 100),
        tokens(2, 16, 100),
        adamw,
        8,
    ),
    "RNN, 32 steps of 32, batch 4, SGD": (lambda: Recurrent(16, 32), sequence(32, 4, 16), sgd, 20),
    "LSTM, 32 steps of 32, batch 4, SGD": (lambda: Layers(nn.LSTM, 16, 32), sequence(32, 4, 16), sgd, 10),
    "GRU, 32 steps of 32, batch 4, SGD": (lambda: Layers(nn.GRU, 16, 32), sequence(32, 4, 16), sgd, 10),
}
REAL = {
    "MLP 784-256-10, batch 256, SGD": (mlp, images(256, 784), sgd, 20),
    "MLP, batch 256, Adam": (mlp, images(256, 784), adam, 20),
    "ResNet-18, width 32, batch 16, SGD momentum": (lambda: ResNet18(32), images(16, 3, 32, 32), momentum, 1),
    "Transformer, 4 layers of 256, batch 8x64, AdamW": (
        lambda: Transformer(256, 8, 4, 1000),
        tokens(8, 64, 1000),
        adamw,
        1,
    ),
    "RNN, 32 steps of 256, batch 64, SGD": (lambda: Recurrent(128, 256), sequence(32, 64, 128), sgd, 3),
    "LSTM, 32 steps of 256, batch 64, SGD": (lambda: Layers(nn.LSTM, 128, 256), sequence(32, 64, 128), sgd, 1),
    "GRU, 32 steps of 256, batch 64, SGD": (lambda: Layers(nn.GRU, 128, 256), sequence(32, 64, 128), sgd, 1),
}


class Training:
    """The training steps of a model on a device."""

    def __init__(self, case, device, backend=None):
        make_model, make_data, make_optimizer, self.steps = case
        torch.manual_seed(0)
        self.device = device
        self.model = make_model().to(device)
        self.x, self.y = (each.to(device) for each in make_data())
        self.optimizer = make_optimizer(self.model.parameters())
        self.function = torch.compile(self.model, backend=backend) if backend else self.model

    def step(self):
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.function(self.x), self.y)
        loss.backward()
        self.optimizer.step()
        return loss

    def __call__(self):
        for _ in range(self.steps):
            self.step()
        synchronize(self.device)
        return self.steps


class Streaming(Training):
    """Training steps that upload their batches."""

    def __init__(self, case, device):
        super().__init__(case, device)
        self.steps *= 20  # the wait at the end of a round then doesn't matter
        self.batches = [[each.pin_memory() for each in case[1]()] for _ in range(4)]

    def step(self):
        batch = self.batches[self.steps_begun % len(self.batches)]
        self.x, self.y = (each.to(self.device, non_blocking=True) for each in batch)
        self.steps_begun += 1
        return super().step()

    steps_begun = 0


class Loss:
    """The loss of a language model, and its gradient, for logits that are on a device."""

    def __init__(self, device, tokens=512, vocabulary=50257):
        torch.manual_seed(0)
        self.device = device
        self.logits = torch.randn(tokens, vocabulary).to(device).requires_grad_()
        self.targets = torch.randint(vocabulary, (tokens,)).to(device)

    def __call__(self):
        self.logits.grad = None
        F.cross_entropy(self.logits, self.targets).backward()
        synchronize(self.device)
        return 1


# ---- greedy generation


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, cache):
        batch, length, width = x.shape
        q, k, v = (
            each.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for each in self.qkv(x).split(width, dim=2)
        )
        if cache:
            k, v = torch.cat((cache[0], k), dim=2), torch.cat((cache[1], v), dim=2)
        cache[:] = k, v
        y = F.scaled_dot_product_attention(q, k, v, is_causal=length > 1)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))

    def forward(self, x, cache):
        x = x + self.attention(self.norm1(x), cache)
        return x + self.mlp(self.norm2(x))


class GPT2(nn.Module):
    """A model of the sizes of GPT-2 small, with random weights."""

    def __init__(self, vocabulary=50257, positions=1024, width=768, heads=12, layers=12):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(positions, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, start, caches):
        positions = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        x = self.tokens(tokens) + self.positions(positions)
        for layer, cache in zip(self.layers, caches):
            x = layer(x, cache)
        return self.head(self.norm(x[:, -1:]))


class Generation:
    """Generates tokens one by one. Reads each token, as a program does that stops at a certain token."""

    def __init__(self, model, device, prompt=32, count=32):
        self.model, self.device, self.count = model.to(device), device, count
        self.prompt = (torch.arange(prompt) % 1000).view(1, prompt).to(device)

    @torch.inference_mode()
    def __call__(self):
        caches = [[] for _ in self.model.layers]
        token, start = self.prompt, 0
        self.made = []
        for _ in range(self.count):
            logits = self.model(token, start, caches)
            start += token.shape[1]
            token = logits.argmax(-1)
            self.made.append(token.item())
        return self.count


def make_gpt2(device):
    torch.manual_seed(0)
    return GPT2().eval().to(device)


# ---- the table


def server_seconds():
    """Returns the processor time of the server."""
    with open(f"/proc/{server.pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(first, second):
    """Returns the least times in seconds, for a step: of both, and the processor times of both and of the server."""
    best = [float("inf")] * 4
    for _ in range(2):  # the first rounds compile kernels, and make optimizers' states
        first(), second()
    served, steps = server_seconds(), 0
    for _ in range(arguments.rounds):
        for i, each in enumerate((first, second)):
            start, used = time.perf_counter(), time.process_time()
            count = each()
            best[i] = min(best[i], (time.perf_counter() - start) / count)
            best[2 + i] = min(best[2 + i], (time.process_time() - used) / count)
            steps += i * count
    return *best, (server_seconds() - served) / steps


results = []


def report(name, peer, times):
    columns = ("peer_us", "us", "peer_cpu_us", "cpu_us", "server_cpu_us")
    row = dict(zip(columns, (1e6 * each for each in times)), name=name, peer=peer)
    row["ratio"] = row["peer_us"] / row["us"]
    results.append(row)
    figures = " | ".join(f"{row[each]:,.0f}" for each in columns)
    print(f"| {name} | {peer} | {figures} | {row['ratio']:.2f} |", flush=True)


def selected(name):
    return re.search(arguments.filter, name) is not None


def save_results():
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=2)


# ---- the time of a call


def load_host_ops():
    """Compiles torch_host_ops.cc if it has changed, and returns its functions."""
    from torch.utils import cpp_extension

    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_host_ops.cc")
    cpp_extension.load("tensord_host_ops", [source], extra_cflags=["-O2"], is_python_module=False)
    return torch.ops.tensord_bench


def report_host_times(calls=500):
    ops = load_host_ops()
    chosen = [(i, name, goal) for i, (name, goal) in enumerate(zip(ops.names(), ops.goals())) if selected(name)]
    best = {(i, device): float("inf") for i, _, _ in chosen for device in DEVICES}
    for _ in range(4 * arguments.rounds + 1):  # these rounds are short, so there are more of them
        for i, device in best:
            best[i, device] = min(best[i, device], 1e3 * ops.measure(device, i, calls))
    print("| a call | PyTorch's CPU, ns | tensord, ns | ratio | goal, ns | met |", flush=True)
    print("|---|---:|---:|---:|---:|---|", flush=True)
    for i, name, goal in chosen:
        peer, own = (best[i, device] for device in DEVICES)
        goal *= 1e3
        met = own <= goal if goal else None
        results.append(
            {"name": name, "peer_ns": peer, "ns": own, "ratio": peer / own, "goal_ns": goal or None, "met": met}
        )
        text = f"{goal:.0f} | {'yes' if met else 'no'}" if goal else "|"
        print(f"| {name} | {peer:,.0f} | {own:,.0f} | {peer / own:.2f} | {text} |", flush=True)


def report_steps_in_cpp():
    import torch_tensord

    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_training.cc")
    folder = tempfile.mkdtemp(prefix="tensord-bench-")
    with open(f"{folder}/CMakeLists.txt", "w") as file:
        file.write(f"""cmake_minimum_required(VERSION 3.25)
project(bench LANGUAGES CXX)
find_package(torch_tensord REQUIRED)
add_executable(torch_training {source})
target_link_libraries(torch_training PRIVATE torch_tensord::torch_tensord)
""")
    prefix = f"-DCMAKE_PREFIX_PATH={torch_tensord.cmake_prefix_path}"
    build = ["cmake", "-G", "Ninja", "-S", folder, "-B", folder, "-DCMAKE_BUILD_TYPE=Release", prefix]
    subprocess.run(build, check=True, stdout=sys.stderr)
    subprocess.run(["cmake", "--build", folder], check=True, stdout=sys.stderr)
    print("| a step | compared with | theirs, us | tensord, us | ratio |\n|---|---|---:|---:|---:|", flush=True)
    numbers = (str(arguments.threads), str(arguments.rounds))
    command = [f"{folder}/torch_training", os.environ["TENSORD_SERVER"], *numbers, arguments.filter]
    subprocess.run(command, check=True)


print(f"PyTorch {torch.__version__}, {arguments.threads} threads\n")
if arguments.cpp:
    report_steps_in_cpp()
    sys.exit()
if arguments.host:
    report_host_times()
    save_results()
    sys.exit()
print("| a step | compared with | theirs, us | tensord, us | CPU | CPU | server | ratio |", flush=True)
print("|---|---|---:|---:|---:|---:|---:|---:|", flush=True)
cases = ({} if arguments.size == "real" else TINY) | ({} if arguments.size == "tiny" else REAL)
for name, case in cases.items():
    if arguments.latency is not None:
        if selected(name):
            report(name, "nearby", measure(*(Streaming(case, device) for device in DEVICES)))
        continue
    if selected(name):
        report(name, "eager", measure(*(Training(case, device) for device in DEVICES)))
    if arguments.compile and selected(name + ", compiled"):
        torch._dynamo.reset()
        inductor, ours = (Training(case, d, b) for d, b in zip(DEVICES, ("inductor", "tensord")))
        report(name + ", compiled", "inductor", measure(inductor, ours))
LOSS = "loss of 512 tokens among 50,257, and gradient"
if arguments.size != "tiny" and arguments.latency is None and selected(LOSS):
    report(LOSS, "eager", measure(*(Loss(device) for device in DEVICES)))
GENERATION = "GPT-2 small, greedy, a token"
if arguments.size != "tiny" and arguments.latency is None and selected(GENERATION):
    local, remote = (Generation(make_gpt2(device), device) for device in DEVICES)
    report(GENERATION, "eager", measure(local, remote))
    if local.made != remote.made:
        print("the tokens differ")
save_results()
