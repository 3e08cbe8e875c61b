"""The standard's section "Element-wise functions", without those that tensord has under the same name.

If one operand of a function of two operands is a Python number, it has the dtype of the other operand, or the default
dtype of its kind if that kind is higher.
"""

from __future__ import annotations

import builtins
from typing import Any

from .. import _core
from .._core import Tensor
from . import _arguments, _data_types as dt


def bitwise_invert(x: Tensor, /) -> Tensor:
    """x with every bit inverted; for bool, the opposite value."""
    return _core.bitwise_not(x)


def bitwise_left_shift(x1: Tensor | int, x2: Tensor | int, /) -> Tensor:
    """x1 shifted left by x2 bits. An x2 outside the width counts as the width."""
    return _core.shift_left(x1, x2)


def bitwise_right_shift(x1: Tensor | int, x2: Tensor | int, /) -> Tensor:
    """x1 shifted right by x2 bits, with its sign. An x2 outside the width counts as the width."""
    return _core.shift_right(x1, x2)


def _within(of: _core.dtype, bound: Any) -> Any:
    """Returns the bound; an int that an integer dtype can't hold becomes the dtype's limit."""
    if isinstance(bound, Tensor) or isinstance(bound, float) or of.kind not in ("signed integer", "unsigned integer"):
        return bound
    limits = dt.iinfo(of)
    return builtins.max(limits.min, builtins.min(limits.max, bound))


def clip(x: Tensor, /, min: Tensor | float | None = None, max: Tensor | float | None = None) -> Tensor:
    """x, but at least min and at most max. NaN in any of them gives NaN. If min exceeds max, the result is max."""
    result = _arguments.tensor("clip", x)
    dt.refuse_complex("clip", x)
    if min is not None:
        result = _core.maximum(result, _within(x.dtype, min))
    if max is not None:
        result = _core.minimum(result, _within(x.dtype, max))
    return result.clone() if result is x else result


def conj(x: Tensor, /) -> Tensor:
    """x with the opposite imaginary part; the values of x if it isn't complex."""
    if not dt.is_complex(_arguments.tensor("conj", x)):
        return x.clone()
    parts = dt.components(x)
    return dt.from_components(parts * _core.asarray([1.0, -1.0], dtype=parts.dtype, device=x.device))


def divide(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 / x2. Integers and bool are converted to float32."""
    return _core.div(x1, x2)


def equal(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 == x2, as bool."""
    return _core.eq(x1, x2)


def floor_divide(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 / x2, rounded down; for floating tensors, floor(divide(x1, x2)). 0 for an integer divided by 0.

    The operator // differs for infinities, as the standard permits: it gives what Python gives.
    """
    x = x1 if isinstance(x1, Tensor) else x2
    if isinstance(x, Tensor) and x.dtype.kind == "real floating":
        return _core.floor(_core.div(x1, x2))
    return _core.floor_divide(x1, x2)


def greater(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 > x2, as bool."""
    return _core.gt(x1, x2)


def greater_equal(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 >= x2, as bool."""
    return _core.ge(x1, x2)


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part of a complex tensor; zeros for a floating one."""
    if not dt.is_complex(_arguments.tensor("imag", x)):
        return _core.zeros_like(x)
    return dt.components(x)[..., 1]


def less(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 < x2, as bool."""
    return _core.lt(x1, x2)


def less_equal(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 <= x2, as bool."""
    return _core.le(x1, x2)


def logical_and(x1: Tensor | bool, x2: Tensor | bool, /) -> Tensor:
    """x1 AND x2, as bool. An operand counts as true unless it is zero."""
    return _core.logical_and(*_arguments.pair("logical_and", x1, x2))


def logical_not(x: Tensor, /) -> Tensor:
    """Whether x is zero, as bool."""
    return _core.logical_not(x)


def logical_or(x1: Tensor | bool, x2: Tensor | bool, /) -> Tensor:
    """x1 OR x2, as bool. An operand counts as true unless it is zero."""
    return _core.logical_or(*_arguments.pair("logical_or", x1, x2))


def logical_xor(x1: Tensor | bool, x2: Tensor | bool, /) -> Tensor:
    """Whether exactly one of x1 and x2 is true, as bool."""
    return _core.logical_xor(*_arguments.pair("logical_xor", x1, x2))


def multiply(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 * x2. Integers wrap."""
    return _core.mul(x1, x2)


def negative(x: Tensor, /) -> Tensor:
    """-x."""
    return _core.neg(x)


def not_equal(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 != x2, as bool."""
    return _core.ne(x1, x2)


def positive(x: Tensor, /) -> Tensor:
    """A tensor with the values of x."""
    dt.refuse_complex("positive", _arguments.tensor("positive", x))
    return x.clone()


def real(x: Tensor, /) -> Tensor:
    """The real part of a complex tensor; the values of any other tensor."""
    return dt.components(x)[..., 0] if dt.is_complex(_arguments.tensor("real", x)) else x.clone()


def subtract(x1: Tensor | float, x2: Tensor | float, /) -> Tensor:
    """x1 - x2. Integers wrap."""
    return _core.sub(x1, x2)
