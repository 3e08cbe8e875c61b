"""The cases of compare_with_torch.py: activations that are compositions, and gradients of activations."""

import torch
from torch.nn import functional as F
from torch_case import Case

aten = torch.ops.aten


def values(function, **attrs):
    """The cases of an activation. S is 1 + |x|."""

    def cases(inputs):
        for x in (inputs.real(-8, 8, 50_000), inputs.real(-1, 1, 50_000)):
            yield Case([x], lambda x=x: function(x), 1 + x.double().abs(), **attrs)

    return cases


def gradients(function, of_result=False, **attrs):
    """The cases of a gradient, by x or by the activation's result. S is |g| (1 + |x|)."""

    def cases(inputs):
        g = inputs.real(-2, 2, 50_000)
        for x in (
            (inputs.real(0, 1, 50_000),) if of_result else (inputs.real(-8, 8, 50_000), inputs.real(-1, 1, 50_000))
        ):
            scale = g.double().abs() * (1 + x.double().abs())
            yield Case([g, x], lambda x=x: function(g, x), scale, **attrs)

    return cases


def gelu_backward(inputs):
    for approximate in ("none", "tanh"):
        yield from gradients(lambda g, x: aten.gelu_backward(g, x, approximate=approximate), approximate=approximate)(
            inputs
        )


def log_sigmoid_backward(g, x):
    return aten.log_sigmoid_backward(g, x, aten.log_sigmoid_forward(x)[1])


def hardsigmoid_backward(g, x):
    """PyTorch rounds 1/6 to float32, also for float64."""
    return torch.where(x.abs() < 3, g / 6, 0.0) if g.dtype == torch.float64 else aten.hardsigmoid_backward(g, x)


SELU = {"alpha": 1.6732632423543772, "scale": 1.0507009873554805}

CASES = {
    "softplus": values(lambda x: F.softplus(x, 1.5, 6.0), beta=1.5, threshold=6.0),
    "threshold": values(lambda x: F.threshold(x, 0.5, 20.0), threshold=0.5, value=20.0),
    "leaky_relu": values(lambda x: F.leaky_relu(x, 0.2), negative_slope=0.2),
    "elu": values(F.selu, **SELU),
    "hardtanh": values(lambda x: F.hardtanh(x, -2.0, 3.0), min=-2.0, max=3.0),
    "hardsigmoid": values(F.hardsigmoid),
    "hardswish": values(F.hardswish),
    "mish": values(F.mish),
    "log_sigmoid": values(F.logsigmoid),
    "sigmoid_backward": gradients(aten.sigmoid_backward, of_result=True),
    "tanh_backward": gradients(aten.tanh_backward, of_result=True),
    "silu_backward": gradients(aten.silu_backward),
    "gelu_backward": gelu_backward,
    "softplus_backward": gradients(lambda g, x: aten.softplus_backward(g, x, 1.5, 6.0), beta=1.5, threshold=6.0),
    "threshold_backward": gradients(lambda g, x: aten.threshold_backward(g, x, 0.5), threshold=0.5),
    "leaky_relu_backward": gradients(lambda g, x: aten.leaky_relu_backward(g, x, 0.2, False), negative_slope=0.2),
    "elu_backward": gradients(lambda g, x: aten.elu_backward(g, SELU["alpha"], SELU["scale"], 1.0, False, x), **SELU),
    "hardtanh_backward": gradients(lambda g, x: aten.hardtanh_backward(g, x, -2.0, 3.0), min=-2.0, max=3.0),
    "hardsigmoid_backward": gradients(hardsigmoid_backward),
    "hardswish_backward": gradients(aten.hardswish_backward),
    "mish_backward": gradients(aten.mish_backward),
    "log_sigmoid_backward": gradients(log_sigmoid_backward),
}
