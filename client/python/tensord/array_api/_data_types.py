"""The dtypes, and the functions of the standard's section "Data type functions"."""

from __future__ import annotations

import builtins
from typing import Any

from .. import _core
from .._core import Tensor, dtype
from .._errors import InvalidArgumentError

bool = _core.dtype("bool")
int8, int16, int32, int64 = _core.int8, _core.int16, _core.int32, _core.int64
uint8, uint16, uint32, uint64 = _core.uint8, _core.uint16, _core.uint32, _core.uint64
float32, float64 = _core.float32, _core.float64
complex64, complex128 = _core.complex64, _core.complex128

DEFAULT_FLOAT = float32
DEFAULT_INT = int64
DEFAULT_COMPLEX = complex64

# The dtypes with arithmetic. Tensors of complex dtypes can be made, moved, reshaped, indexed and read.
ARITHMETIC_DTYPES = (
    *(bool, int8, int16, int32, int64),
    *(uint8, uint16, uint32, uint64),
    *(float32, float64),
)

_KINDS = {
    "bool": ("bool",),
    "signed integer": ("signed integer",),
    "unsigned integer": ("unsigned integer",),
    "integral": ("signed integer", "unsigned integer"),
    "real floating": ("real floating",),
    "complex floating": ("complex floating",),
    "numeric": ("signed integer", "unsigned integer", "real floating", "complex floating"),
}

_COMPONENTS = {complex64: float32, complex128: float64}
_COMPLEX = {float32: complex64, float64: complex128}


def is_complex(x: Tensor) -> builtins.bool:
    return x.dtype in _COMPONENTS


def refuse_complex(function: str, *tensors: Tensor) -> None:
    """Raises an error if one of the tensors is complex: the server has no arithmetic for complex dtypes."""
    for x in tensors:
        if is_complex(x):
            raise InvalidArgumentError(
                f"{function}(): {x.dtype.name} tensors can be made, moved, reshaped, indexed and read, but there is no"
                " arithmetic for complex dtypes; use real(x) and imag(x)"
            )


def components(x: Tensor) -> Tensor:
    """Returns the real and the imaginary parts of a complex tensor along a new last axis."""
    return _core.bitcast(_core.reshape(x, (*x.shape, 1)), _COMPONENTS[x.dtype])


def from_components(parts: Tensor) -> Tensor:
    """Returns the complex tensor whose parts stand along the last axis, which has size 2."""
    return _core.reshape(_core.bitcast(parts, _COMPLEX[parts.dtype]), parts.shape[:-1])


# ---------------------------------------------------------------- promotion


def _width(of: dtype) -> int:
    return 8 * of.itemsize


def _promote_floating(a: dtype, b: dtype) -> dtype:
    is_complex = "complex floating" in (a.kind, b.kind)
    bits = max(_width(_COMPONENTS.get(a, a)), _width(_COMPONENTS.get(b, b)))
    if bits == 16:  # float16 and bfloat16 have no common dtype of 16 bits; complex dtypes have at least 64
        return complex64 if is_complex else float32
    real = float64 if bits == 64 else float32
    return _COMPLEX[real] if is_complex else real


def _promote(a: dtype, b: dtype) -> dtype | None:
    """Returns the dtype to which the standard's tables promote, or None."""
    if a is b:
        return a
    kinds = {a.kind, b.kind}
    if kinds <= {"real floating", "complex floating"}:
        return _promote_floating(a, b)
    if len(kinds) == 1:
        return a if a.itemsize > b.itemsize else b
    if kinds == {"signed integer", "unsigned integer"}:
        signed, unsigned = (a, b) if a.kind == "signed integer" else (b, a)
        bits = max(_width(signed), 2 * _width(unsigned))
        return {16: int16, 32: int32, 64: int64}.get(bits)
    return None


def promote(a: dtype, b: dtype) -> dtype:
    result = _promote(a, b)
    if result is None:
        raise TypeError(f"{a.name} and {b.name} don't promote to one dtype; convert one of them with astype() first")
    return result


def with_scalar(of: dtype, scalar: Any) -> dtype:
    """Returns the dtype of an op of a tensor with this dtype and a Python number.

    If the number's kind is above that of the dtype, which the standard leaves open, the result is the default dtype of
    the number's kind.
    """
    if isinstance(scalar, builtins.bool):
        return of
    if isinstance(scalar, int):
        return DEFAULT_INT if of is bool else of
    if isinstance(scalar, float):
        return of if of.kind in ("real floating", "complex floating") else DEFAULT_FLOAT
    if of.kind == "complex floating":
        return of
    return _COMPLEX.get(of, DEFAULT_COMPLEX)


def result_type(*arrays_and_dtypes: Tensor | dtype | complex) -> dtype:
    """Returns the dtype of an op of these tensors, dtypes and Python numbers.

    At least one argument must be a tensor or a dtype. Dtypes of different kinds raise a TypeError.
    """
    result: dtype | None = None
    scalars = []
    for argument in arrays_and_dtypes:
        if isinstance(argument, (int, float, complex)):
            scalars.append(argument)
            continue
        of = argument.dtype if isinstance(argument, Tensor) else argument
        if not isinstance(of, dtype):
            raise TypeError(f"result_type() takes tensors, dtypes and Python numbers, not {type(argument).__name__}")
        result = of if result is None else promote(result, of)
    if result is None:
        raise ValueError("result_type() needs at least one tensor or dtype")
    for scalar in scalars:
        result = with_scalar(result, scalar)
    return result


