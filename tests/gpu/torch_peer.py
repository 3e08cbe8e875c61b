"""Runs PyTorch for gpu_bench: the same ops as the device layer, with the same data.

usage: torch_peer.py [--cpu]     --cpu: run on the CPU if there is no GPU, to try this script

Protocol (tests/bench/peer.h): prints "ready VERSIONS" or "skip REASON". Then reads commands, one per
line, and answers each with one line:
  load OP SPEC… [FLAG…]   ok 0            creates the operands of an op, for example
                                          load matmul float16:512,512 float16:512,512 tf32=0
  load chain N, load program OP STEPS SHAPE VALUE, load upload BYTES, load download BYTES
  run N                   ok SECONDS      the time of N repetitions and of the wait for their end
  checksum                ok WEIGHTED NORM
  flags                   ok NAME=VALUE…  the settings of PyTorch that choose between algorithms
  kernels                 ok NAME, …      the GPU's kernels in one repetition, as PyTorch's profiler names them
If a command fails, the answer is "error REASON". Operand i has the data of seed i + 1, as in test_data.h.
"""

import sys
import time
from typing import Any

try:
    import torch
    import torch.nn.functional as F
except ImportError as error:
    print(f"skip {error}", flush=True)
    sys.exit(0)

WEIGHT_SEED = 0xC0FFEE
MASK = 0xFFFFFFFF
DTYPES = {
    "bool": torch.bool,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
}
ON_GPU = torch.cuda.is_available()
DEVICE = "cuda" if ON_GPU else "cpu"


def hash_at(count, seed):
    """Returns HashAt(i, seed) of test_data.h for i = 0 … count - 1. The int64 products may overflow; their low 32 bits
    are right."""
    x = torch.arange(count, dtype=torch.int64, device=DEVICE)
    x = (x + seed * 0x9E3779B9) & MASK
    x = ((x ^ (x >> 16)) * 0x7FEB352D) & MASK
    x = ((x ^ (x >> 15)) * 0x846CA68B) & MASK
    return x ^ (x >> 16)


def value_at(count, seed):
    return (hash_at(count, seed) >> 8).to(torch.float32) * 2.0**-23 - 1


def make_data(spec, seed):
    dtype_name, _, dims = spec.partition(":")
    shape = [int(d) for d in dims.split(",") if d]
    count = 1
    for d in shape:
        count *= d
    if dtype_name == "bool":
        return ((hash_at(count, seed) >> 8) & 1).to(torch.bool).reshape(shape)
    return value_at(count, seed).to(DTYPES[dtype_name]).reshape(shape)


def synchronize():
    if ON_GPU:
        torch.cuda.synchronize()


def ints(text):
    return [int(word) for word in text.split(",")]


def permuted(x, flags):
    return x.permute(ints(flags["axes"])).contiguous()


def summed(x, flags):
    return x.sum(dim=ints(flags["axes"])) if "axes" in flags else x.sum()


ACTIVATIONS = {"gelu": F.gelu, "gelu_tanh": lambda y: F.gelu(y, approximate="tanh")}
OPS: dict[str, Any] = {
    "matmul": lambda flags, a, b: a @ b,
    "linear": lambda flags, x, w, b: ACTIVATIONS[flags["activation"]](F.linear(x, w, b)),
    "conv": lambda flags, x, w, b: F.relu(F.conv2d(x, w, b, padding=int(flags["padding"]))),
    "conv_backward_input": lambda flags, g, w: torch.nn.grad.conv2d_input(
        ints(flags["shape"]), w, g, padding=int(flags["padding"])
    ),
    "conv_backward_weight": lambda flags, g, x: torch.nn.grad.conv2d_weight(
        x, ints(flags["shape"]), g, padding=int(flags["padding"])
    ),
    "add": lambda flags, a, b: a + b,
    "neg": lambda flags, x: -x,
    "exp": lambda flags, x: torch.exp(x),
    "gelu": lambda flags, x: F.gelu(x),
    "cast": lambda flags, x: x.to(DTYPES[flags["dtype"]]),
    "where": lambda flags, c, x, y: torch.where(c, x, y),
    "sum": lambda flags, x: summed(x, flags),
    "max": lambda flags, x: torch.amax(x, dim=ints(flags["axes"])),
    "softmax": lambda flags, x: torch.softmax(x, dim=int(flags["axis"])),
    "permute": lambda flags, x: permuted(x, flags),
}


