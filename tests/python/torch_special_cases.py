"""The cases of compare_with_torch.py for special functions.

PyTorch gets the operands as float64, and its result is rounded to the dtype, because its own float32 functions are less
accurate. S is 1 + the magnitude of the result.
"""

import torch
from torch_case import Case

special = torch.special


def scale_of(result):
    return 1 + result.double().abs()


def of_one(function, *ranges, **attrs):
    """The cases of a function of one operand."""

    def cases(inputs):
        for low, high in ranges:
            x = inputs.real(low, high, 20_000)

            def want(x=x):
                return function(x.double()).to(x.dtype)

            yield Case([x], want, scale_of(want()), **attrs)

    return cases


def of_two(function, first, second):
    def cases(inputs):
        x, y = inputs.real(*first, 20_000), inputs.real(*second, 20_000)

        def want(x=x, y=y):
            return function(x.double(), y.double()).to(x.dtype)

        yield Case([x, y], want, scale_of(want()))

    return cases


def polygamma(inputs):
    """Without the order 1, where PyTorch's error is 1e-9."""
    for n in (0, 2, 5):
        yield from of_one(lambda x, n=n: special.polygamma(n, x), (0.5, 20), n=n)(inputs)


CASES = {
    "lgamma": of_one(torch.lgamma, (0.02, 1), (-4, 4), (1, 1000)),
    "digamma": of_one(torch.digamma, (0.02, 1), (1, 1000)),
    "polygamma": polygamma,
    "zeta": of_two(special.zeta, (1.1, 8), (0.1, 20)),
    "i0": of_one(special.i0, (-8, 8)),
    "i0e": of_one(special.i0e, (-8, 8), (8, 100)),
    "i1": of_one(special.i1, (-8, 8)),
    "i1e": of_one(special.i1e, (-8, 8), (8, 100)),
    "spherical_bessel_j0": of_one(special.spherical_bessel_j0, (-1, 1), (-20, 20)),
    "sinc": of_one(torch.sinc, (-1, 1), (-8, 8)),
    "entr": of_one(special.entr, (0, 1), (1, 100)),
    "xlogy": of_two(torch.xlogy, (-8, 8), (0, 8)),
    "xlog1py": of_two(special.xlog1py, (-8, 8), (-0.9, 8)),
}
