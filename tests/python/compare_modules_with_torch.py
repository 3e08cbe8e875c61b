#!/usr/bin/env python3
"""Compares the modules of client/nn with PyTorch's: names of parameters, results, and texts.

usage: compare_modules_with_torch.py --daemon PATH --run-module PATH

If numpy or torch is missing, prints the reason and exits with 77 (skipped).
"""

import argparse
import json
import pathlib
import struct
import subprocess
import sys
import tempfile

SKIPPED = 77
try:
    import numpy
    import torch
    from torch import nn
except ImportError as error:
    print(f"skipped: {error}; pip install numpy torch")
    sys.exit(SKIPPED)

from torch_models import Gpt2, ResNet18  # after the check that torch is there

DTYPES = {torch.float32: "F32", torch.int64: "I64", torch.bool: "BOOL"}
NUMPY = {"F32": "<f4", "I64": "<i8", "U8": "u1"}


def write_safetensors(path, tensors):
    header, data = {}, b""
    for name, value in tensors.items():
        value = value.contiguous()
        raw = value.numpy().tobytes()
        header[name] = {
            "dtype": DTYPES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    raw = path.read_bytes()
    begin = 8 + struct.unpack_from("<Q", raw)[0]
    header = json.loads(raw[8:begin])
    tensors = {}
    for name, entry in header.items():
        if name != "__metadata__":
            first, last = (begin + offset for offset in entry["data_offsets"])
            array = numpy.frombuffer(raw[first:last], NUMPY[entry["dtype"]])
            tensors[name] = torch.from_numpy(array.copy().reshape(entry["shape"]))
    return tensors


# ---------------------------------------------------------------- cases


def forward(module, inputs):
    return {"y": module(inputs["x"])}


def attend(module, inputs):
    query = inputs["x"]
    causal = "is_causal" in inputs
    length = query.shape[1 if module.batch_first else 0]
    mask = torch.ones(length, length).triu(1).bool() if causal else inputs.get("attn_mask")
    return {
        "y": module(
            query,
            inputs.get("key", query),
            inputs.get("value", query),
            attn_mask=mask,
            key_padding_mask=inputs.get("key_padding_mask"),
            need_weights=False,
        )[0]
    }


def encode(module, inputs):
    return {
        "y": module(inputs["x"], src_mask=inputs.get("attn_mask"), src_key_padding_mask=inputs.get("key_padding_mask"))
    }


def recur(module, inputs):
    state = inputs.get("h")
    if state is not None and "c" in inputs:
        state = (state, inputs["c"])
    y, last = module(inputs["x"], state)
    if isinstance(last, tuple):
        return {"y": y, "h": last[0], "c": last[1]}
    return {"y": y, "h": last}


def generate(module, inputs):
    y = module(inputs["x"])
    # The logits after a prompt of three tokens, and after each further token.
    return {"y": y, "steps": torch.cat(list(y[:, 2:].unbind(1)))}


def cases():
    """Yields the name in run_module.cc, PyTorch's module, its function, and inputs."""
    normal = torch.randn
    image = normal(2, 4, 9, 8)
    recurrent = {"num_layers": 2, "batch_first": True, "bidirectional": True}
    pools = nn.Sequential(
        nn.MaxPool2d(3, 2, 1), nn.AvgPool2d(2, 1), nn.AdaptiveAvgPool2d((2, 1)), nn.Flatten(), nn.Identity()
    )
    for x in (normal(2, 4, 11), normal(4, 11)):
        yield "conv1d", nn.Conv1d(4, 6, 3, 2, 1, groups=2), forward, {"x": x}
    for x in (image, image[0]):
        yield "conv2d", nn.Conv2d(4, 8, (3, 2), (2, 1), (1, 0), (1, 2)), forward, {"x": x}
    yield "conv2d_without_bias", nn.Conv2d(3, 5, 1, bias=False), forward, {"x": normal(2, 3, 4, 4)}
    yield "pools", pools, forward, {"x": normal(2, 3, 9, 8)}
    yield "batch_norm1d", nn.BatchNorm1d(4), forward, {"x": normal(3, 4)}
    yield "batch_norm1d", nn.BatchNorm1d(4), forward, {"x": normal(3, 4, 5)}
    yield "batch_norm2d", nn.BatchNorm2d(4, eps=1e-3), forward, {"x": image}
    yield "layer_norm", nn.LayerNorm((3, 5)), forward, {"x": normal(2, 3, 5)}
    yield ("layer_norm_without_affine", nn.LayerNorm(5, elementwise_affine=False), forward, {"x": normal(2, 5)})
    yield "rms_norm", nn.RMSNorm(5), forward, {"x": normal(2, 5)}
    yield "embedding", nn.Embedding(7, 5), forward, {"x": torch.randint(7, (2, 3))}
    attention = nn.MultiheadAttention(12, 3)
    padding = torch.tensor([[False] * 5, [False, False, False, True, True]])
    mask = torch.rand(4, 5) < 0.3
    mask[:, 0] = False
    x, memory, other = normal(4, 2, 12), normal(5, 2, 12), normal(5, 2, 12)
    yield "attention", attention, attend, {"x": x}
    yield "attention", attention, attend, {"x": normal(4, 12)}
    yield "attention", attention, attend, {"x": x, "is_causal": torch.ones(1)}
    yield "attention", attention, attend, {"x": x, "key": memory, "value": memory, "attn_mask": mask}
    yield ("attention", attention, attend, {"x": x, "key": memory, "value": other, "key_padding_mask": padding})
    yield (
        "attention",
        attention,
        attend,
        {"x": x, "key": memory, "value": other, "attn_mask": mask, "key_padding_mask": padding},
    )
    yield ("attention", attention, attend, {"x": x, "key": memory, "value": other, "attn_mask": normal(4, 5)})
    yield (
        "attention_batch_first",
        nn.MultiheadAttention(12, 3, bias=False, batch_first=True),
        attend,
        {"x": normal(2, 4, 12)},
    )
    yield (
        "encoder",
        nn.TransformerEncoderLayer(12, 3, 24, batch_first=True),
        encode,
        {"x": normal(2, 5, 12), "key_padding_mask": padding},
    )
    yield (
        "encoder_norm_first",
        nn.TransformerEncoderLayer(12, 3, 24, activation="gelu", norm_first=True, bias=False),
        encode,
        {"x": normal(4, 2, 12), "attn_mask": mask[:, :4]},
    )
    lstm, gru = nn.LSTM(5, 4, **recurrent), nn.GRU(5, 4, **recurrent)
    x, h, c = normal(3, 6, 5), normal(4, 3, 4), normal(4, 3, 4)
    yield "lstm", lstm, recur, {"x": x}
    yield "lstm", lstm, recur, {"x": x, "h": h, "c": c}
    yield "gru", gru, recur, {"x": x}
    yield "gru", gru, recur, {"x": x, "h": h}
    yield "lstm_small", nn.LSTM(5, 4, bias=False), recur, {"x": normal(6, 5)}
    yield "gru_small", nn.GRU(5, 4), recur, {"x": normal(6, 2, 5)}
    yield "resnet18", ResNet18(10), forward, {"x": normal(2, 3, 64, 64)}
    yield "gpt2", Gpt2(50, 16, 64, 2, 4), generate, {"x": torch.randint(50, (2, 9))}


def randomize(module):
    """Gives parameters and running statistics values that tests can tell apart."""
    with torch.no_grad():
        for name, value in module.state_dict(keep_vars=True).items():
            if value.dtype != torch.float32:
                continue
            if name.endswith("running_var"):
                value.uniform_(0.5, 2)
            elif value.dim() == 1:
                value.add_(torch.randn(value.shape) * 0.3)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--run-module", required=True)
    options = parser.parse_args()
    torch.manual_seed(0)
    failures = count = 0
    with tempfile.TemporaryDirectory() as name_of_folder:
        folder = pathlib.Path(name_of_folder)
        socket = f"unix:{folder}/socket"
        daemon = subprocess.Popen(
            [options.daemon, f"--listen={socket}", "--devices=cpu", "--until-eof", f"--port-file={folder}/port"],
            stdin=subprocess.PIPE,
        )
        try:
            for number, (name, module, function, inputs) in enumerate(cases()):
                randomize(module)
                module.eval()
                state = {f"state.{key}": value for key, value in module.state_dict().items()}
                write_safetensors(folder / "in", state | inputs)
                result = subprocess.run(
                    [options.run_module, socket, name, folder / "in", folder / "out"],
                    capture_output=True,
                    text=True,
                    timeout=120,
                )
                count += 1
                if result.returncode != 0:
                    print(f"{name}: {result.stderr}")
                    failures += 1
                    continue
                got = read_safetensors(folder / "out")
                with torch.no_grad():
                    wanted = function(module, inputs)
                for key, value in wanted.items():
                    if got[key].shape != value.shape:
                        print(
                            f"{name} (case {number}): {key} has shape {tuple(got[key].shape)}, not {tuple(value.shape)}"
                        )
                        failures += 1
                    elif not torch.allclose(got[key], value, rtol=1e-4, atol=1e-4):
                        print(f"{name} (case {number}): {key} differs by {(got[key] - value).abs().max().item():.2g}")
                        failures += 1
                text = bytes(got["text"].numpy()).decode()
                if type(module).__module__.startswith("torch.nn") and name not in TEXTS_DIFFER:
                    if text != repr(module):
                        print(f"{name}: the text is\n{text}\nnot\n{module!r}")
                        failures += 1
        finally:
            daemon.stdin.close()
            daemon.wait(timeout=60)
    print(f"{count} cases, {failures} failures")
    return 1 if failures else 0


# PyTorch's text of these names a class of its own, or options that the module lacks.
TEXTS_DIFFER = {"attention", "attention_batch_first", "encoder", "encoder_norm_first"}

if __name__ == "__main__":
    sys.exit(main())