class Repeated:
    """Repeats the same work. Keeps the last result."""

    def __init__(self, work):
        self.work = work
        self.result = None

    def run(self, count):
        for _ in range(count):
            self.result = self.work()
        synchronize()


class Chain:
    """Computes y = y + x, count times."""

    def __init__(self, elements):
        self.x = torch.ones(elements, device=DEVICE)

    def run(self, count):
        y = self.x
        for _ in range(count):
            y = y + self.x
        synchronize()


def load_op(words):
    specs = [word for word in words[1:] if ":" in word]
    flags = dict(word.split("=") for word in words[1:] if "=" in word)
    tf32 = flags.get("tf32") == "1"
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    # Convolutions that give the same bits each time, as in the device layer.
    torch.backends.cudnn.deterministic = True
    # Partial sums in float32, as in the device layer.
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    inputs = [make_data(spec, i + 1) for i, spec in enumerate(specs)]
    op = OPS[words[0]]
    return Repeated(lambda: op(flags, *inputs))


def load_program(op, steps, shape, value):
    """Returns a chain of ops as a CUDA graph. Without a GPU, the ops run one by one."""
    x = torch.full([int(d) for d in shape.split("x")], float(value), device=DEVICE)

    def body():
        y = x
        for _ in range(int(steps)):
            y = y @ x if op == "matmul" else y + x
        return y

    if not ON_GPU:
        return Repeated(body)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.cuda.synchronize()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        body()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = body()

    def replay():
        graph.replay()
        return kept

    return Repeated(replay)


def load_transfer(direction, size):
    host = torch.ones(int(size), dtype=torch.uint8)
    there = host.to(DEVICE)

    def upload():
        return host.to(DEVICE, copy=True)

    def download():
        host.copy_(there)
        return host

    return Repeated(upload if direction == "upload" else download)


def load(words):
    if words[0] == "chain":
        return Chain(int(words[1]))
    if words[0] == "program":
        return load_program(*words[1:])
    if words[0] in ("upload", "download"):
        return load_transfer(words[0], words[1])
    return load_op(words)


def checksum(result):
    y = result.reshape(-1).to(torch.float64)
    weights = value_at(y.numel(), WEIGHT_SEED).to(torch.float64)
    return f"{(y * weights).sum().item()!r} {y.norm().item()!r}"


def versions():
    if not ON_GPU:
        return f"{torch.__version__} on the CPU"
    return (
        f"{torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}, "
        f"{torch.cuda.get_device_name()}"
    )


def settings():
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return (
        f"cudnn.allow_tf32={cudnn.allow_tf32} cudnn.deterministic={cudnn.deterministic} "
        f"cudnn.benchmark={cudnn.benchmark} matmul.allow_tf32={matmul.allow_tf32}"
    )


def kernels(work):
    if not ON_GPU:
        return "none, the CPU computes"
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        work.run(1)
    names = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    return ", ".join(dict.fromkeys(names)) or "none"


def answer(work, words):
    """Executes a command. Returns the work that is loaded after it, and the answer."""
    if words[0] == "load":
        work = None  # frees its memory before the next work allocates
        if ON_GPU:
            torch.cuda.empty_cache()
        return load(words[1:]), "0"
    if words[0] == "run":
        synchronize()
        start = time.perf_counter()
        work.run(int(words[1]))
        return work, repr(time.perf_counter() - start)
    if words[0] == "checksum":
        return work, checksum(work.result)
    if words[0] == "flags":
        return work, settings()
    if words[0] == "kernels":
        return work, kernels(work)
    raise ValueError(f"unknown command: {words[0]}")


def main():
    if not ON_GPU and "--cpu" not in sys.argv[1:]:
        print("skip PyTorch finds no GPU", flush=True)
        return
    print(f"ready {versions()}", flush=True)
    work = None
    with torch.inference_mode():
        for line in sys.stdin:
            words = line.split()
            try:
                if words[0] == "load":
                    work = None
                work, text = answer(work, words)
                print(f"ok {text}", flush=True)
            except Exception as error:  # only this row fails
                print("error " + " ".join(str(error).split())[:500], flush=True)


if __name__ == "__main__":
    main()
