"""The peak memory of PyTorch models: on the CPU, and on a device of a tensord server. Protocol: peer.h.

A question is "MODEL MODE [ADDRESS]". MODE is "train", a forward and a backward pass, "adam", the same and a step of
Adam, or "infer", a forward pass. With the address of a server that has computed nothing else, the model runs on its
first device. Otherwise it runs on the CPU. The answer is the peak in bytes, as the device or PyTorch's CPU allocator
counts it. It includes parameters, inputs and gradients. If this Python lacks torch_tensord, questions with an address
are answered with an error.
"""

import os
import subprocess
import sys
from importlib import metadata

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../python"))


def make(name):
    """Returns a model, an input, and a target or None: the loss is then the mean of the output."""
    import torch
    from torch import nn
    from torch_models import Gpt2, ResNet18

    if name == "resnet18":
        return ResNet18(1000), torch.randn(1, 3, 224, 224), torch.tensor([3])
    if name == "gpt2":
        return Gpt2(), torch.randint(50257, (1, 256)), torch.randint(50257, (256,))
    if name == "mlp":
        model = nn.Sequential(nn.Linear(784, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 10))
        return model, torch.randn(512, 784), torch.randint(10, (512,))
    if name == "lenet":
        model = nn.Sequential(
            nn.Conv2d(1, 6, 5, padding=2),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(6, 16, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(400, 120),
            nn.ReLU(),
            nn.Linear(120, 84),
            nn.ReLU(),
            nn.Linear(84, 10),
        )
        return model, torch.randn(256, 1, 28, 28), torch.randint(10, (256,))
    if name == "encoder":
        return nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True), torch.randn(8, 256, 512), None
    if name == "lstm":
        return nn.LSTM(256, 512, num_layers=2, batch_first=True), torch.randn(16, 64, 256), None
    raise ValueError(f"no model {name}")


def run(model, x, target, mode):
    import torch

    if mode == "infer":
        with torch.inference_mode():
            if hasattr(model, "append"):
                model.append(x, 0, [None] * len(model.h))  # the logits after the last token
            else:
                model(x)
        return
    y = model(x)
    if isinstance(y, tuple):
        y = y[0]
    if target is None:
        loss = y.mean()
    else:
        loss = torch.nn.functional.cross_entropy(y.reshape(-1, y.shape[-1]), target)
    del y
    loss.backward()
    if mode == "adam":
        torch.optim.Adam(model.parameters(), fused=True).step()


def peak_on_server(name, mode):
    import torch

    if not hasattr(torch, "tensord"):
        sys.exit("torch_tensord isn't installed")
    model, x, target = make(name)
    model = model.to("tensord").train(mode != "infer")
    x = x.to("tensord")
    target = None if target is None else target.to("tensord")
    run(model, x, target, mode)
    torch.tensord.synchronize()
    return torch.tensord.max_memory_allocated()


def peak_on_cpu(name, mode):
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        model, x, target = make(name)
        model.train(mode != "infer")
        run(model, x, target, mode)
    events = sorted(
        (event for event in trace.profiler.kineto_results.events() if event.name() == "[memory]"),
        key=lambda event: event.start_ns(),
    )
    used = peak = 0
    for event in events:
        used += event.nbytes()
        peak = max(peak, used)
    return peak


def answer(name, mode, address=None):
    """Runs the model in a process of its own, because a process uses one server."""
    environment = dict(os.environ)
    if address:
        environment["TENSORD_SERVERS"] = address
    command = [sys.executable, __file__, name, mode, "server" if address else "cpu"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    lines = done.stdout.split() if done.returncode == 0 else done.stderr.strip().splitlines()
    if done.returncode == 0:
        return f"ok {lines[-1]}"
    return f"error {lines[-1] if lines else done.returncode}"


def main():
    try:
        version = metadata.version("torch")
    except metadata.PackageNotFoundError:
        print("skip PyTorch isn't installed", flush=True)
        return
    if int(version.split(".")[0]) < 2:
        print(f"skip PyTorch {version} is older than 2", flush=True)
        return
    print("ready", flush=True)
    for line in sys.stdin:
        print(answer(*line.split()), flush=True)


if len(sys.argv) > 1:
    print((peak_on_server if sys.argv[3] == "server" else peak_on_cpu)(sys.argv[1], sys.argv[2]))
else:
    main()
