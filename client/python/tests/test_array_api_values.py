"""The functions of tensord.array_api, compared with NumPy by value, dtype and shape, and wrong arguments."""

import numpy as np
import pytest
import tensord.array_api as xp
from test_array_api import BY_NAME, check, make

INPUTS = {
    "f": np.array([[0.5, -1.25, 2.0], [3.5, -0.0, 1.0]], "float32"),
    "d": np.array([[4.0, 0.25, -2.0], [1.0, 7.5, -3.0]], "float64"),
    "i": np.array([[3, -1, 2], [0, 5, -4]], "int32"),
    "u": np.array([[3, 1, 2], [0, 5, 250]], "uint8"),
    "l": np.array([[7, -9, 0], [2, 2, 1]], "int64"),
    "b": np.array([[True, False, True], [False, False, True]]),
    "c": np.array([[False, False, True], [True, False, True]]),
    "v": np.array([3, 1, 2, 3, 1], "int64"),
    "w": np.array([0.0, 0.5, 1.0], "float32"),
    "m": np.arange(24, dtype="float32").reshape(2, 3, 4),
    "k": np.array([2, 0, 1], "int64"),
    "o": np.zeros((0, 3), "float32"),
    "s": np.array(2.5, "float32"),
}

EXPRESSIONS = """
xp.abs(i)
xp.abs(f)
xp.acos(w)
xp.acosh(w + 1)
xp.asin(w)
xp.asinh(f)
xp.atan(f)
xp.atanh(w / 2)
xp.add(i, l)
xp.add(u, i)
xp.add(f, 2)
xp.add(2.5, d)
xp.atan2(f, d)
xp.bitwise_and(i, l)
xp.bitwise_or(b, c)
xp.bitwise_xor(i, 3)
xp.bitwise_invert(i)
xp.bitwise_invert(u)
xp.bitwise_invert(b)
xp.bitwise_left_shift(i, 2)
xp.bitwise_right_shift(l, u % 3)
xp.ceil(f)
xp.ceil(i)
xp.clip(f, -1, 1.5)
xp.clip(i, min=0)
xp.clip(u, max=4)
xp.clip(u, -5, 300)
xp.clip(f, max=f * 0)
xp.copysign(f, d)
xp.cos(f)
xp.cosh(f)
xp.divide(f, d)
xp.divide(1, d)
xp.equal(i, l)
xp.equal(b, True)
xp.exp(f)
xp.expm1(f)
xp.floor(f)
xp.floor(l)
xp.floor_divide(l, 2)
xp.floor_divide(i, xp.where(l == 0, xp.asarray(1, dtype=xp.int64), l))
xp.floor_divide(d, f)
xp.greater(f, d)
xp.greater_equal(i, 2)
xp.hypot(f, d)
xp.imag(f)
xp.isfinite(f / f)
xp.isinf(1 / f)
xp.isnan(f / f)
xp.less(i, l)
xp.less_equal(1.0, f)
xp.log(w)
xp.log1p(w)
xp.log2(w)
xp.log10(w)
xp.logaddexp(f, d)
xp.logical_and(b, c)
xp.logical_or(b, False)
xp.logical_xor(True, b)
xp.logical_not(b)
xp.maximum(i, l)
xp.minimum(f, 1)
xp.multiply(u, u)
xp.negative(i)
xp.nextafter(f, d.astype('float32') if hasattr(d, 'astype') else xp.astype(d, xp.float32))
xp.not_equal(f, 1)
xp.positive(f)
xp.pow(i, 2)
xp.pow(2, f)
xp.pow(xp.abs(f), d)
xp.real(f)
xp.reciprocal(d)
xp.remainder(l, 4)
xp.remainder(d, -3)
xp.round(f)
xp.sign(f)
xp.sign(i)
xp.signbit(f)
xp.sin(f)
xp.sinh(f)
xp.square(f)
xp.sqrt(w)
xp.subtract(u, 1)
xp.tan(f)
xp.tanh(f)
xp.trunc(f)
xp.arange(5)
xp.arange(2, 11, 3)
xp.arange(5, 0, -2, dtype=xp.int16)
xp.arange(0, 1, 0.25, dtype=xp.float64)
xp.arange(3, 1)
xp.asarray([[1, 2], [3, 4]], dtype=xp.uint16)
xp.asarray([True, False])
xp.asarray([], dtype=xp.float32)
xp.empty((2, 0), dtype=xp.int8)
xp.zeros_like(xp.empty_like(i))
xp.eye(3, 4, k=1, dtype=xp.float32)
xp.eye(2, dtype=xp.int64)
xp.full((2, 2), 7)
xp.full(3, True)
xp.full((), 1.5, dtype=xp.float32)
xp.full_like(i, 9)
xp.full_like(f, 2, dtype=xp.int8)
xp.linspace(0, 1, 5, dtype=xp.float64)
xp.linspace(2, -3, 4, endpoint=False, dtype=xp.float64)
xp.linspace(1, 2, 0, dtype=xp.float32)
xp.linspace(1, 2, 1, dtype=xp.float32)
tuple(xp.meshgrid(v, w))
tuple(xp.meshgrid(v, w, k, indexing='ij'))
tuple(xp.meshgrid(v))
xp.ones((2,), dtype=xp.bool)
xp.ones_like(u)
xp.tril(m)
xp.triu(m, k=1)
xp.tril(b, k=-1)
xp.zeros((2, 3), dtype=xp.uint32)
xp.zeros_like(m)
xp.take(v, k)
xp.take(f, k[1:], axis=0)
xp.take(m, xp.asarray([-1, 0], dtype=xp.int32), axis=-1)
xp.take_along_axis(f, xp.argsort(f, axis=1), axis=1)
xp.take_along_axis(f, k[None, :], axis=-1)
xp.take_along_axis(i, k[None, :] % 2, axis=0)
xp.argmax(f)
xp.argmax(i, axis=1)
xp.argmin(m, axis=0, keepdims=True)
xp.argmin(v, keepdims=True)
xp.count_nonzero(i)
xp.count_nonzero(b, axis=0)
xp.count_nonzero(m, axis=(0, 2), keepdims=True)
tuple(xp.nonzero(i))
tuple(xp.nonzero(xp.zeros(3)))
xp.searchsorted(w, f)
xp.searchsorted(xp.sort(v), v, side='right')
xp.searchsorted(w, 0.5)
xp.searchsorted(v, k, sorter=xp.argsort(v))
xp.where(b, i, l)
xp.where(b, f, 0)
xp.where(b, True, c)
xp.isin(i, l)
xp.isin(v, k, invert=True)
xp.isin(v, 3)
xp.isin(v, k[:0])
xp.isin(b, xp.asarray([True]))
tuple(xp.unique_all(v))
tuple(xp.unique_counts(i))
tuple(xp.unique_inverse(f))
xp.unique_values(xp.asarray([2.0, 1.0, 2.0], dtype=xp.float64))
tuple(xp.unique_all(o))
tuple(xp.unique_counts(b))
xp.argsort(v)
xp.argsort(m, axis=0)
xp.sort(f, axis=0)
xp.sort(i)
xp.sort(b)
tuple(xp.broadcast_arrays(f, w, s))
xp.broadcast_shapes((2, 1), (3,), ())
xp.broadcast_shapes()
xp.broadcast_shapes((0, 1), (1, 4))
xp.broadcast_to(w, (2, 3))
xp.concat([f, d], axis=1)
xp.concat((i, u, i))
xp.concat([f, w], axis=None)
xp.expand_dims(f, axis=0)
xp.expand_dims(f, axis=-1)
xp.expand_dims(f, (0, 2, -1))
xp.flip(m)
xp.flip(m, axis=1)
xp.flip(m, axis=(0, -1))
xp.flip(s)
xp.moveaxis(m, 0, -1)
xp.moveaxis(m, (0, 1), (2, 0))
xp.permute_dims(m, (2, 0, 1))
xp.permute_dims(m, (-1, 0, -2))
xp.repeat(f, 2)
xp.repeat(f, 3, axis=1)
xp.repeat(f, k, axis=1)
xp.repeat(v, xp.asarray([2]))
xp.repeat(v[:3], k * 0)
xp.repeat(v, 0)
xp.reshape(m, (4, -1))
xp.reshape(m, (2, 12), copy=True)
xp.roll(v, 2)
xp.roll(m, 5)
xp.roll(m, (1, -1), axis=(0, 2))
xp.roll(m, 1, axis=(0, 2))
xp.squeeze(m[:1, :, :1], axis=0)
xp.squeeze(m[:1, :, :1], axis=(0, -1))
xp.stack([f, f], axis=-1)
xp.stack([f, f + 1])
xp.tile(f, (2, 1, 3))
xp.tile(f, (2,))
xp.tile(f, ())
xp.tile(w, (0, 2))
tuple(xp.unstack(m))
tuple(xp.unstack(m, axis=2))
xp.cumulative_sum(v)
xp.cumulative_sum(m, axis=1, include_initial=True)
xp.cumulative_sum(u, axis=-1)
xp.cumulative_prod(v)
xp.cumulative_prod(f, axis=0, dtype=xp.float64)
xp.cumulative_prod(v, include_initial=True)
xp.max(m, axis=(0, 2))
xp.max(i)
xp.mean(m, axis=1, keepdims=True)
xp.mean(d)
xp.min(f, axis=0)
xp.prod(u)
xp.prod(o, axis=0)
xp.prod(f, axis=1, dtype=xp.float64)
xp.std(m, axis=0)
xp.std(d, correction=1)
xp.sum(m, axis=(0, 1))
xp.sum(b)
xp.sum(u, axis=0)
xp.sum(o)
xp.sum(m, axis=())
xp.var(m, axis=-1, correction=1, keepdims=True)
xp.var(d)
xp.all(b)
xp.all(o, axis=0)
xp.any(b, axis=1)
xp.any(o, axis=0)
xp.any(f, axis=(0, 1), keepdims=True)
xp.diff(v)
xp.diff(m, axis=0)
xp.diff(v, n=2)
xp.diff(v, n=0)
xp.diff(v, n=9)
xp.diff(b, axis=1)
xp.diff(v, prepend=k, append=k[:1])
xp.diff(u, axis=0)
xp.matmul(f, m[0, :, :])
xp.matmul(m, xp.permute_dims(m, (0, 2, 1)))
xp.matmul(v, v)
xp.matrix_transpose(m)
xp.tensordot(m, m, axes=((1, 2), (1, 2)))
xp.tensordot(f, m, axes=((1,), (1,)))
xp.tensordot(v, k, axes=0)
xp.vecdot(v, v)
xp.vecdot(m, w[:, None], axis=-2)
xp.vecdot(f, w)
""".strip().splitlines()


