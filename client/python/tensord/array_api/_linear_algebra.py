"""The standard's section "Linear algebra functions". The extensions linalg and fft don't exist yet."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from .. import _core
from .._core import Tensor
from . import _arguments


def matmul(x1: Tensor, x2: Tensor, /) -> Tensor:
    """The matrix product. A vector on the left is a row, on the right a column. Leading dimensions broadcast."""
    return _core.matmul(x1, x2)


def matrix_transpose(x: Tensor, /) -> Tensor:
    """x with its last two axes exchanged."""
    if _arguments.tensor("matrix_transpose", x).ndim < 2:
        raise ValueError(f"matrix_transpose(): x needs at least two axes, and has {x.ndim}")
    return _core.permute(x, (*range(x.ndim - 2), x.ndim - 1, x.ndim - 2))


def tensordot(x1: Tensor, x2: Tensor, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2) -> Tensor:
    """Multiplies and sums over axes of both tensors.

    axes: the number of axes, the last ones of x1 and the first ones of x2; or the axes of x1 and those of x2.
    """
    _arguments.tensor("tensordot", x1, "x1"), _arguments.tensor("tensordot", x2, "x2")
    if isinstance(axes, (tuple, list)):
        left, right = axes
        summed1 = _arguments.axes("tensordot", tuple(left), x1.ndim)
        summed2 = _arguments.axes("tensordot", tuple(right), x2.ndim)
    else:
        count = operator.index(axes)
        if not 0 <= count <= min(x1.ndim, x2.ndim):
            raise ValueError(f"tensordot(): axes is {count}, and the tensors have {x1.ndim} and {x2.ndim} axes")
        summed1, summed2 = tuple(range(x1.ndim - count, x1.ndim)), tuple(range(count))
    sizes = [x1.shape[i] for i in summed1]
    if sizes != [x2.shape[i] for i in summed2]:
        raise ValueError(f"tensordot(): the sizes of the axes differ: {x1.shape} and {x2.shape}, axes {axes}")
    kept1 = [i for i in range(x1.ndim) if i not in summed1]
    kept2 = [i for i in range(x2.ndim) if i not in summed2]
    shape = (*(x1.shape[i] for i in kept1), *(x2.shape[i] for i in kept2))
    inner = math.prod(sizes)
    a = _core.reshape(_core.permute(x1, (*kept1, *summed1)), (math.prod(x1.shape[i] for i in kept1), inner))
    b = _core.reshape(_core.permute(x2, (*summed2, *kept2)), (inner, math.prod(x2.shape[i] for i in kept2)))
    return _core.reshape(_core.matmul(a, b), shape)


def vecdot(x1: Tensor, x2: Tensor, /, *, axis: int = -1) -> Tensor:
    """The sum of products along an axis, which is negative. The other axes broadcast."""
    _arguments.tensor("vecdot", x1, "x1"), _arguments.tensor("vecdot", x2, "x2")
    rank = min(x1.ndim, x2.ndim)
    if not -rank <= operator.index(axis) < 0:
        raise IndexError(f"vecdot(): axis must be from {-rank} to -1, and is {axis}")
    a = _arguments.move_axis_last(x1, axis + x1.ndim)
    b = _arguments.move_axis_last(x2, axis + x2.ndim)
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"vecdot(): the sizes along the axis differ: {x1.shape} and {x2.shape}, axis {axis}")
    product = _core.matmul(_core.reshape(a, (*a.shape[:-1], 1, a.shape[-1])), _core.reshape(b, (*b.shape, 1)))
    return _core.reshape(product, product.shape[:-2])
