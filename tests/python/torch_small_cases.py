"""The cases of compare_with_torch.py for elementwise compositions, sums with a factor, reductions to a truth value, and
compositions that move elements.
"""

import torch
from torch_case import Case

ELEMENTS = 20_000


def of_one(function, **attrs):
    def cases(inputs):
        x = inputs.every_kind()
        yield Case([x], lambda: function(x), **attrs)

    return cases


def without_signals(x):
    """For a signaling NaN, PyTorch's fmax and fmin return NaN."""
    return torch.where(x.isnan(), torch.nan, x)


def of_two(function):
    def cases(inputs):
        for a, b in (
            (inputs.real(-8, 8, ELEMENTS), inputs.real(-2, 2, ELEMENTS)),
            (without_signals(inputs.every_kind()[:ELEMENTS]), inputs.real(0.5, 3, 1)),
        ):
            yield Case([a, b], lambda a=a, b=b: function(a, b))

    return cases


def nan_to_num(inputs):
    x = inputs.every_kind()
    yield Case([x], lambda: torch.nan_to_num(x))
    yield Case([x], lambda: torch.nan_to_num(x, 1.5, 7, -3), nan=1.5, posinf=7.0, neginf=-3.0)


def number(value, dtype):
    """A factor of tensors of this dtype. 16-bit tensors take it in float32."""
    return torch.tensor(value, dtype=torch.float64 if dtype == torch.float64 else torch.float32)


def clamp(inputs):
    x = inputs.every_kind()
    low, high = (torch.tensor(value, dtype=inputs.dtype) for value in (-1.25, 2.5))
    yield Case([x, low, high], lambda: torch.clamp(x, low, high))


def lerp(inputs):
    a, b = inputs.real(-4, 4, ELEMENTS), inputs.real(-4, 4, ELEMENTS)
    for weight in (0.0, 0.25, 0.75, 1.0):
        scale = torch.maximum(a.abs(), b.abs()).double() + weight * (b.double() - a.double()).abs()
        yield Case([a, b, number(weight, inputs.dtype)], lambda weight=weight: torch.lerp(a, b, weight), scale)


def sums(function, term):
    """The cases of x + factor * term."""

    def cases(inputs):
        x, a, b = (inputs.real(0.5, 4, ELEMENTS) for _ in range(3))
        factor = -0.375
        operands = [x, a] if term is None else [x, a, b]
        scaled = a.double() if term is None else term(a.double(), b.double())
        yield Case(
            [*operands, number(factor, inputs.dtype)],
            lambda: function(*operands, factor),
            x.double().abs() + (factor * scaled).abs(),
        )

    return cases


def dropout_backward(inputs):
    g, mask = inputs.real(-4, 4, ELEMENTS), inputs.real(0, 1, ELEMENTS) > 0.25

    def want():
        return torch.where(mask, g.double() / 0.75, 0).to(g.dtype)

    yield Case([g, mask], want, g.double().abs() / 0.75, p=0.25)


def sgd_step(inputs):
    """The steps of torch.optim.SGD. In 16 bits, it rounds after each operation, so it computes here in float32."""
    p, g, buffer = (inputs.real(-2, 2, ELEMENTS) for _ in range(3))
    wide = torch.float64 if inputs.dtype == torch.float64 else torch.float32
    for momentum, nesterov in ((0.0, False), (0.875, False), (0.875, True)):

        def want(momentum=momentum, nesterov=nesterov):
            new, b = p.to(wide), buffer.to(wide)
            d = g.to(wide) + 0.125 * new
            if momentum == 0:
                return (new - 0.25 * d).to(p.dtype)
            b = (momentum * b + 0.5 * d).to(p.dtype)
            d = d + momentum * b.to(wide) if nesterov else b.to(wide)
            return (new - 0.25 * d).to(p.dtype), b

        size = p.double().abs() + g.double().abs() + buffer.double().abs()
        inputs_of = [p, g, number(0.25, inputs.dtype)] + ([buffer] if momentum else [])
        yield Case(
            inputs_of, want, (size, size) if momentum else size, momentum=momentum, dampening=0.5, weight_decay=0.125,
            nesterov=nesterov,
        )  # fmt: skip


def adagrad_step(inputs):
    """The steps of torch.optim.Adagrad, computed in float32 in 16 bits, as sgd_step."""
    p, g = (inputs.real(-2, 2, ELEMENTS) for _ in range(2))
    total = inputs.real(0.5, 4, ELEMENTS)
    wide = torch.float64 if inputs.dtype == torch.float64 else torch.float32
    for lr_decay, step in ((0.0, 1), (0.25, 5)):

        def want(lr_decay=lr_decay, step=step):
            x = p.to(wide)
            d = g.to(wide) + 0.125 * x
            new = total.to(wide) + d * d
            rate = 0.25 / (1 + (step - 1) * lr_decay)
            return (x - rate * d / (new.sqrt() + 1e-10)).to(p.dtype), new.to(p.dtype)

        size = g.double().abs() + 0.125 * p.double().abs()
        yield Case(
            [p, g, total, number(step, torch.float32), number(0.25, torch.float32)], want,
            (p.double().abs() + size, total.double() + 2 * size * size), lr_decay=lr_decay, weight_decay=0.125,
        )  # fmt: skip