@pytest.fixture(scope="module")
def tensors(client):
    return {name: xp.asarray(value) for name, value in INPUTS.items()}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_value_is_that_of_numpy(expression, tensors):
    with np.errstate(all="ignore"):
        expected = eval(expression, {**INPUTS, "xp": np, "np": np})
    check(eval(expression, {**tensors, "xp": xp}), expected)


def test_every_function_is_compared():
    """Each function stands in the table of expressions, or has a test of its own."""
    own = """astype can_cast finfo from_dlpack iinfo isdtype result_type conj __array_namespace_info__""".split()
    compared = " ".join(EXPRESSIONS)
    assert [name for name in BY_NAME if f"xp.{name}(" not in compared and name not in own] == []


def test_descending_sort_is_stable():
    x = make([1, 3, 1, 3], "int64")
    assert xp.argsort(x, descending=True).tolist() == [1, 3, 0, 2]
    assert xp.sort(x, descending=True).tolist() == [3, 3, 1, 1]


def test_dtypes_that_arguments_determine():
    assert xp.asarray(1).dtype is xp.arange(3).dtype is xp.full((2,), 3).dtype is xp.int64
    assert xp.asarray([1, 2.0]).dtype is xp.arange(3.0).dtype is xp.full((2,), 3.0).dtype is xp.float32
    assert xp.asarray(False).dtype is xp.full((2,), False).dtype is xp.bool
    assert xp.asarray([1, 2j]).dtype is xp.full((2,), 1j).dtype is xp.complex64
    assert xp.zeros(2).dtype is xp.ones(2).dtype is xp.empty(2).dtype is xp.eye(2).dtype is xp.float32
    assert xp.linspace(0, 1, 3).dtype is xp.float32


