"""The standard's section "Manipulation functions"."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from .. import _core
from .._core import Tensor
from . import _arguments, _data_types as dt

_MAX_CONCAT = 1024  # the number of inputs that the op takes


def broadcast_arrays(*arrays: Tensor) -> tuple[Tensor, ...]:
    """Returns the arrays, broadcast to one shape."""
    shape = broadcast_shapes(*(_arguments.tensor("broadcast_arrays", x, "each argument").shape for x in arrays))
    return tuple(_core.broadcast_to(x, shape) for x in arrays)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """Returns the shape to which these shapes broadcast. Raises a ValueError if there is none."""
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            number = operator.index(size)
            if number < 0:
                raise ValueError(f"broadcast_shapes(): a size is negative: {tuple(shape)}")
            if number == 1 or number == result[axis]:
                continue
            if result[axis] != 1:
                raise ValueError(f"broadcast_shapes(): the shapes don't broadcast: {', '.join(map(str, shapes))}")
            result[axis] = number
    return tuple(result)


def broadcast_to(x: Tensor, /, shape: tuple[int, ...]) -> Tensor:
    """Repeats x along axes of size 1 and new leading axes until it has this shape."""
    return _core.broadcast_to(x, shape)


def concat(arrays: Sequence[Tensor], /, *, axis: int | None = 0) -> Tensor:
    """Joins arrays along an axis, with promotion. axis=None: each is flattened first."""
    parts = [_arguments.tensor("concat", x, "each array") for x in arrays]
    if not parts:
        raise ValueError("concat() needs at least one array")
    if axis is None:
        parts, axis = [_arguments.flatten(x) for x in parts], 0
    axis = _arguments.one_axis("concat", axis, parts[0].ndim)
    if len({x.dtype for x in parts}) > 1:
        common = dt.result_type(*parts)
        parts = [dt.astype(x, common, copy=False) for x in parts]
    while len(parts) > _MAX_CONCAT:
        parts = [_core.concat(parts[i : i + _MAX_CONCAT], axis) for i in range(0, len(parts), _MAX_CONCAT)]
    return _core.concat(parts, axis)


def expand_dims(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Adds axes of size 1, at these positions of the result."""
    count = len(axis) if isinstance(axis, (tuple, list)) else 1
    positions = _arguments.axes("expand_dims", axis, _arguments.tensor("expand_dims", x).ndim + count)
    sizes = iter(x.shape)
    return _core.reshape(x, tuple(1 if i in positions else next(sizes) for i in range(x.ndim + count)))