def truth(function):
    def cases(inputs):
        x = inputs.real(-4, 4, 60, 100).round()
        for axis in (0, 1):
            yield Case([x], lambda axis=axis: function(x, axis), axes=[axis])

    return cases


def spread(function):
    def cases(inputs):
        x = inputs.real(-4, 4, 64, 3000)
        for axis in (0, 1):
            var, mean = torch.var_mean(x.double(), axis)
            scale = var + mean.abs() * var.sqrt()
            if function is torch.std:
                scale = scale / (2 * var.sqrt())
            for correction in (0, 1):
                yield Case(
                    [x],
                    lambda axis=axis, correction=correction: function(x, axis, correction=correction),
                    scale,
                    axes=[axis],
                    correction=float(correction),
                )

    return cases


def moves(function, *shape, **attrs):
    def cases(inputs):
        x = inputs.bits(60).reshape(shape or (6, 10))
        yield Case([x], lambda: function(x), **attrs)

    return cases


def take_along_dim(inputs):
    x, index = inputs.bits(60).reshape(6, 10), torch.tensor([[3, 0, 9]])
    yield Case([x, index], lambda: torch.take_along_dim(x, index, 1), axis=1)


def one_hot(inputs):
    index = torch.tensor([3, 0, 2, 2])
    yield Case([index], lambda: torch.nn.functional.one_hot(index, 5), classes=5)


def embedding_backward(inputs):
    g, index = inputs.real(-1, 1, 300, 40), torch.randint(0, 30, (300,), generator=inputs.generator)

    def sums_of(values):
        return torch.zeros(30, 40, dtype=torch.float64).index_put_((index,), values.double(), accumulate=True)

    yield Case([g, index], lambda: sums_of(g).to(g.dtype), sums_of(g.abs()), rows=30)


def scatters(function, gradient, **attrs):
    """The cases of a scatter into x, and of the gradient of the same selection."""

    def into_x(inputs):
        x = inputs.bits(60).reshape(6, 10)
        src = inputs.bits(60).reshape(-1)[: function.numel].reshape(function.shape)
        yield Case([x, src], lambda: function(x, src), **attrs)

    def into_zeros(inputs):
        g = inputs.bits(60).reshape(-1)[: function.numel].reshape(function.shape)
        yield Case([g], lambda: gradient(g), shape=[6, 10], **attrs)

    return into_x, into_zeros


class Scatter:
    """A function of x and src, and the shape of src."""

    def __init__(self, function, shape):
        self.function, self.shape = function, shape
        self.numel = torch.Size(shape).numel()

    def __call__(self, x, src):
        return self.function(x, src)


SELECT, SELECT_BACKWARD = scatters(
    Scatter(lambda x, src: x.select_scatter(src, 0, 2), (10,)),
    lambda g: torch.zeros(6, 10, dtype=g.dtype).select_scatter(g, 0, 2),
    axis=0,
    index=2,
)
SLICE, SLICE_BACKWARD = scatters(
    Scatter(lambda x, src: x.slice_scatter(src, 1, 1, 9, 3), (6, 3)),
    lambda g: torch.zeros(6, 10, dtype=g.dtype).slice_scatter(g, 1, 1, 9, 3),
    axis=1,
    start=1,
    stop=9,
    step=3,
)

CASES = {
    "square": of_one(lambda x: x * x),
    "reciprocal": of_one(torch.reciprocal),
    "exp2": lambda inputs: iter([Case([x := inputs.real(-20, 20, ELEMENTS)], lambda: torch.exp2(x))]),
    "frac": of_one(torch.frac),
    **{name: of_one(getattr(torch, name)) for name in
       ("sgn", "signbit", "isnan", "isinf", "isposinf", "isneginf", "isfinite", "logical_not")},
    "nan_to_num": nan_to_num,
    **{name: of_two(getattr(torch, name)) for name in
       ("logical_and", "logical_or", "logical_xor", "fmod", "fmax", "fmin")},
    "trunc_divide": lambda inputs: of_two(lambda a, b: torch.trunc(a / b))(inputs),
    "clamp": clamp,
    "lerp": lerp,
    "add_scaled": sums(lambda x, y, alpha: torch.add(x, y, alpha=alpha), None),
    "addcmul": sums(lambda x, a, b, value: torch.addcmul(x, a, b, value=value), lambda a, b: a * b),
    "addcdiv": sums(lambda x, a, b, value: torch.addcdiv(x, a, b, value=value), lambda a, b: a / b),
    "dropout_backward": dropout_backward,
    "sgd_step": sgd_step,
    "adagrad_step": adagrad_step,
    "all": truth(torch.all),
    "any": truth(torch.any),
    "var": spread(torch.var),
    "std": spread(torch.std),
    "roll": moves(lambda x: x.roll((2, -3), (0, 1)), shift=[2, -3], axes=[0, 1]),
    "tril": moves(lambda x: x.tril(1), k=1),
    "triu": moves(lambda x: x.triu(-1), k=-1),
    "pad": moves(lambda x: torch.nn.functional.pad(x, (1, 2, 0, 1), value=0.5), pad=[1, 2, 0, 1], value=0.5),
    "take_along_dim": take_along_dim,
    "one_hot": one_hot,
    "embedding_backward": embedding_backward,
    "select_scatter": SELECT,
    "select_backward": SELECT_BACKWARD,
    "slice_scatter": SLICE,
    "slice_backward": SLICE_BACKWARD,
}  # fmt: skip
