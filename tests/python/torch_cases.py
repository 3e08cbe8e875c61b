"""The cases of compare_with_torch.py: for each op, its inputs, attributes and PyTorch's results."""

import itertools

import torch
import torch_activation_cases
import torch_loss_cases
import torch_network_cases
import torch_recurrent_cases
import torch_small_cases
import torch_special_cases
import torch_window_cases
from torch.nn import functional as F
from torch_case import Case

RANDOM_ELEMENTS = 50_000
FLOATING = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32,
            "float64": torch.float64}
OTHERS = {"bool": torch.bool, "uint8": torch.uint8, "int8": torch.int8, "int32": torch.int32,
          "int64": torch.int64, "int16": torch.int16, "uint16": torch.uint16,
          "uint32": torch.uint32, "uint64": torch.uint64}
BITS_OF = {torch.float16: torch.int16, torch.bfloat16: torch.int16, torch.float32: torch.int32,
           torch.float64: torch.int64}


def to_bytes(x):
    return x.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


# ---------------------------------------------------------------- inputs

class Inputs:
    """Seeded inputs of one dtype."""

    def __init__(self, dtype):
        self.dtype = dtype
        self.generator = torch.Generator().manual_seed(20261124)

    def real(self, low, high, *shape):
        x = torch.rand(shape, generator=self.generator, dtype=torch.float64)
        return (low + (high - low) * x).to(self.dtype)

    def wide(self, *shape):
        """Signed powers of e, up to 10^4."""
        sign = torch.randint(0, 2, shape, generator=self.generator) * 2 - 1
        return (self.real(-9, 9, *shape).double().exp() * sign).to(self.dtype)

    def integers(self, low, high, *shape):
        return torch.randint(low, high + 1, shape, generator=self.generator).to(self.dtype)

    def bits(self, n=RANDOM_ELEMENTS):
        """Random bits: all exponents, subnormals, infinities and NaNs."""
        bits = torch.randint(-2**63, 2**63 - 1, (n,), generator=self.generator)
        return bits.to(BITS_OF[self.dtype]).view(self.dtype)

    def every_kind(self):
        """Values of each kind in one tensor; in a 16-bit dtype also all values that exist."""
        bits = self.bits()
        if torch.finfo(self.dtype).bits == 16:
            bits = torch.arange(-2**15, 2**15, dtype=torch.int16).view(self.dtype)
        special = torch.tensor([0.0, -0.0, 1, -1, float("inf"), -float("inf"), float("nan")])
        return torch.cat([bits, self.real(-4, 4, RANDOM_ELEMENTS), self.wide(RANDOM_ELEMENTS),
                          special.to(self.dtype)])


# ---------------------------------------------------------------- cases


def unary(function):
    def cases(inputs):
        x = inputs.every_kind()
        yield Case([x], lambda: function(x))
    return cases


def hyperbolic(function):
    """PyTorch's result is infinite before the exact one is."""
    def cases(inputs):
        x = inputs.every_kind().clamp(-80, 80)
        yield Case([x], lambda: function(x))
    return cases


def binary(function):
    def cases(inputs):
        pairs = [(inputs.every_kind(), inputs.every_kind().flip(0)),
                 (inputs.real(1 / 64, 8, 300, 1), inputs.real(-1, 1, 200))]
        for a, b in pairs:
            yield Case([a, b], lambda a=a, b=b: function(a, b))
    return cases


def where(inputs):
    x, y = inputs.every_kind(), inputs.every_kind()
    condition = x > 1
    yield Case([condition, x, y], lambda: torch.where(condition, x, y))


