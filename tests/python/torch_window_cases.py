"""The cases of compare_with_torch.py for ops over windows, convolution and pooling, and their gradients."""

import itertools

from torch.nn import functional as F
from torch_case import Case, Configurations, gradients, leaves


def convolutions(count=60, with_empty=False):
    """Yields shapes of x and the weight, and attributes of random convolutions.

    If `with_empty` is true, the last one has a batch of no images.
    """
    draw = Configurations(5)
    for i in range(count):
        axes = i % 3 + 1
        groups = (1, 1, 2, 5)[draw.number(0, 3)]
        depthwise = groups == 5
        channels = 1 if depthwise else draw.number(1, 20)
        kernel = draw.numbers(axes, 1, 4)
        attrs = {
            "stride": draw.numbers(axes, 1, 3),
            "dilation": draw.numbers(axes, 1, 2),
            "groups": groups,
            "padding": draw.numbers(2 * axes, 0, 3),
        }
        size = [k * 2 + draw.number(0, 9) for k in kernel]
        batch = 0 if with_empty and i == count - 1 else draw.number(1, 3)
        yield ([batch, channels * groups, *size], [groups * draw.number(1, 20), channels, *kernel], attrs)


CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


def convolve(x, weight, bias, attrs):
    """Returns PyTorch's convolution, which has no padding that differs at the ends of an axis."""
    pairs = [attrs["padding"][i : i + 2] for i in range(0, len(attrs["padding"]), 2)]
    x = F.pad(x, [number for pair in reversed(pairs) for number in pair])
    return CONVOLUTIONS[x.dim() - 2](x, weight, bias, attrs["stride"], 0, attrs["dilation"], attrs["groups"])


def conv(inputs):
    for shape, kernel, attrs in convolutions():
        x, weight, bias = (inputs.real(-1, 1, *sizes) for sizes in (shape, kernel, kernel[:1]))
        yield Case(
            [x, weight, bias],
            lambda x=x, w=weight, b=bias, attrs=attrs: convolve(x, w, b, attrs),
            convolve(x.double().abs(), weight.double().abs(), bias.double().abs(), attrs),
            **attrs,
        )


def conv_gradients(inputs, of_weight):
    for shape, kernel, attrs in convolutions(with_empty=of_weight):
        x, weight = inputs.real(-1, 1, *shape), inputs.real(-1, 1, *kernel)
        g = inputs.real(-1, 1, *convolve(x.double(), weight.double(), None, attrs).shape)

        def gradient(x, weight, g, attrs):
            operands = leaves(x, weight)
            return gradients(convolve(*operands, bias=None, attrs=attrs), g, operands)[of_weight]

        yield Case(
            [g, x if of_weight else weight],
            lambda x=x, w=weight, g=g, attrs=attrs: gradient(x, w, g, attrs),
            gradient(x.double().abs(), weight.double().abs(), g.double().abs(), attrs),
            shape=kernel if of_weight else shape,
            **attrs,
        )


def conv_backward_input(inputs):
    return conv_gradients(inputs, False)


def conv_backward_weight(inputs):
    return conv_gradients(inputs, True)


