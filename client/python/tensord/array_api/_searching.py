"""The standard's sections "Indexing functions", "Searching functions", "Set functions" and "Sorting functions"."""

from __future__ import annotations

from typing import NamedTuple

from .. import _core
from .._core import Tensor
from . import _arguments, _data_types as dt
from ._creation import asarray
from ._manipulation import concat

# ---------------------------------------------------------------- indexing


def _indices(function: str, indices: Tensor) -> Tensor:
    kind = _arguments.tensor(function, indices, "indices").dtype.kind
    if kind not in ("signed integer", "unsigned integer"):
        raise TypeError(f"{function}(): indices must have an integer dtype, not {indices.dtype.name}")
    return indices if indices.dtype in (_core.int32, _core.int64) else indices.to(_core.int64)


def _only_axis(function: str, x: Tensor, axis: int | None) -> int:
    """Returns the axis, which may be left out for one dimension."""
    if axis is None:
        if x.ndim != 1:
            raise ValueError(f"{function}(): name the axis, because x has {x.ndim} axes")
        return 0
    return _arguments.one_axis(function, axis, x.ndim)


def take(x: Tensor, indices: Tensor, /, *, axis: int | None = None) -> Tensor:
    """The slices of x at the indices along an axis. Negative indices count from the end."""
    axis = _only_axis("take", _arguments.tensor("take", x), axis)
    return _core.index(x, [_indices("take", indices)], axis)


def take_along_axis(x: Tensor, indices: Tensor, /, *, axis: int = -1) -> Tensor:
    """For each index, the element of x with this index along the axis. Both broadcast along the other axes."""
    axis = _arguments.one_axis("take_along_axis", axis, _arguments.tensor("take_along_axis", x).ndim)
    return _core.take_along_dim(x, _indices("take_along_axis", indices), axis)


# ---------------------------------------------------------------- searching


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index (int64) of the first largest element along an axis, or in the flattened x. NaN counts as largest."""
    return _core.argmax(x, axis=axis, keepdims=keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The index (int64) of the first smallest element along an axis, or in the flattened x. NaN counts as smallest."""
    return _core.argmin(x, axis=axis, keepdims=keepdims)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The indices (int64) of the elements that aren't zero, one tensor for each axis. Waits for their number."""
    if _arguments.tensor("nonzero", x).ndim == 0:
        raise ValueError("nonzero(): x needs at least one axis")
    indices = _core.nonzero(x)
    return tuple(indices[i] for i in range(x.ndim))


def searchsorted(x1: Tensor, x2: Tensor | float, /, *, side: str = "left", sorter: Tensor | None = None) -> Tensor:
    """For each element of x2, the index (int64) at which it can be inserted into x1, which is in ascending order.

    side: "left": before equal elements; "right": after them. NaN is greater than all numbers, as in sort().
    sorter: the indices that sort x1.
    """
    if side not in ("left", "right"):
        raise ValueError(f'searchsorted(): side must be "left" or "right", not {side!r}')
    if _arguments.tensor("searchsorted", x1, "x1").ndim != 1:
        raise ValueError(f"searchsorted(): x1 must have one dimension, and has {x1.ndim}")
    if sorter is not None:
        x1 = _core.index(x1, [_indices("searchsorted", sorter)])
    wanted = _arguments.operand(x2, x1)
    if not isinstance(x2, Tensor) and wanted.dtype is not x1.dtype:
        x1 = x1.to(wanted.dtype)
    return _core.searchsorted(x1, wanted, right=side == "right")


def where(condition: Tensor, x1: Tensor | complex, x2: Tensor | complex, /) -> Tensor:
    """x1 where the condition, which must be bool, is True; x2 elsewhere. At least one of both must be a tensor."""
    if not isinstance(x1, Tensor) and not isinstance(x2, Tensor):
        raise TypeError("where(): at least one of x1 and x2 must be a Tensor")
    if isinstance(x1, complex) or isinstance(x2, complex):
        common = dt.result_type(x1, x2)
        device = _arguments.tensor("where", condition, "condition").device
        x1, x2 = asarray(x1, dtype=common, device=device), asarray(x2, dtype=common, device=device)
    return _core.where(condition, x1, x2)


