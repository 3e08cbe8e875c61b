"""Reads arguments: axes, shapes, operands that may be numbers."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from typing import Any

from .. import _core
from .._core import Tensor
from . import _data_types as dt


def tensor(function: str, x: Any, name: str = "x") -> Tensor:
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}(): {name} must be a Tensor, not {type(x).__name__}")
    return x


def one_axis(function: str, axis: Any, rank: int) -> int:
    """Returns the axis counted from the start. Raises an IndexError for one that doesn't exist."""
    number = operator.index(axis)
    if not -rank <= number < rank:
        raise IndexError(f"{function}(): axis {number} is out of range for {rank} axes")
    return number + rank if number < 0 else number


def axes(function: str, axis: Any, rank: int) -> tuple[int, ...]:
    """Returns an axis, or a tuple of different axes, counted from the start."""
    given: Iterable[Any] = axis if isinstance(axis, (tuple, list)) else (axis,)
    result = tuple(one_axis(function, one, rank) for one in given)
    if len(set(result)) != len(result):
        raise ValueError(f"{function}(): an axis is named twice: {axis}")
    return result


def operand(x: Any, like: Tensor) -> Tensor:
    """Returns a number as a tensor of no axes, with the dtype that an op with `like` has."""
    if isinstance(x, Tensor):
        return x
    return _core.asarray(x, dtype=dt.with_scalar(like.dtype, x), device=like.device)


def pair(function: str, x1: Any, x2: Any) -> tuple[Tensor, Tensor]:
    """Returns both as tensors. At least one must be a tensor, and the other one may be a number."""
    if isinstance(x1, Tensor):
        return x1, operand(x2, x1)
    return operand(x1, tensor(function, x2, "x1 or x2")), x2


def reshape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    return _core.reshape(x, shape)


def flatten(x: Tensor) -> Tensor:
    return _core.reshape(x, (x.size,))


def move_axis_last(x: Tensor, axis: int) -> Tensor:
    if axis == x.ndim - 1:
        return x
    return _core.permute(x, (*range(axis), *range(axis + 1, x.ndim), axis))