def cast(inputs):
    x = inputs.every_kind()
    for dtype in FLOATING.values():
        yield Case([x], lambda dtype=dtype: x.to(dtype), dtype=dtype)
    for name, dtype in OTHERS.items():  # beyond their ranges PyTorch's results are undefined
        y = inputs.real(0, 2, 1000) if name == "bool" else inputs.real(0, 127, 1000)
        yield Case([y], lambda y=y, dtype=dtype: y.to(dtype), dtype=dtype)
        z = torch.arange(0, 2 if name == "bool" else 127).to(dtype)
        yield Case([z], lambda z=z: z.to(inputs.dtype), dtype=inputs.dtype)


def product_operands(inputs):
    for k in (1, 16, 257, 4096):
        for make in (lambda *shape: inputs.real(-4, 4, *shape), inputs.wide):
            yield make(33, k), make(k, 20)
    yield inputs.real(-1, 1, 3, 17, 64), inputs.real(-1, 1, 64, 9)


def matmul(inputs):
    for a, b in product_operands(inputs):
        scale = a.double().abs() @ b.double().abs()
        yield Case([a, b], lambda a=a, b=b: a @ b, scale)
        yield Case([a, b.transpose(-1, -2)], lambda a=a, b=b: a @ b, scale, transpose_b=True)
        yield Case([a[..., 0, :], b], lambda a=a, b=b: a[..., 0, :] @ b, scale[..., 0, :])


ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "sigmoid": torch.sigmoid, "silu": F.silu,
               "tanh": torch.tanh, "gelu": F.gelu,
               "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}


def linear(inputs):
    for k in (5, 64, 1024):
        x, w, bias = (inputs.real(-1, 1, *shape) for shape in ((40, k), (30, k), (30,)))
        scale = x.double().abs() @ w.double().abs().T + bias.double().abs()
        for name, function in ACTIVATIONS.items():
            yield Case([x, w, bias], lambda x=x, w=w, bias=bias, function=function: function(
                F.linear(x, w, bias)), scale, activation=name)


def reductions_of(inputs):
    """Tensors, and the axis to reduce; None: all axes."""
    for x in (inputs.real(-4, 4, 64, 3000), inputs.wide(64, 3000)):
        for axis in (0, 1, None):
            yield x, axis


def axes(axis):
    return [] if axis is None else [axis]


def sums(function):
    def cases(inputs):
        for x, axis in reductions_of(inputs):
            dim = [0, 1] if axis is None else [axis]
            yield Case([x], lambda x=x, dim=dim: function(x, dim), function(x.double().abs(), dim),
                       axes=axes(axis))
    return cases


def logsumexp(inputs):
    for x, axis in reductions_of(inputs):
        dim = [0, 1] if axis is None else [axis]
        m = x.double().amax(dim)
        scale = 1 + m.abs() + (x.double().logsumexp(dim) - m).abs()
        yield Case([x], lambda x=x, dim=dim: x.logsumexp(dim), scale, axes=axes(axis))


def prod(inputs):
    for axis in (0, 1):
        x = inputs.real(-0.2, 0.2, 64, 300).double().exp().to(inputs.dtype)
        n = x.shape[axis]
        yield Case([x], lambda x=x, axis=axis: x.prod(axis), n * x.double().prod(axis).abs(),
                   axes=[axis])


def count_nonzero(inputs):
    x = torch.cat([inputs.every_kind()[:3000], torch.zeros(3000, dtype=inputs.dtype)])
    x = x.reshape(60, 100)
    for axis in (0, 1):
        yield Case([x], lambda axis=axis: torch.count_nonzero(x, axis), axes=[axis])


def var_mean(inputs):
    for x, axis in reductions_of(inputs):
        dim = [0, 1] if axis is None else [axis]
        var, mean = torch.var_mean(x.double(), dim)
        scale = (var + mean.abs() * var.sqrt(), x.double().abs().mean(dim))
        for correction in (0, 1):
            yield Case([x], lambda x=x, dim=dim, correction=correction: torch.var_mean(
                x, dim, correction=correction), scale, axes=dim, correction=float(correction))