# ---------------------------------------------------------------- sorting


def argsort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The indices (int64) that sort x along an axis. The order is always stable."""
    return _core.sort(x, axis=axis, descending=descending)[1]


def sort(x: Tensor, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The elements in order along an axis. NaN is greater than all numbers."""
    return _core.sort(x, axis=axis, descending=descending)[0]


# ---------------------------------------------------------------- sets


class UniqueAll(NamedTuple):
    """The result of unique_all."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """The result of unique_counts."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """The result of unique_inverse."""

    values: Tensor
    inverse_indices: Tensor


class _Groups:
    """The elements of x in order, and where each group of equal elements starts. Waits for the number of groups."""

    def __init__(self, function: str, x: Tensor) -> None:
        dt.refuse_complex(function, _arguments.tensor(function, x))
        self._x = x
        self._sorted, self._order = _core.sort(_arguments.flatten(x))
        if x.size == 0:
            self._starts = self._order
            return
        # NaN differs from NaN, so each is a group.
        first = _core.ones(1, dtype=dt.bool, device=x.device)
        self._begins = concat([first, _core.ne(self._sorted[1:], self._sorted[:-1])])
        self._starts = _core.nonzero(self._begins)[0]

    def values(self) -> Tensor:
        return self._sorted if self._x.size == 0 else _core.index(self._sorted, [self._starts])

    def indices(self) -> Tensor:
        """The first indices, because the order is stable."""
        return self._order if self._x.size == 0 else _core.index(self._order, [self._starts])

    def inverse_indices(self) -> Tensor:
        if self._x.size == 0:
            return _core.reshape(self._order, self._x.shape)
        groups = _core.cumsum(self._begins, 0) - 1
        places = _core.scatter(_core.zeros_like(groups), 0, self._order, groups)
        return _core.reshape(places, self._x.shape)

    def counts(self) -> Tensor:
        if self._x.size == 0:
            return self._order
        end = _core.full((1,), self._x.size, dtype=_core.int64, device=self._x.device)
        return concat([self._starts[1:], end]) - self._starts


def isin(x1: Tensor | int, x2: Tensor | int, /, *, invert: bool = False) -> Tensor:
    """Whether each element of x1 is equal to an element of x2, as bool; invert: whether it isn't."""
    x1, x2 = _arguments.pair("isin", x1, x2)
    dt.refuse_complex("isin", x1, x2)
    common = dt.result_type(x1, x2)
    if common is dt.bool:
        common = dt.uint8  # searchsorted takes numbers
    x1, x2 = x1.to(common), _arguments.flatten(x2).to(common)
    if x2.size == 0:
        return _core.full(x1.shape, invert, dtype=dt.bool, device=x1.device)
    known = _core.sort(x2)[0]
    places = _core.minimum(_core.searchsorted(known, x1), x2.size - 1)
    found = _core.index(known, [places])
    return _core.ne(found, x1) if invert else _core.eq(found, x1)


def unique_all(x: Tensor, /) -> UniqueAll:
    """The different elements in ascending order, their first indices, the inverse indices, and the counts.

    Waits for the number of elements. NaNs are different elements, and -0 equals +0.
    """
    groups = _Groups("unique_all", x)
    return UniqueAll(groups.values(), groups.indices(), groups.inverse_indices(), groups.counts())


def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The different elements in ascending order, and how often each occurs. Waits for their number."""
    groups = _Groups("unique_counts", x)
    return UniqueCounts(groups.values(), groups.counts())


def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The different elements in ascending order, and the index of each element of x among them. Waits."""
    groups = _Groups("unique_inverse", x)
    return UniqueInverse(groups.values(), groups.inverse_indices())


def unique_values(x: Tensor, /) -> Tensor:
    """The different elements in ascending order. Waits for their number."""
    return _Groups("unique_values", x).values()
