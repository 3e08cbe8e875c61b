"""The array API standard, https://data-apis.org/array-api/2025.12: its main namespace, over tensord's functions.

    import tensord.array_api as xp

    x = xp.linspace(0, 1, 5)
    print(xp.sum(x), x.__array_namespace__() is xp)

Names, parameters, dtypes and special cases are the standard's; `tensord` itself has those of PyTorch. Where the
standard leaves the behavior open, it is that of tensord. Tensors of complex dtypes can be made, moved, reshaped,
indexed and read; functions with arithmetic refuse them. The extensions linalg and fft don't exist.
"""

from __future__ import annotations

import sys
from types import ModuleType

from .._core import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    ceil,
    copysign,
    cos,
    cosh,
    exp,
    expm1,
    floor,
    hypot,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    maximum,
    minimum,
    nextafter,
    pow,
    reciprocal,
    remainder,
    round,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
)
from .._version import __version__
from ._creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    from_dlpack,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from ._data_types import (
    astype,
    bool,
    can_cast,
    complex64,
    complex128,
    finfo,
    float32,
    float64,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)
from ._elementwise import (
    bitwise_invert,
    bitwise_left_shift,
    bitwise_right_shift,
    clip,
    conj,
    divide,
    equal,
    floor_divide,
    greater,
    greater_equal,
    imag,
    less,
    less_equal,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    multiply,
    negative,
    not_equal,
    positive,
    real,
    subtract,
)
from ._info import __array_namespace_info__
from ._linear_algebra import matmul, matrix_transpose, tensordot, vecdot
from ._manipulation import (
    broadcast_arrays,
    broadcast_shapes,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    tile,
    unstack,
)
from ._searching import (
    argmax,
    argmin,
    argsort,
    isin,
    nonzero,
    searchsorted,
    sort,
    take,
    take_along_axis,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
    where,
)
from ._statistics import (
    all,
    any,
    count_nonzero,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)

__array_api_version__ = "2025.12"

e = 2.718281828459045
inf = float("inf")
nan = float("nan")
newaxis = None
pi = 3.141592653589793

_VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")


def _for_version(api_version: str | None) -> ModuleType:
    """Returns this module. Tensor.__array_namespace__ calls this function."""
    if api_version is not None and api_version not in _VERSIONS:
        raise ValueError(f"there is no namespace for the version {api_version!r} of the array API standard")
    return sys.modules[__name__]


__all__ = [name for name in globals() if not name.startswith("_") and name not in ("annotations", "sys", "ModuleType")]
__all__ += ["__array_api_version__", "__array_namespace_info__"]