def scans(function):
    def cases(inputs):
        for low, high in ((-4, 4), (-0.2, 0.2)):
            x = inputs.real(low, high, 64, 300)
            if function is torch.cumprod:
                x = x.double().div(20 * high).exp().to(inputs.dtype)
            for axis in (0, 1):
                yield Case([x], lambda x=x, axis=axis: function(x, axis),
                           function(x.double().abs(), axis), axis=axis)
    return cases


def extremes(function):
    def cases(inputs):
        with_nan = inputs.wide(20, 50)
        with_nan[3, 7] = float("nan")
        for x, axis in itertools.chain(reductions_of(inputs), [(with_nan, 1)]):
            yield Case([x], lambda x=x, axis=axis: function(x, axis), axes=axes(axis))
    return cases


def norm(inputs):
    for order in (2.0, 1.0, 3.0, 0.5, -1.0, 0.0, float("inf"), -float("inf")):
        for x, axis in reductions_of(inputs):
            x = x / 64 if order == 3 and inputs.dtype == torch.float16 else x
            n = x.numel() if axis is None else x.shape[axis]
            scale = n * torch.linalg.vector_norm(x.double(), order, axis)
            yield Case([x], lambda x=x, axis=axis, order=order: torch.linalg.vector_norm(
                x, order, axis), scale, ord=order, axes=axes(axis))


def softmax(function, logarithm):
    def cases(inputs):
        for x in (inputs.real(-4, 4, 50, 1000), inputs.wide(50, 1000), inputs.real(-30, 30, 7, 5)):
            for axis in (0, 1):
                below = x.double() - x.double().amax(axis, keepdim=True)
                exact = function(x.double(), axis)
                scale = (1 + below.abs() + (below - exact).abs() if logarithm else
                         exact * (1 + below.abs()))
                yield Case([x], lambda x=x, axis=axis: function(x, axis), scale, axis=axis)
    return cases


def sort(inputs):
    x = inputs.every_kind()[-3000:].reshape(60, 50)
    for axis, descending in itertools.product((0, 1), (False, True)):
        yield Case([x], lambda axis=axis, descending=descending: tuple(torch.sort(
            x, dim=axis, descending=descending, stable=True)), (None, None), axis=axis,
                   descending=descending)


def topk(inputs):
    """PyTorch takes any of equal elements, so all are different."""
    order = torch.randperm(240, generator=inputs.generator).reshape(2, 120)
    x = (order - 120).to(inputs.dtype)
    for k, largest in itertools.product((1, 7, 100), (False, True)):
        yield Case([x], lambda k=k, largest=largest: tuple(torch.topk(x, k, 1, largest)),
                   (None, None), k=k, axis=1, largest=largest)


def searchsorted(inputs):
    ordered, x = inputs.integers(-50, 50, 4, 100).sort(1).values, inputs.real(-60, 60, 4, 200)
    for right in (False, True):
        yield Case([ordered, x], lambda right=right: torch.searchsorted(ordered, x, right=right),
                   right=right)
        yield Case([ordered[0], x], lambda right=right: torch.searchsorted(
            ordered[0], x, right=right), right=right)


def nonzero(inputs):
    x = torch.cat([inputs.bits(300), torch.zeros(300, dtype=inputs.dtype)]).reshape(20, 30)
    found = torch.nonzero(x).T
    yield Case([x], lambda: found, size=found.shape[1])
    yield Case([x], lambda: F.pad(found, (0, 9)), size=found.shape[1] + 9)
    yield Case([x], lambda: found[:, :100], size=100)


def moves(function, **attrs):
    """An op that only moves elements of a (6, 10) tensor."""
    def cases(inputs):
        x = inputs.bits(60).reshape(6, 10)
        yield Case([x], lambda: function(x), **attrs)
    return cases


def concat(inputs):
    x, y = inputs.bits(60).reshape(6, 10), inputs.bits(12).reshape(6, 2)
    yield Case([x, y], lambda: torch.cat([x, y], 1), axis=1)


