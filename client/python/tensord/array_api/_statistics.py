"""The standard's sections "Statistical functions" and "Utility functions", and count_nonzero."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

from .. import _core
from .._core import Tensor, dtype
from . import _arguments, _data_types as dt
from ._manipulation import concat
from ._searching import _only_axis

Axes = int | tuple[int, ...] | None


def _reduce(run: Callable[..., Tensor], x: Tensor, axis: Axes, keepdims: bool, **options: Any) -> Tensor:
    """Reduces over an axis, a tuple of axes, or all axes. A tuple of none reduces each element by itself."""
    if isinstance(axis, (tuple, list)) and len(axis) == 0:
        return run(_core.reshape(x, (1, *x.shape)), axis=0, keepdims=False, **options)
    return run(x, axis=axis, keepdims=keepdims, **options)


def _accumulator(of: dtype) -> dtype:
    """Returns the dtype of the sum of tensors of this dtype."""
    if of.kind in ("real floating", "complex floating"):
        return of
    return dt.uint64 if of.kind == "unsigned integer" else dt.int64


def _floating(x: Tensor) -> Tensor:
    return x if x.dtype.kind in ("real floating", "complex floating") else x.to(dt.DEFAULT_FLOAT)


def _cumulative(
    run: Callable[..., Tensor], x: Tensor, axis: int | None, of: dtype | None, include_initial: bool, initial: int
) -> Tensor:
    name = f"cumulative_{run.__name__.removeprefix('cum')}"
    dt.refuse_complex(name, _arguments.tensor(name, x))
    if x.ndim == 0:
        x, axis = _core.reshape(x, (1,)), 0
    axis = _only_axis(name, x, axis)
    to = _accumulator(x.dtype) if of is None else _core.dtype(of)
    result = run(x, axis, dtype=to)
    if not include_initial:
        return result
    shape = (*x.shape[:axis], 1, *x.shape[axis + 1 :])
    return concat([_core.full(shape, initial, dtype=to, device=x.device), result], axis=axis)


def _deviation(run: Callable[..., Tensor], x: Tensor, axis: Axes, correction: float, keepdims: bool) -> Tensor:
    """var and std. If n - correction isn't above 0, the op divides by 0, and the standard asks for NaN."""
    x = _floating(x)
    result = _reduce(run, x, axis, keepdims, correction=correction)
    if isinstance(axis, (tuple, list)) and len(axis) == 0:
        count = 1
    else:
        chosen = range(x.ndim) if axis is None else _arguments.axes(run.__name__, axis, x.ndim)
        count = math.prod(x.shape[i] for i in chosen)
    return result if count > correction else _core.full_like(result, math.nan)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: dtype | None = None, include_initial: bool = False
) -> Tensor:
    """The products of the elements up to each one along an axis.

    dtype: default: that of prod(). include_initial: the result begins with 1.
    """
    return _cumulative(_core.cumprod, x, axis, dtype, include_initial, 1)


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: dtype | None = None, include_initial: bool = False
) -> Tensor:
    """The sums of the elements up to each one along an axis.

    dtype: default: that of sum(). include_initial: the result begins with 0.
    """
    return _cumulative(_core.cumsum, x, axis, dtype, include_initial, 0)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element; NaN if any is NaN. Raises an error for no elements."""
    return _reduce(_core.max, x, axis, keepdims)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The mean; NaN for no elements. Integers and bool are converted to float32."""
    return _reduce(_core.mean, _floating(x), axis, keepdims)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element; NaN if any is NaN. Raises an error for no elements."""
    return _reduce(_core.min, x, axis, keepdims)


def prod(x: Tensor, /, *, axis: Axes = None, dtype: dtype | None = None, keepdims: bool = False) -> Tensor:
    """The product; 1 for no elements. dtype: default: the dtype of x for floats, uint64 or int64 for integers."""
    return _reduce(_core.prod, x, axis, keepdims, dtype=_accumulator(x.dtype) if dtype is None else dtype)


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The standard deviation: the square root of var()."""
    return _deviation(_core.std, x, axis, correction, keepdims)


def sum(x: Tensor, /, *, axis: Axes = None, dtype: dtype | None = None, keepdims: bool = False) -> Tensor:
    """The sum; 0 for no elements. dtype: default: the dtype of x for floats, uint64 or int64 for integers."""
    return _reduce(_core.sum, x, axis, keepdims, dtype=_accumulator(x.dtype) if dtype is None else dtype)


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """The variance: the squared deviations divided by n - correction. NaN if that isn't above 0."""
    return _deviation(_core.var, x, axis, correction, keepdims)


# ---------------------------------------------------------------- utility


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether all elements are nonzero, as bool; True for no elements."""
    return _reduce(_core.all, x, axis, keepdims)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Whether any element is nonzero, as bool; False for no elements."""
    return _reduce(_core.any, x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """The number of elements that aren't zero (int64)."""
    return _reduce(_core.count_nonzero, x, axis, keepdims)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """The differences of neighbours along an axis, n times. For bool: whether neighbours differ.

    prepend, append: values before and after x along the axis.
    """
    dt.refuse_complex("diff", _arguments.tensor("diff", x))
    axis = _arguments.one_axis("diff", axis, x.ndim)
    if n < 0:
        raise ValueError(f"diff(): n must not be negative, and is {n}")
    parts = [part for part in (prepend, x, append) if part is not None]
    result = concat(parts, axis=axis) if len(parts) > 1 else x.clone()
    subtract = _core.ne if result.dtype is dt.bool else _core.sub
    before: tuple[slice, ...] = (slice(None),) * axis
    for _ in range(builtins.min(n, result.shape[axis] + 1)):
        result = subtract(result[(*before, slice(1, None))], result[(*before, slice(None, -1))])
    return result