WINDOWS = [
    ((2, 3, 40), {"kernel": [3], "stride": [2], "padding": [1]}),
    ((2, 3, 17, 18), {"kernel": [3, 3], "stride": [2, 2], "padding": [1, 1]}),
    ((2, 3, 17, 18), {"kernel": [2, 3], "ceil_mode": True}),
    ((2, 3, 7, 8, 9), {"kernel": [2, 2, 3], "stride": [1, 2, 2], "padding": [1, 0, 1]}),
]
MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
AVG_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def windows(dilated, count=50):
    """Yields shapes and attributes: those of WINDOWS, and random ones."""
    yield from WINDOWS
    draw = Configurations(10)
    for i in range(count):
        axes = i % 3 + 1
        kernel = draw.numbers(axes, 1, 4)
        attrs = {
            "kernel": kernel,
            "stride": draw.numbers(axes, 1, 4),
            "padding": [draw.number(0, size // 2) for size in kernel],
            "ceil_mode": draw.flag(),
        }
        if dilated:
            attrs["dilation"] = draw.numbers(axes, 1, 3)
        sizes = [(size - 1) * by + draw.number(1, 9) for size, by in zip(kernel, attrs.get("dilation", [1] * axes))]
        yield (draw.number(1, 3), draw.number(1, 3), *sizes), attrs


def windows_of(attrs):
    """Returns PyTorch's arguments for the windows."""
    axes = len(attrs["kernel"])
    return {
        "kernel_size": attrs["kernel"],
        "stride": attrs.get("stride", attrs["kernel"]),
        "padding": attrs.get("padding", [0] * axes),
        "ceil_mode": attrs.get("ceil_mode", False),
    }


def max_pool(inputs):
    for shape, attrs in windows(dilated=True):
        x, pool = inputs.integers(-9, 9, *shape), MAX_POOLS[len(attrs["kernel"])]
        dilation = attrs.get("dilation", [1] * len(attrs["kernel"]))
        yield Case(
            [x],
            lambda x=x, attrs=attrs, pool=pool, dilation=dilation: pool(
                x, **windows_of(attrs), dilation=dilation, return_indices=True
            ),
            (None, None),
            **attrs,
        )


def max_pool_backward(inputs):
    for shape, attrs in windows(dilated=True):
        x, pool = inputs.real(-4, 4, *shape), MAX_POOLS[len(attrs["kernel"])]
        dilation = attrs.get("dilation", [1] * len(attrs["kernel"]))
        try:
            y, indices = pool(x, **windows_of(attrs), dilation=dilation, return_indices=True)
        except RuntimeError:
            continue  # this PyTorch lacks the op in this dtype
        g = inputs.real(-4, 4, *y.shape)
        size = list(shape[-len(attrs["kernel"]) :])

        def want(x=x, g=g, attrs=attrs, pool=pool, dilation=dilation):
            (x,) = leaves(x)
            return gradients(pool(x, **windows_of(attrs), dilation=dilation), g, [x])[0]

        scale = want(x.double(), g.double().abs())
        yield Case([g, indices], want, scale, size=size, **attrs)


def averages(inputs, run):
    draw = Configurations(11)
    for (shape, attrs), count in itertools.product(windows(dilated=False), (True, False)):
        axes = len(attrs["kernel"])
        x, pool = inputs.real(-4, 4, *shape), AVG_POOLS[axes]
        arguments = windows_of(attrs) | {"count_include_pad": count}
        attrs = attrs | {"count_include_pad": count}
        if axes > 1 and draw.number(0, 3) == 0:
            attrs["divisor"] = arguments["divisor_override"] = draw.number(1, 5)
        yield from run(x, lambda x, pool=pool, arguments=arguments: pool(x, **arguments), shape, attrs)


def avg_pool(inputs):
    def run(x, pool, _shape, attrs):
        yield Case([x], lambda: pool(x), pool(x.double().abs()), **attrs)

    return averages(inputs, run)


def avg_pool_backward(inputs):
    def run(x, pool, shape, attrs):
        g = inputs.real(-4, 4, *pool(x.double()).shape)

        def want():
            (leaf,) = leaves(x)
            return gradients(pool(leaf), g, [leaf])[0]

        (leaf,) = leaves(x.double())
        (scale,) = gradients(pool(leaf), g.double().abs(), [leaf])
        yield Case([g], want, scale, size=list(shape[-len(attrs["kernel"]) :]), **attrs)

    return averages(inputs, run)


CASES = {
    "conv": conv,
    "conv_backward_input": conv_backward_input,
    "conv_backward_weight": conv_backward_weight,
    "max_pool": max_pool,
    "max_pool_backward": max_pool_backward,
    "avg_pool": avg_pool,
    "avg_pool_backward": avg_pool_backward,
}
