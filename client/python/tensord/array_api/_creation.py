"""The standard's section "Creation functions".

Functions that get no device make the tensor on tensord.default_device(). If the process has no connection yet, that
connects as tensord.connect() without an address does.
"""

from __future__ import annotations

from typing import Any

from .. import _core
from .._core import Tensor, dtype
from . import _arguments, _data_types as dt


def arange(
    start: float, /, stop: float | None = None, step: float = 1, *, dtype: dtype | None = None, device: Any = None
) -> Tensor:
    """start, start + step, … below stop; with one number, from 0 up to it.

    dtype: default: int64 if all three are ints, otherwise float32.
    """
    return _core.arange(start, stop, step, dtype=dtype, device=device)


def _has_complex(obj: Any) -> bool:
    if isinstance(obj, (list, tuple)):
        return any(map(_has_complex, obj))
    return isinstance(obj, complex)


def asarray(obj: Any, /, *, dtype: dtype | None = None, device: Any = None, copy: bool | None = None) -> Tensor:
    """Makes a tensor of a number, nested sequences of numbers, or an array of another library in host memory.

    copy: False raises a ValueError where a copy is needed, as for all data that isn't a Tensor. None returns a Tensor
        that has this dtype and device as it is. True returns a new object, which operators in place don't share.
    """
    if isinstance(obj, Tensor):
        result = dt.astype(obj, obj.dtype if dtype is None else dtype, copy=bool(copy), device=device)
        if copy is False and result is not obj:
            raise ValueError("asarray(): another dtype or device needs a copy, and copy=False forbids it")
        return result
    if copy is not False:
        if dtype is None and _has_complex(obj):
            dtype = dt.DEFAULT_COMPLEX
        if dtype is not None and _core.dtype(dtype).kind == "complex floating":
            import numpy

            obj, dtype = numpy.asarray(obj, dtype=_core.dtype(dtype).name), None
    return _core.asarray(obj, dtype=dtype, device=device, copy=copy)


def empty(shape: int | tuple[int, ...], *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of zeros, float32 by default: tensord has no uninitialized tensors."""
    return _core.zeros(shape, dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Zeros with the shape, dtype and device of x."""
    return _core.zeros_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: dtype | None = None, device: Any = None
) -> Tensor:
    """Ones at [i, i + k] and zeros elsewhere, float32 by default."""
    k = max(-n_rows, min(k, n_rows if n_cols is None else n_cols))  # any other diagonal is outside, too
    return _core.eye(n_rows, n_cols, k=k, dtype=dtype, device=device)


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """Makes a tensor of an object with __dlpack__ in host memory, on a device or the default device.

    copy: False raises a BufferError where a copy is needed. None returns a Tensor that is on the device as it is.
    """
    result = _core.from_dlpack(x, device=device, copy=copy)
    return result.clone() if copy and result is x else result


def full(
    shape: int | tuple[int, ...], fill_value: complex, *, dtype: dtype | None = None, device: Any = None
) -> Tensor:
    """A tensor of one value. Its dtype is bool, int64, float32 or complex64 by default, by the value's type."""
    kind = None if dtype is None else _core.dtype(dtype).kind
    if isinstance(fill_value, (complex, Tensor)) or kind == "complex floating":
        return _core.broadcast_to(asarray(fill_value, dtype=dtype, device=device), shape)
    return _core.full(shape, fill_value, dtype=dtype, device=device)


def full_like(x: Tensor, /, fill_value: complex, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of one value with the shape, dtype and device of x."""
    _arguments.tensor("full_like", x)
    return full(
        x.shape, fill_value, dtype=x.dtype if dtype is None else dtype, device=x.device if device is None else device
    )


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: dtype | None = None,
    device: Any = None,
    endpoint: bool = True,
) -> Tensor:
    """num values from start to stop in equal steps, float32 by default. endpoint: stop is the last value."""
    if isinstance(start, complex) or isinstance(stop, complex):
        raise TypeError("linspace(): there is no arithmetic for complex dtypes")
    return _core.linspace(start, stop, num, endpoint=endpoint, dtype=dtype, device=device)


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Returns, for each array of one dimension, its values spread along one axis of the common grid.

    indexing: "ij": array i is along axis i. "xy": the first two axes are exchanged.
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f'meshgrid(): indexing must be "xy" or "ij", not {indexing!r}')
    for x in arrays:
        if _arguments.tensor("meshgrid", x, "each argument").ndim != 1:
            raise ValueError(f"meshgrid(): each array must have one dimension, and one has the shape {x.shape}")
    order = list(range(len(arrays)))
    if indexing == "xy" and len(arrays) > 1:
        order[0], order[1] = 1, 0
    shape = tuple(arrays[i].size for i in order)  # order is its own inverse
    grids = []
    for i, x in enumerate(arrays):
        along = [1] * len(arrays)
        along[order[i]] = x.size
        grids.append(_core.broadcast_to(_core.reshape(x, along), shape))
    return tuple(grids)


def ones(shape: int | tuple[int, ...], *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of ones, float32 by default."""
    return _core.ones(shape, dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Ones with the shape, dtype and device of x."""
    return _core.ones_like(x, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The matrices of the last two axes with zeros above diagonal k."""
    return _core.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """The matrices of the last two axes with zeros below diagonal k."""
    return _core.triu(x, k)


def zeros(shape: int | tuple[int, ...], *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """A tensor of zeros, float32 by default."""
    return _core.zeros(shape, dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Zeros with the shape, dtype and device of x."""
    return _core.zeros_like(x, dtype=dtype, device=device)