def test_asarray_rounds_a_float_as_in_a_list():
    for value in (1e39, -1e308, 3.402823466385289e38, 0.1):
        assert xp.asarray(value).item() == xp.asarray([value])[0].item()
    assert xp.asarray(1e308, dtype=xp.float64).item() == 1e308


def test_functions_take_a_device(client):
    other = client.devices[1]
    x = xp.zeros(2)
    made = [
        *(xp.arange(3, device=other), xp.asarray([1], device=other), xp.empty(1, device=other)),
        *(xp.eye(2, device=other), xp.full(2, 1, device=other), xp.full(2, 1j, device=other)),
        *(xp.linspace(0, 1, 2, device=other), xp.ones(1, device=other), xp.zeros(1, device=other)),
        *(xp.zeros_like(x, device=other), xp.ones_like(x, device=other), xp.empty_like(x, device=other)),
        *(xp.full_like(x, 1, device=other), xp.astype(x, xp.int8, device=other), xp.asarray(x, device=other)),
        xp.from_dlpack(np.ones(2), device=other),
    ]
    assert {one.device for one in made} == {other}
    # Results, and what functions make inside, are where their inputs are.
    y = xp.asarray([3, 1, 3], device=other)
    results = [
        *xp.unique_all(y),
        *xp.nonzero(y),
        xp.isin(y, 3),
        xp.repeat(y, y),
        xp.searchsorted(xp.sort(y), 2),
        xp.cumulative_sum(y, include_initial=True),
        xp.logical_and(y, True),
    ]
    assert {one.device for one in results} == {other}