def can_cast(from_: dtype | Tensor, to: dtype, /) -> builtins.bool:
    """Returns whether the promotion of from_ with the dtype to gives to."""
    of = from_.dtype if isinstance(from_, Tensor) else from_
    if not isinstance(of, dtype) or not isinstance(to, dtype):
        raise TypeError("can_cast() takes a tensor or a dtype, and a dtype")
    return _promote(of, to) is to


def isdtype(dtype: _core.dtype, kind: _core.dtype | str | tuple[_core.dtype | str, ...]) -> builtins.bool:
    """Returns whether the dtype is this dtype or of this kind, or one of a tuple.

    kind: "bool", "signed integer", "unsigned integer", "integral", "real floating", "complex floating", "numeric", or
        a dtype. tensord.float16 and tensord.bfloat16 are of the kind "real floating".
    """
    if isinstance(kind, tuple):
        return builtins.any([isdtype(dtype, one) for one in kind])  # a list: each is checked
    if isinstance(kind, _core.dtype):
        return dtype is kind
    if not isinstance(kind, str):
        raise TypeError(f"isdtype(): kind must be a dtype, a str or a tuple of them, not {type(kind).__name__}")
    if kind not in _KINDS:
        raise ValueError(f"isdtype(): there is no kind {kind!r}; the kinds are {', '.join(map(repr, _KINDS))}")
    return dtype.kind in _KINDS[kind]


# ---------------------------------------------------------------- conversion


def _convert(x: Tensor, to: dtype) -> Tensor:
    is_complex = x.dtype in _COMPONENTS
    if to in _COMPONENTS:
        part = _COMPONENTS[to]
        if is_complex:
            return from_components(components(x).to(part))
        real = _core.reshape(x.to(part), (*x.shape, 1))
        return from_components(_core.concat([real, _core.zeros_like(real)], -1))
    if not is_complex:
        return x.to(to)
    if to is bool:
        return _core.any(components(x), -1)
    raise TypeError(f"astype(): a {x.dtype.name} tensor doesn't become {to.name}: convert real(x) or imag(x)")


def astype(x: Tensor, dtype: _core.dtype, /, *, copy: builtins.bool = True, device: Any = None) -> Tensor:
    """Returns x with this dtype, on this device.

    copy: False: if nothing changes, returns x itself. Complex tensors become complex or bool, but not real.
    """
    to = _core.dtype(dtype)
    result = x
    if device is not None:
        result = result.to(device)
    if result.dtype is not to:
        result = _convert(result, to)
    return result.clone() if copy and result is x else result


# ---------------------------------------------------------------- limits


class _Limits:
    """Attributes that can't be changed."""

    def __init__(self, **attributes: Any) -> None:
        self.__dict__.update(attributes)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{name} can't be changed")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class finfo_object(_Limits):
    """The limits of a floating dtype: bits, eps, max, min, smallest_normal, dtype."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: _core.dtype


class iinfo_object(_Limits):
    """The limits of an integer dtype: bits, max, min, dtype."""

    bits: int
    max: int
    min: int
    dtype: _core.dtype


# The bits of the mantissa without the first one, and the largest exponent.
_FLOATS = {float64: (52, 1023), float32: (23, 127), _core.float16: (10, 15), _core.bfloat16: (7, 127)}


def _dtype_of(function: str, type: dtype | Tensor) -> dtype:
    return type.dtype if isinstance(type, Tensor) else _core.dtype(type)


def finfo(type: dtype | Tensor, /) -> finfo_object:
    """Returns the limits of a floating dtype; for a complex dtype, those of its parts."""
    of = _dtype_of("finfo", type)
    of = _COMPONENTS.get(of, of)
    if of not in _FLOATS:
        raise TypeError(f"finfo() takes a floating or complex dtype, not {of.name}: use iinfo()")
    digits, exponent = _FLOATS[of]
    largest = (2.0 - 2.0**-digits) * 2.0**exponent
    return finfo_object(
        bits=_width(of), eps=2.0**-digits, max=largest, min=-largest, smallest_normal=2.0 ** (1 - exponent), dtype=of
    )


def iinfo(type: dtype | Tensor, /) -> iinfo_object:
    """Returns the limits of an integer dtype."""
    of = _dtype_of("iinfo", type)
    if of.kind not in _KINDS["integral"]:
        raise TypeError(f"iinfo() takes an integer dtype, not {of.name}")
    bits = _width(of)
    if of.kind == "unsigned integer":
        return iinfo_object(bits=bits, max=2**bits - 1, min=0, dtype=of)
    return iinfo_object(bits=bits, max=2 ** (bits - 1) - 1, min=-(2 ** (bits - 1)), dtype=of)