def flip(x: Tensor, /, *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Reverses the order along the axes; along all axes by default."""
    chosen = tuple(range(x.ndim)) if axis is None else _arguments.axes("flip", axis, x.ndim)
    return _core.flip(x, chosen) if chosen else x.clone()


def moveaxis(x: Tensor, source: int | tuple[int, ...], destination: int | tuple[int, ...], /) -> Tensor:
    """Moves axes to new positions. The other axes keep their order."""
    sources = _arguments.axes("moveaxis", source, _arguments.tensor("moveaxis", x).ndim)
    destinations = _arguments.axes("moveaxis", destination, x.ndim)
    if len(sources) != len(destinations):
        raise ValueError(f"moveaxis(): there are {len(sources)} sources and {len(destinations)} destinations")
    order = [i for i in range(x.ndim) if i not in sources]
    for to, from_ in sorted(zip(destinations, sources)):
        order.insert(to, from_)
    return _core.permute(x, order)


def permute_dims(x: Tensor, /, axes: tuple[int, ...]) -> Tensor:
    """The axes in another order: axis i of the result is axis axes[i] of x."""
    return _core.permute(x, _arguments.axes("permute_dims", tuple(axes), _arguments.tensor("permute_dims", x).ndim))


def _spread(x: Tensor, axis: int, count: int, before: bool) -> Tensor:
    """Repeats each element along the axis count times, or the whole axis (before)."""
    head, size, tail = x.shape[:axis], x.shape[axis], x.shape[axis + 1 :]
    inner, outer = ((1, size), (count, size)) if before else ((size, 1), (size, count))
    wide = _core.broadcast_to(_core.reshape(x, (*head, *inner, *tail)), (*head, *outer, *tail))
    return _core.reshape(wide, (*head, size * count, *tail))


def repeat(x: Tensor, repeats: int | Tensor, /, *, axis: int | None = None) -> Tensor:
    """Repeats each element, or each slice along an axis, so many times. axis=None: x is flattened first.

    If repeats is a tensor, the shape of the result depends on its values: the call then waits for the server.
    """
    if axis is None:
        x, axis = _arguments.flatten(_arguments.tensor("repeat", x)), 0
    axis = _arguments.one_axis("repeat", axis, x.ndim)
    if not isinstance(repeats, Tensor):
        count = operator.index(repeats)
        if count < 0:
            raise ValueError(f"repeat(): repeats must not be negative, and is {count}")
        return x.clone() if count == 1 else _spread(x, axis, count, before=False)
    if repeats.dtype.kind not in ("signed integer", "unsigned integer"):
        raise TypeError(f"repeat(): repeats must have an integer dtype, not {repeats.dtype.name}")
    size = x.shape[axis]
    counts = _core.broadcast_to(repeats.to(_core.int64), (size,))
    total = 0
    if size > 0:
        # One read for both.
        total, smallest = stack([_core.sum(counts), _core.min(counts)]).tolist()
        if smallest < 0:
            raise ValueError(f"repeat(): repeats must not be negative, and one is {smallest}")
    # Element i of the result comes from the first element whose running sum of counts exceeds i.
    places = _core.arange(total, dtype=_core.int64, device=x.device)
    if total == 0:
        return _core.index(x, [places], axis)
    return _core.index(x, [_core.searchsorted(_core.cumsum(counts, 0), places, right=True)], axis)


def reshape(x: Tensor, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Tensor:
    """The same elements in another shape. One size may be -1. Never copies, and operators in place don't share."""
    return _core.reshape(x, shape)


def roll(x: Tensor, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None) -> Tensor:
    """Moves every element along the axes. Elements beyond the end come in again at the start.

    axis=None: x is flattened, and has its shape again afterwards.
    """
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift]
    if axis is None:
        if len(shifts) != 1:
            raise ValueError("roll(): several shifts need as many axes")
        return _core.roll(_arguments.tensor("roll", x), shifts)
    given = list(axis) if isinstance(axis, (tuple, list)) else [axis]
    chosen = [_arguments.one_axis("roll", one, _arguments.tensor("roll", x).ndim) for one in given]
    if len(shifts) == 1:
        shifts *= len(chosen)
    if len(shifts) != len(chosen):
        raise ValueError(f"roll(): there are {len(shifts)} shifts and {len(chosen)} axes")
    return _core.roll(x, shifts, chosen) if chosen else x.clone()


def squeeze(x: Tensor, /, axis: int | tuple[int, ...]) -> Tensor:
    """Removes axes of size 1. Raises a ValueError for an axis of another size."""
    chosen = _arguments.axes("squeeze", axis, _arguments.tensor("squeeze", x).ndim)
    for i in chosen:
        if x.shape[i] != 1:
            raise ValueError(f"squeeze(): axis {i} has size {x.shape[i]}, and only axes of size 1 can be removed")
    return _core.reshape(x, tuple(size for i, size in enumerate(x.shape) if i not in chosen))


def stack(arrays: Sequence[Tensor], /, *, axis: int = 0) -> Tensor:
    """Joins arrays of one shape along a new axis, with promotion."""
    parts = [_arguments.tensor("stack", x, "each array") for x in arrays]
    if not parts:
        raise ValueError("stack() needs at least one array")
    if any(x.shape != parts[0].shape for x in parts):
        raise ValueError(f"stack(): the arrays differ in shape: {', '.join(str(x.shape) for x in parts)}")
    axis = _arguments.one_axis("stack", axis, parts[0].ndim + 1)
    return concat([expand_dims(x, axis) for x in parts], axis=axis)


def tile(x: Tensor, repetitions: tuple[int, ...], /) -> Tensor:
    """Puts so many copies of x beside each other along each axis."""
    counts = [operator.index(count) for count in repetitions]
    if any(count < 0 for count in counts):
        raise ValueError(f"tile(): repetitions must not be negative: {tuple(repetitions)}")
    rank = max(_arguments.tensor("tile", x).ndim, len(counts))
    result = _core.reshape(x, (1,) * (rank - x.ndim) + x.shape)
    for axis, count in enumerate(counts, rank - len(counts)):
        if count != 1:
            result = _spread(result, axis, count, before=True)
    return result


def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """Returns the slices of x along an axis, without this axis."""
    axis = _arguments.one_axis("unstack", axis, _arguments.tensor("unstack", x).ndim)
    before: tuple[Any, ...] = (slice(None),) * axis
    return tuple(x[(*before, i)] for i in range(x.shape[axis]))