def index(inputs):
    x, rows = inputs.bits(60).reshape(6, 10), torch.tensor([[5, -1, 0], [2, 2, -6]])
    columns = torch.tensor([9, -10, 3], dtype=torch.int32)
    yield Case([x, rows], lambda: x[rows], axis=0)
    yield Case([x, columns], lambda: x[:, columns], axis=1)
    yield Case([x, rows, columns], lambda: x[rows, columns], axis=0)


def gather(inputs):
    x = inputs.bits(60).reshape(6, 10)
    indices = torch.randint(0, 6, (20, 8), generator=inputs.generator)
    yield Case([x, indices], lambda: torch.gather(x, 0, indices), axis=0)


def index_put(inputs):
    x, values = inputs.wide(6, 10), inputs.wide(20, 10)
    rows = torch.randperm(6, generator=inputs.generator)
    yield Case([x, rows, values[:6]], lambda: x.index_put((rows,), values[:6]), x.double().abs())
    rows = torch.arange(20) * 5 % 6 - 6
    scale = x.double().abs().index_put((rows,), values.double().abs(), True)
    yield Case([x, rows, values], lambda: x.index_put((rows,), values, True), scale, reduce="add")


def scatter(inputs):
    x, values = inputs.wide(6, 10), inputs.wide(20, 8)
    indices = torch.arange(160).reshape(20, 8) * 5 % 6
    distinct = torch.rand(6, 8, generator=inputs.generator).argsort(0)
    yield Case([x, distinct, values], lambda: x.scatter(0, distinct, values), x.double().abs())
    scale = x.double().abs().scatter_add(0, indices, values.double().abs())
    yield Case([x, indices, values], lambda: x.scatter_add(0, indices, values), scale,
               reduce="add")
    small = inputs.real(-1, 1, 20, 8)
    scale = x.double().abs().scatter_reduce(0, indices, small.double().abs(), "prod")
    yield Case([x, indices, small], lambda: x.scatter_reduce(0, indices, small, "prod"), scale,
               reduce="mul")
    for reduce in ("max", "min"):
        yield Case([x, indices, values], lambda reduce=reduce: x.scatter_reduce(
            0, indices, values, "a" + reduce), x.double().abs(), reduce=reduce)


VIEW = {"shape": [4, 3], "strides": [1, 11], "offset": 5}


def as_strided_scatter(inputs):
    x, values = inputs.bits(60).reshape(6, 10), inputs.bits(12).reshape(4, 3)
    yield Case([x, values], lambda: x.as_strided_scatter(values, (4, 3), (1, 11), 5), **VIEW)


def bitcast(inputs):
    x = inputs.bits(64).reshape(4, 16)
    for dtype in (torch.uint8, torch.int32, torch.int64, torch.float16, torch.float64):
        yield Case([x], lambda dtype=dtype: x.view(dtype), dtype=dtype)


def creation(function, **attrs):
    def cases(inputs):
        yield Case([], lambda: function(inputs.dtype), dtype=inputs.dtype, **attrs)
    return cases


def arange(inputs):
    for start, stop, step in ((0.0, 200.0, 0.1), (5.0, -5.0, -0.3)):
        terms = abs(start) + (torch.arange(start, stop, step, dtype=torch.float64) - start).abs()
        yield Case([], lambda start=start, stop=stop, step=step: torch.arange(
            start, stop, step, dtype=inputs.dtype), terms, dtype=inputs.dtype, start=start,
                   stop=stop, step=step)


def linspace(inputs):
    for start, stop, count in ((-1.0, 3.0, 1000), (0.3, -0.9, 57)):
        terms = torch.full((count,), max(abs(start), abs(stop)))
        yield Case([], lambda start=start, stop=stop, count=count: torch.linspace(
            start, stop, count, dtype=inputs.dtype), terms, dtype=inputs.dtype, start=start,
                   stop=stop, count=count)


