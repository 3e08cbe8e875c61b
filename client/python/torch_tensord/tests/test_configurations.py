"""Compares results and gradients of the ops of networks with PyTorch's in float64 on the CPU, for random
configurations: shapes, strides, options and dtypes."""

import random

import pytest
import torch
from torch.nn import functional as F

DEVICE = "tensord"
CONFIGURATIONS = 50
# The largest difference, relative to the largest element of the result.
TOLERANCES = {torch.float32: 2e-5, torch.float64: 1e-11, torch.bfloat16: 3e-2, torch.float16: 4e-3}
DTYPES = (torch.float32, torch.float32, torch.float64, torch.bfloat16, torch.float16)
PADDING_MODES = ("zeros",) * 5 + ("reflect", "replicate", "circular")


class Draw:
    """Random shapes, options and values. The sequence depends only on the seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def number(self, low, high):
        return self.random.randint(low, high)

    def numbers(self, count, low, high):
        return [self.number(low, high) for _ in range(count)]

    def choose(self, *values):
        return self.random.choice(values)

    def values(self, *shape):
        """Returns values with the strides of a transposed tensor, of a slice or of channels_last, or contiguous."""
        kind = self.number(0, 4)
        if kind == 0 and len(shape) > 1:
            return torch.randn(shape[1:] + shape[:1], generator=self.generator).movedim(-1, 0)
        if kind == 1 and shape:
            return torch.randn((*shape[:-1], 2 * shape[-1] + 1), generator=self.generator)[..., 1::2]
        x = torch.randn(shape, generator=self.generator)
        if kind == 2 and len(shape) in (4, 5):
            return x.to(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
        return x


def conv(draw):
    axes = draw.number(1, 3)
    groups = draw.choose(1, 1, 2, 3)
    mode = draw.choose(*PADDING_MODES)
    kernel, dilation = draw.numbers(axes, 1, 4), draw.numbers(axes, 1, 2)
    padding = draw.numbers(axes, 0, 2)
    stride = draw.numbers(axes, 1, 3)
    sizes = [(k - 1) * d + draw.number(1, 5) for k, d in zip(kernel, dilation, strict=True)]
    # PyTorch reflects and wraps fewer elements than an axis has.
    padding = [min(p, size - 1) for p, size in zip(padding, sizes, strict=True)]
    channels = groups * draw.number(1, 4)
    outputs = groups * draw.number(1, 4)
    batch = draw.choose([], [1], [2], [3])
    operands = [draw.values(*batch, channels, *sizes), draw.values(outputs, channels // groups, *kernel)]
    if draw.choose(True, False):
        operands.append(draw.values(outputs))
    function = (F.conv1d, F.conv2d, F.conv3d)[axes - 1]

    def run(x, weight, bias=None):
        options = {"stride": stride, "dilation": dilation, "groups": groups}
        if mode == "zeros":
            return function(x, weight, bias, padding=padding, **options)
        around = [p for size in reversed(padding) for p in (size, size)]
        return function(F.pad(x, around, mode=mode), weight, bias, **options)

    return run, operands, f"conv{axes}d {mode} {kernel} {stride} {padding} {dilation} {groups}"


def conv_transpose(draw):
    axes, groups = draw.number(1, 3), draw.choose(1, 2)
    kernel, stride, dilation = draw.numbers(axes, 1, 3), draw.numbers(axes, 1, 3), draw.numbers(axes, 1, 2)
    padding = [draw.number(0, (k - 1) * d // 2) for k, d in zip(kernel, dilation, strict=True)]
    extra = [draw.number(0, s - 1) for s in stride]
    channels, outputs = groups * draw.number(1, 3), draw.number(1, 3)
    operands = [draw.values(draw.number(1, 2), channels, *draw.numbers(axes, 1, 4))]
    operands += [draw.values(channels, outputs, *kernel), draw.values(groups * outputs)]
    function = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[axes - 1]
    what = f"conv_transpose{axes}d {kernel} {stride} {padding} {extra} {dilation} {groups}"
    return lambda x, w, b: function(x, w, b, stride, padding, extra, groups, dilation), operands, what


def attention(draw):
    shared, group = draw.number(1, 3), draw.choose(1, 1, 2)
    length, keys, depth = draw.number(1, 20), draw.number(1, 20), draw.number(1, 16)
    batch = draw.choose([], [2]) if group == 1 else [2]
    heads = shared * group
    operands = [draw.values(*batch, heads, length, depth), draw.values(*batch, shared, keys, depth)]
    operands.append(draw.values(*batch, shared, keys, draw.number(1, 16)))
    options = {"scale": draw.choose(None, 0.3)}
    kind, mask = draw.number(0, 3), None
    shape = draw.choose((length, keys), (1, keys), (*batch, heads, length, keys))
    if kind == 1:
        options["is_causal"] = True
    elif kind == 2:
        mask = torch.rand(shape, generator=draw.generator) < 0.7
    elif kind == 3:
        operands.append(draw.values(*shape))

    def run(q, k, v, bias=None):
        given = bias if mask is None else mask.to(q.device)
        return F.scaled_dot_product_attention(q, k, v, given, enable_gqa=group > 1, **options)

    return run, operands, f"attention {[list(x.shape) for x in operands]} {options} mask {kind} {list(shape)}"


def pool(draw):
    axes, kind = draw.number(1, 3), draw.choose("max", "avg", "adaptive_avg", "adaptive_max")
    kernel = draw.numbers(axes, 1, 3)
    sizes = [k + draw.number(2, 8) for k in kernel]
    x = [draw.values(*draw.choose([2], [2, 3]), *sizes)]
    if kind.startswith("adaptive"):
        output = draw.numbers(axes, 1, 4)
        return lambda x: getattr(F, f"{kind}_pool{axes}d")(x, output), x, f"{kind}_pool{axes}d {sizes} {output}"
    options = {
        "stride": draw.choose(None, draw.numbers(axes, 1, 3)),
        "padding": [draw.number(0, k // 2) for k in kernel],
        "ceil_mode": draw.choose(True, False),
    }
    if kind == "max":
        options["dilation"] = draw.numbers(axes, 1, 2)
    else:
        options["count_include_pad"] = draw.choose(True, False)
    return (
        lambda x: getattr(F, f"{kind}_pool{axes}d")(x, kernel, **options),
        x,
        f"{kind}_pool{axes}d {sizes} {kernel} {options}",
    )


def norm(draw):
    kind = draw.choose("layer", "rms", "group", "batch", "instance")
    eps = draw.choose(1e-2, 0.3)
    if kind in ("layer", "rms"):
        shape = draw.numbers(draw.number(1, 4), 1, 8)
        shape[-1] += 1
        of_parameters = shape[-draw.number(1, len(shape)) :]
        operands = [draw.values(*shape)]
        operands += [draw.values(*of_parameters) for _ in range(draw.number(0, 1 if kind == "rms" else 2))]
        function = F.rms_norm if kind == "rms" else F.layer_norm
        return (
            lambda x, *parameters: function(x, of_parameters, *parameters, eps=eps),
            operands,
            f"{kind}_norm {shape} {of_parameters} {len(operands)}",
        )
    groups = draw.number(1, 3)
    channels = groups * draw.number(1, 3)
    shape = [draw.number(2, 4), channels, *draw.numbers(draw.number(1, 3), 2, 4)]
    operands = [draw.values(*shape)] + [draw.values(channels) for _ in range(draw.choose(0, 2))]
    training = draw.choose(True, False)

    def run(x, weight=None, bias=None):
        if kind == "group":
            return F.group_norm(x, groups, weight, bias, eps)
        if kind == "instance":
            return F.instance_norm(x, weight=weight, bias=bias, eps=eps)
        mean, var = (torch.full((channels,), value, dtype=x.dtype, device=x.device) for value in (0.5, 2.0))
        y = F.batch_norm(x, mean, var, weight, bias, training, 0.25, eps)
        return torch.cat([y.flatten(), mean, var])

    return run, operands, f"{kind}_norm {shape} {groups} {training} {len(operands)}"


def close(result, expected, dtype, scale, what):
    error = (result.detach().cpu().double() - expected).abs().nan_to_num(nan=torch.inf).max().item()
    assert result.dtype == dtype and result.shape == expected.shape, what
    assert error <= TOLERANCES[dtype] * scale, f"{what}: {error}"


@pytest.mark.parametrize("make", [conv, conv_transpose, attention, pool, norm], ids=lambda make: make.__name__)
def test_results_and_gradients_agree_with_the_cpu(make):
    for seed in range(CONFIGURATIONS):
        draw = Draw(seed)
        dtype = draw.choose(*DTYPES)
        run, operands, what = make(draw)
        operands = [x.to(dtype) for x in operands]
        here = [x.to(DEVICE).requires_grad_() for x in operands]
        there = [x.double().contiguous().requires_grad_() for x in operands]
        expected = run(*there)
        g = torch.randn(expected.shape, generator=draw.generator).to(dtype)
        result = run(*here)
        gradients = torch.autograd.grad(result, here, g.to(DEVICE))
        what = f"{seed} {dtype} {what}"
        scale = 1 + expected.abs().max().item()
        close(result, expected.detach(), dtype, scale, what)
        wanted = torch.autograd.grad(expected, there, g.double())
        scale *= 4 * (1 + max(x.abs().max().item() for x in wanted))
        for i, (gradient, want) in enumerate(zip(gradients, wanted, strict=True)):
            close(gradient, want, dtype, scale, f"{what}, gradient {i}")
