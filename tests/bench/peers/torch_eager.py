"""PyTorch run eagerly from Python, used if its C++ headers aren't installed. Protocol: peer.h."""

import os
import sys
import time
from typing import Any


def main():
    try:
        import torch
    except ImportError as error:
        print(f"skip PyTorch isn't installed ({error})", flush=True)
        return
    torch.set_num_threads(os.cpu_count())
    kept = {}

    def tensors(key, *shapes):
        if key not in kept:
            kept.clear()
            kept[key] = [torch.rand(*shape) for shape in shapes]
        return kept[key]

    def chain(n):
        x, one = torch.zeros(64), torch.ones(64)
        start = time.perf_counter()
        for _ in range(n):
            x = x + one
        return n / (time.perf_counter() - start)

    def matmul(n, count):
        a, b = tensors(("matmul", n), (n, n), (n, n))
        start = time.perf_counter()
        for _ in range(count):
            torch.matmul(a, b)
        return 2e-9 * n * n * n * count / (time.perf_counter() - start)

    def linear(batch, features_in, features_out, count):
        x, weight, bias = tensors("linear", (batch, features_in), (features_out, features_in), (features_out,))
        start = time.perf_counter()
        for _ in range(count):
            torch.nn.functional.gelu(torch.nn.functional.linear(x, weight, bias))
        return 2e-9 * batch * features_in * features_out * count / (time.perf_counter() - start)

    def elementwise(n):
        (x,) = tensors(("elementwise", n), (n,))
        start = time.perf_counter()
        y = x * 1.5
        y = y + 0.5
        y = y.abs()
        y = y.sqrt()
        y = y * 2.0
        y = y - 1.0
        y = y.relu()
        y = -y
        return 1e3 * (time.perf_counter() - start)

    known: dict[str, Any] = {"chain": chain, "matmul": matmul, "linear": linear, "elementwise": elementwise}
    print("ready", flush=True)
    with torch.inference_mode():
        for line in sys.stdin:
            what, *figures = line.split()
            print("ok", known[what](*map(int, figures)), flush=True)


main()
