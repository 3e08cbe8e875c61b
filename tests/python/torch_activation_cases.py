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


def shrink_backward(g, x):
    return aten.hardshrink_backward(g, x, 0.75)


def logit(inputs):
    """S is 1 + the magnitude of the result."""
    for attrs in ({}, {"eps": 0.125}):
        x = inputs.real(0, 1, 50_000)
        yield Case([x], lambda x=x, attrs=attrs: torch.logit(x, **attrs), 1 + torch.logit(x.double()).abs(), **attrs)


def logit_backward(inputs):
    for eps in (None, 0.125):
        g, x = inputs.real(-2, 2, 50_000), inputs.real(0.01, 0.99, 50_000)

        def want(g=g, x=x, eps=eps):
            return aten.logit_backward(g, x, eps)

        attrs = {} if eps is None else {"eps": eps}
        yield Case([g, x], want, g.double().abs() * (1 + x.double()), **attrs)


def glu(inputs):
    for shape, axis in (((64, 256), 1), ((7, 6, 5), -2)):
        x = inputs.real(-8, 8, *shape)
        scale = F.glu(1 + x.double().abs(), axis).abs() + 1
        yield Case([x], lambda x=x, axis=axis: F.glu(x, axis), scale, axis=axis)


def glu_backward(inputs):
    for shape, axis in (((64, 256), 1), ((7, 6, 5), -2)):
        x = inputs.real(-8, 8, *shape)
        g = inputs.real(-2, 2, *F.glu(x, axis).shape)
        size = torch.cat((g, g), axis).double().abs() * (1 + x.double().abs()).amax()
        yield Case([g, x], lambda g=g, x=x, axis=axis: aten.glu_backward(g, x, axis), size, axis=axis)


def prelu(inputs):
    for weight in ((), (33,)):
        x, w = inputs.real(-8, 8, 70, 33), inputs.real(-1, 1, *weight)
        yield Case([x, w], lambda x=x, w=w: torch.where(x > 0, x, x * w), 1 + x.double().abs())


def prelu_backward(inputs):
    g, x, w = inputs.real(-2, 2, 70, 33), inputs.real(-8, 8, 70, 33), inputs.real(-1, 1, 33)
    scale = g.double().abs() * (1 + x.double().abs())

    def want():
        return torch.where(x > 0, g, g * w), torch.where(x > 0, 0.0, g * x)

    yield Case([g, x, w], want, (scale, scale))


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
    "softshrink": values(lambda x: F.softshrink(x, 0.75), lambd=0.75),
    "hardshrink": values(lambda x: F.hardshrink(x, 0.75), lambd=0.75),
    "shrink_backward": gradients(shrink_backward, lambd=0.75),
    "logit": logit,
    "logit_backward": logit_backward,
    "glu": glu,
    "glu_backward": glu_backward,
    "prelu": prelu,
    "prelu_backward": prelu_backward,
}