def constant(inputs):
    x = inputs.bits(60)
    yield Case([], lambda: x, dtype=inputs.dtype, shape=[60], data=to_bytes(x))


def gelu(inputs):
    x = inputs.every_kind()
    x = x[~(x.abs() > 1e4)]  # PyTorch's result for infinity is NaN
    for approximate in ("none", "tanh"):
        yield Case([x], lambda approximate=approximate: F.gelu(x, approximate=approximate),
                   x.double().abs(), approximate=approximate)


CASES = {
    **{name: unary(getattr(torch, name)) for name in
       ("neg", "abs", "exp", "log", "log1p", "sqrt", "rsqrt", "tanh", "sigmoid", "relu", "floor",
        "ceil", "trunc", "round", "conj", "sin", "cos", "tan", "asin", "acos", "atan", "asinh",
        "acosh", "atanh", "expm1", "log2", "log10", "erf", "erfc", "erfinv")},
    "sinh": hyperbolic(torch.sinh), "cosh": hyperbolic(torch.cosh),
    "sign": unary(lambda x: torch.where(x.isnan(), x, torch.sign(x))),
    "silu": unary(F.silu), "gelu": gelu, "cast": cast, "where": where,
    **{name: binary(getattr(torch, name)) for name in
       ("add", "sub", "mul", "div", "pow", "maximum", "minimum", "eq", "ne", "lt", "le", "gt",
        "ge", "atan2", "hypot", "copysign", "nextafter", "logaddexp")},
    "matmul": matmul, "linear": linear,
    "sum": sums(lambda x, dim: x.sum(dim)), "mean": sums(lambda x, dim: x.mean(dim)),
    "max": extremes(lambda x, axis: x.amax(axis) if axis is not None else x.max()),
    "min": extremes(lambda x, axis: x.amin(axis) if axis is not None else x.min()),
    "logsumexp": logsumexp, "prod": prod, "count_nonzero": count_nonzero, "var_mean": var_mean,
    "cumsum": scans(torch.cumsum), "cumprod": scans(torch.cumprod),
    "argmax": extremes(torch.argmax), "argmin": extremes(torch.argmin), "norm": norm,
    "softmax": softmax(torch.softmax, False), "log_softmax": softmax(torch.log_softmax, True),
    "sort": sort, "topk": topk, "searchsorted": searchsorted, "nonzero": nonzero,
    "reshape": moves(lambda x: x.reshape(4, 15), shape=[4, 15]),
    "permute": moves(lambda x: x.permute(1, 0), axes=[1, 0]),
    "slice": moves(lambda x: x[1:5, ::3], starts=[1, 0], stops=[5, 10], steps=[1, 3]),
    "broadcast_to": moves(lambda x: x.broadcast_to(2, 6, 10), shape=[2, 6, 10]),
    "as_strided": moves(lambda x: x.as_strided((4, 3), (1, 11), 5), **VIEW),
    "as_strided_scatter": as_strided_scatter, "bitcast": bitcast, "index": index,
    "gather": gather, "index_put": index_put, "scatter": scatter,
    "concat": concat, "constant": constant, "arange": arange, "linspace": linspace,
    "zeros": creation(lambda dtype: torch.zeros(3, dtype=dtype), shape=[3]),
    "ones": creation(lambda dtype: torch.ones(3, dtype=dtype), shape=[3]),
    "full": creation(lambda dtype: torch.full((3,), 0.1, dtype=dtype), shape=[3], value=0.1),
    "eye": creation(lambda dtype: torch.eye(3, 5, dtype=dtype), rows=3, cols=5),
    **torch_activation_cases.CASES,
    **torch_loss_cases.CASES,
    **torch_network_cases.CASES,
    **torch_recurrent_cases.CASES,
    **torch_small_cases.CASES,
    **torch_special_cases.CASES,
    **torch_window_cases.CASES,
}