def test_copies():
    x = xp.asarray([1.0, 2.0])
    assert xp.asarray(x) is x and xp.asarray(x, copy=False) is x
    for copied in (xp.asarray(x, copy=True), xp.positive(x), xp.reshape(x, (2,)), xp.from_dlpack(x, copy=True),
                   xp.squeeze(x, ()), xp.clip(x), xp.roll(x, 0), xp.flip(x, axis=()), xp.repeat(x, 1)):  # fmt: skip
        copied += 1
    assert x.tolist() == [1.0, 2.0]
    for host in ([1.0], np.ones(2)):
        with pytest.raises(ValueError):
            xp.asarray(host, copy=False)
    with pytest.raises(ValueError):
        xp.asarray(x, dtype=xp.float64, copy=False)
    with pytest.raises(BufferError):
        xp.from_dlpack(np.ones(2), copy=False)
    with pytest.raises(AttributeError):
        xp.from_dlpack([1.0])


WRONG = [
    ("xp.expand_dims(f, 3)", IndexError),
    ("xp.expand_dims(f, (0, 0))", ValueError),
    ("xp.squeeze(f, 0)", ValueError),
    ("xp.flip(f, axis=2)", IndexError),
    ("xp.permute_dims(f, (0, 0))", ValueError),
    ("xp.moveaxis(f, (0, 1), 0)", ValueError),
    ("xp.concat([f, f], axis=2)", IndexError),
    ("xp.concat([])", ValueError),
    ("xp.stack([f, w])", ValueError),
    ("xp.broadcast_shapes((2,), (3,))", ValueError),
    ("xp.broadcast_to(w, (2, 2))", ValueError),
    ("xp.reshape(f, (4,))", ValueError),
    ("xp.repeat(v, v[:2])", ValueError),
    ("xp.repeat(v, -1)", ValueError),
    ("xp.repeat(v, -v)", ValueError),
    ("xp.repeat(v, w)", TypeError),
    ("xp.tile(v, (-1,))", ValueError),
    ("xp.take(f, v)", ValueError),
    ("xp.take(v, w)", TypeError),
    ("xp.nonzero(s)", ValueError),
    ("xp.searchsorted(f, f)", ValueError),
    ("xp.searchsorted(w, w, side='middle')", ValueError),
    ("xp.cumulative_sum(f)", ValueError),
    ("xp.sum(f, axis=2)", ValueError),
    ("xp.max(o)", ValueError),
    ("xp.matmul(s, s)", ValueError),
    ("xp.matrix_transpose(w)", ValueError),
    ("xp.vecdot(f, f, axis=0)", IndexError),
    ("xp.vecdot(f, v)", ValueError),
    ("xp.tensordot(f, w)", ValueError),
    ("xp.tensordot(f, f, axes=1)", ValueError),
    ("xp.where(b, 1, 2)", TypeError),
    ("xp.where(f, f, f)", ValueError),
    ("xp.add(1, 2)", ValueError),
    ("xp.logical_and(True, True)", TypeError),
    ("xp.meshgrid(f)", ValueError),
    ("xp.meshgrid(v, indexing='yx')", ValueError),
    ("xp.diff(s)", IndexError),
    ("xp.linspace(0, 1j, 3)", TypeError),
    ("xp.unstack(s)", IndexError),
    ("xp.roll(f, (1, 2))", ValueError),
]


@pytest.mark.parametrize("expression, error", WRONG)
def test_wrong_arguments(expression, error, tensors):
    with pytest.raises(error):
        eval(expression, {**tensors, "xp": xp})
