"""tensord.array_api against the array API standard 2025.12: signatures, dtypes, special cases.

test_array_api_values.py compares values. Values and dtypes are compared with NumPy's main namespace, which has the standard's functions, where both agree.
"""

import inspect
import math
from typing import Any

import numpy as np
import pytest
import tensord
import tensord.array_api as xp

# The parameters of every function. A name with "=" has a default.
SIGNATURES = {
    "x, /": """abs acos acosh asin asinh atan atanh bitwise_invert ceil conj cos cosh exp expm1 floor imag isfinite
        isinf isnan log log10 log1p log2 logical_not negative positive real reciprocal round sign signbit sin sinh sqrt
        square tan tanh trunc matrix_transpose nonzero unique_all unique_counts unique_inverse unique_values""",
    "x1, x2, /": """add atan2 bitwise_and bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor copysign divide
        equal floor_divide greater greater_equal hypot less less_equal logaddexp logical_and logical_or logical_xor
        maximum minimum multiply nextafter not_equal pow remainder subtract matmul""",
    "x, /, min=None, max=None": "clip",
    "start, /, stop=None, step=1, *, dtype=None, device=None": "arange",
    "obj, /, *, dtype=None, device=None, copy=None": "asarray",
    "shape, *, dtype=None, device=None": "empty ones zeros",
    "x, /, *, dtype=None, device=None": "empty_like ones_like zeros_like",
    "n_rows, n_cols=None, /, *, k=0, dtype=None, device=None": "eye",
    "x, /, *, device=None, copy=None": "from_dlpack",
    "shape, fill_value, *, dtype=None, device=None": "full",
    "x, /, fill_value, *, dtype=None, device=None": "full_like",
    "start, stop, /, num, *, dtype=None, device=None, endpoint=True": "linspace",
    "*arrays, indexing='xy'": "meshgrid",
    "x, /, *, k=0": "tril triu",
    "x, dtype, /, *, copy=True, device=None": "astype",
    "from_, to, /": "can_cast",
    "type, /": "finfo iinfo",
    "dtype, kind": "isdtype",
    "*arrays_and_dtypes": "result_type",
    "x, indices, /, *, axis=None": "take",
    "x, indices, /, *, axis=-1": "take_along_axis",
    "x1, x2, /, *, axes=2": "tensordot",
    "x1, x2, /, *, axis=-1": "vecdot",
    "*arrays": "broadcast_arrays",
    "*shapes": "broadcast_shapes",
    "x, /, shape": "broadcast_to",
    "arrays, /, *, axis=0": "concat stack",
    "x, /, axis": "expand_dims squeeze",
    "x, /, *, axis=None": "flip",
    "x, source, destination, /": "moveaxis",
    "x, /, axes": "permute_dims",
    "x, repeats, /, *, axis=None": "repeat",
    "x, /, shape, *, copy=None": "reshape",
    "x, /, shift, *, axis=None": "roll",
    "x, repetitions, /": "tile",
    "x, /, *, axis=0": "unstack",
    "x, /, *, axis=None, keepdims=False": "argmax argmin count_nonzero max min mean all any",
    "x1, x2, /, *, side='left', sorter=None": "searchsorted",
    "condition, x1, x2, /": "where",
    "x1, x2, /, *, invert=False": "isin",
    "x, /, *, axis=-1, descending=False, stable=True": "argsort sort",
    "x, /, *, axis=None, dtype=None, include_initial=False": "cumulative_prod cumulative_sum",
    "x, /, *, axis=None, dtype=None, keepdims=False": "prod sum",
    "x, /, *, axis=None, correction=0.0, keepdims=False": "std var",
    "x, /, *, axis=-1, n=1, prepend=None, append=None": "diff",
    "": "__array_namespace_info__",
}
BY_NAME = {name: text for text, names in SIGNATURES.items() for name in names.split()}
DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float32 float64 complex64 complex128".split()
REAL = DTYPES[:-2]
INTS = DTYPES[1:9]
INFO_FUNCTIONS = {
    "capabilities": "",
    "default_device": "",
    "default_dtypes": "*, device=None",
    "devices": "",
    "dtypes": "*, device=None, kind=None",
}


def shape_of_signature(function):
    """Returns the parameters without annotations, and with anonymous names where they are positional-only."""
    parameters = inspect.signature(function).parameters.values()
    return [
        (p.kind, "" if p.kind is p.POSITIONAL_ONLY else p.name, p.default if p.default is not p.empty else "required")
        for p in parameters
    ]


def expected_signature(text):
    namespace = {}
    exec(f"def f({text}): ...", namespace)
    return shape_of_signature(namespace["f"])


def make(values, dtype):
    return xp.asarray(values, dtype=getattr(xp, dtype))


def check(got, expected):
    """Compares a result with NumPy's: values, shapes, dtypes."""
    if isinstance(expected, tuple):
        assert len(got) == len(expected)
        for one, other in zip(got, expected):
            check(one, other)
        return
    if not isinstance(expected, (np.ndarray, np.generic)):
        assert got == expected
        return
    assert isinstance(got, tensord.Tensor)
    assert got.dtype.name == expected.dtype.name
    assert got.shape == expected.shape
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-6, atol=1e-6)


def test_namespace_has_the_main_namespace_and_nothing_more():
    constants = {"e", "inf", "nan", "newaxis", "pi"}
    assert set(xp.__all__) == {*BY_NAME, *DTYPES, *constants, "__array_api_version__", "__array_namespace_info__"}
    assert xp.__array_api_version__ == "2025.12"
    assert len(BY_NAME) + len(INFO_FUNCTIONS) == 141
    assert xp.newaxis is None and xp.inf == math.inf and math.isnan(xp.nan) and (xp.e, xp.pi) == (math.e, math.pi)


@pytest.mark.parametrize("name", BY_NAME)
def test_signature(name):
    function = getattr(xp, name)
    assert shape_of_signature(function) == expected_signature(BY_NAME[name])
    assert function.__doc__


@pytest.mark.parametrize("name", INFO_FUNCTIONS)
def test_signature_of_info(name):
    function = getattr(xp.__array_namespace_info__(), name)
    assert shape_of_signature(function) == expected_signature(INFO_FUNCTIONS[name])


# ---------------------------------------------------------------- inspection


def test_info(client):
    info = xp.__array_namespace_info__()
    assert info.capabilities() == {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 32}
    assert xp.zeros((1,) * 32).ndim == 32
    assert info.default_device() == client.default_device
    assert info.devices() == tuple(client.devices)
    assert info.extensions() == ()
    assert not hasattr(xp, "linalg") and not hasattr(xp, "fft")
    assert info.default_dtypes() == {
        "real floating": xp.float32,
        "complex floating": xp.complex64,
        "integral": xp.int64,
        "indexing": xp.int64,
    }
    # Functions have arithmetic for these. Complex dtypes are storage only.
    assert info.dtypes() == {name: getattr(xp, name) for name in REAL}
    assert set(info.dtypes(kind="unsigned integer")) == {"uint8", "uint16", "uint32", "uint64"}
    assert set(info.dtypes(kind=("bool", "real floating"))) == {"bool", "float32", "float64"}
    assert info.dtypes(kind="complex floating") == {}
    with pytest.raises(ValueError, match="no kind"):
        info.dtypes(kind="float")


def test_tensor_names_the_namespace(client):
    x = xp.ones(3)
    assert x.__array_namespace__() is xp
    assert x.__array_namespace__(api_version="2023.12") is xp
    with pytest.raises(ValueError, match="2020.06"):
        x.__array_namespace__(api_version="2020.06")
    other = client.devices[1]
    assert x.to_device(other).device == other
    with pytest.raises(ValueError, match="stream"):
        x.to_device(other, stream=1)
    assert complex(xp.asarray(2.0)) == 2 + 0j and complex(xp.asarray(1 + 2j)) == 1 + 2j


# ---------------------------------------------------------------- dtypes

PAIRS = [(a, b) for a in DTYPES for b in DTYPES]


def numpy_promotion(a, b):
    """Returns NumPy's result for dtypes of one family of the standard; None for others."""
    families = [{"bool"}, set(INTS), {"float32", "float64", "complex64", "complex128"}]
    if not any({a, b} <= family for family in families):
        return None
    result = np.result_type(np.dtype(a), np.dtype(b)).name
    return None if {a, b} <= set(INTS) and result == "float64" else result


def test_promotion_is_that_of_the_standard():
    for a, b in PAIRS:
        of_a, of_b, expected = getattr(xp, a), getattr(xp, b), numpy_promotion(a, b)
        if expected is None:
            with pytest.raises(TypeError, match="don't promote"):
                xp.result_type(of_a, of_b)
        else:
            assert xp.result_type(of_a, of_b) is getattr(xp, expected)
        assert xp.can_cast(of_a, of_b) == (expected == b)


def test_ops_promote_like_result_type():
    for a in REAL:
        for b in REAL:
            x, y = xp.zeros(2, dtype=getattr(xp, a)), xp.zeros(1, dtype=getattr(xp, b))
            expected = numpy_promotion(a, b)
            if expected is None:
                with pytest.raises(ValueError):
                    xp.add(x, y)
                with pytest.raises((TypeError, ValueError)):
                    xp.concat([x, y])
            else:
                assert xp.add(x, y).dtype is xp.concat([x, y]).dtype is xp.result_type(x, y) is getattr(xp, expected)
                assert xp.where(xp.ones(2, dtype=xp.bool), x, y).dtype is getattr(xp, expected)


@pytest.mark.parametrize("dtype", REAL)
def test_number_takes_the_dtype_of_the_tensor(dtype):
    x = xp.ones(2, dtype=getattr(xp, dtype))
    numbers: Any = {"b": [True], "i": [1], "u": [1], "f": [1, 1.5]}[np.dtype(dtype).kind]
    for number in numbers:
        assert xp.result_type(x, number) is xp.result_type(number, x.dtype) is x.dtype
        assert xp.maximum(x, number).dtype is xp.maximum(number, x).dtype is x.dtype
        assert xp.where(xp.ones(2, dtype=xp.bool), number, x).dtype is x.dtype


def test_result_type_needs_a_dtype():
    with pytest.raises(ValueError):
        xp.result_type(1, 2.0)
    with pytest.raises(TypeError):
        xp.result_type("float32", 1)
    assert xp.result_type(xp.float32, 1j) is xp.complex64
    assert xp.result_type(xp.float64, 1j) is xp.complex128


def test_isdtype():
    kinds = {
        "bool": "bool",
        "signed integer": "int8 int16 int32 int64",
        "unsigned integer": "uint8 uint16 uint32 uint64",
        "integral": " ".join(INTS),
        "real floating": "float32 float64",
        "complex floating": "complex64 complex128",
        "numeric": " ".join(DTYPES[1:]),
    }
    for kind, names in kinds.items():
        assert {name for name in DTYPES if xp.isdtype(getattr(xp, name), kind)} == set(names.split())
    assert xp.isdtype(xp.int8, (xp.int16, "bool", xp.int8)) and not xp.isdtype(xp.int8, (xp.int16, "bool"))
    assert xp.isdtype(tensord.bfloat16, "real floating")
    with pytest.raises(ValueError, match="no kind"):
        xp.isdtype(xp.int8, "float")
    with pytest.raises(TypeError):
        xp.isdtype(xp.int8, 8)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_finfo(dtype):
    got, expected = xp.finfo(getattr(xp, dtype)), np.finfo(dtype)
    for name in ("bits", "eps", "max", "min", "smallest_normal"):
        assert getattr(got, name) == float(getattr(expected, name))
        assert type(getattr(got, name)) is (int if name == "bits" else float)
    assert got.dtype is getattr(xp, expected.dtype.name)
    with pytest.raises(AttributeError):
        got.max = 1


@pytest.mark.parametrize("dtype", INTS)
def test_iinfo(dtype):
    got, expected = xp.iinfo(xp.zeros(1, dtype=getattr(xp, dtype))), np.iinfo(dtype)
    assert (got.bits, got.max, got.min, got.dtype.name) == (expected.bits, expected.max, expected.min, dtype)
    assert type(got.max) is int
    with pytest.raises(TypeError, match="iinfo"):
        xp.finfo(getattr(xp, dtype))


def test_sums_have_the_accumulator_dtype():
    for dtype in REAL:
        x = xp.ones(3, dtype=getattr(xp, dtype))
        expected = dtype if dtype.startswith("float") else "uint64" if dtype.startswith("uint") else "int64"
        for function in (xp.sum, xp.prod, xp.cumulative_sum, xp.cumulative_prod):
            assert function(x).dtype is getattr(xp, expected)
            assert function(x, dtype=xp.float64).dtype is xp.float64
            assert function(x, dtype=xp.int8).dtype is xp.int8


def test_results_with_a_fixed_dtype():
    x = make([[1, 2], [0, 3]], "int32")
    for function in (xp.argmax, xp.argmin, xp.count_nonzero, xp.argsort):
        assert function(x).dtype is xp.int64
    assert {one.dtype for one in xp.nonzero(x)} == {xp.int64}
    assert [one.dtype for one in xp.unique_all(x)] == [xp.int32, xp.int64, xp.int64, xp.int64]
    assert xp.searchsorted(x[1, :], x).dtype is xp.int64
    for function in (xp.equal, xp.less, xp.not_equal, xp.greater_equal, xp.isin, xp.logical_and):
        assert function(x, x).dtype is xp.bool
    for function in (xp.mean, xp.std, xp.var):  # the default floating dtype
        assert function(x).dtype is xp.float32


def test_astype():
    x = xp.asarray([0.0, 1.5, -2.5])
    assert xp.astype(x, xp.int8).tolist() == [0, 1, -2]
    assert xp.astype(x, xp.bool).tolist() == [False, True, True]
    assert xp.astype(xp.asarray([True, False]), xp.float64).tolist() == [1.0, 0.0]
    assert xp.astype(x, xp.float32, copy=False) is x
    copied = xp.astype(x, xp.float32)
    copied += 1
    assert x.tolist() == [0.0, 1.5, -2.5]


def test_complex_is_storage():
    z = xp.asarray([[1 + 2j, 0j], [-3.5j, 4]])
    assert z.dtype is xp.complex64
    assert xp.real(z).tolist() == [[1, 0], [0, 4]] and xp.imag(z).tolist() == [[2, 0], [-3.5, 0]]
    assert xp.real(z).dtype is xp.float32
    wide = xp.astype(z, xp.complex128)
    assert xp.imag(wide).dtype is xp.float64 and wide.tolist() == z.tolist()
    assert xp.astype(z, xp.bool).tolist() == [[True, False], [True, True]]
    assert xp.astype(xp.asarray([1, 2]), xp.complex64).tolist() == [1, 2]
    with pytest.raises(TypeError, match="real"):
        xp.astype(z, xp.float32)
    assert xp.conj(z).tolist() == [[1 - 2j, 0j], [3.5j, 4]]
    assert xp.permute_dims(z, (1, 0)).tolist() == [[1 + 2j, -3.5j], [0, 4]]
    assert xp.concat([z[0, :], z[1, :]]).tolist() == [1 + 2j, 0, -3.5j, 4]
    assert xp.full((2,), 1j).tolist() == [1j, 1j] and xp.full((2,), 1, dtype=xp.complex128).tolist() == [1, 1]
    assert xp.zeros_like(z).dtype is xp.ones(2, dtype=xp.complex64).dtype is xp.complex64
    assert xp.unstack(z)[1].tolist() == [-3.5j, 4]
    assert xp.where(xp.asarray([[True, False]]), z, 1j).tolist() == [[1 + 2j, 1j], [-3.5j, 1j]]
    assert xp.where(xp.asarray([True, False]), 2j, xp.ones(2)).tolist() == [2j, 1]


ARITHMETIC = """abs acos acosh asin asinh atan atanh bitwise_invert ceil cos cosh exp expm1 floor isfinite isinf isnan
    log log10 log1p log2 logical_not negative positive reciprocal round sign signbit sin sinh sqrt square tan tanh
    trunc add atan2 bitwise_and bitwise_left_shift copysign divide equal floor_divide greater hypot less logaddexp
    logical_and maximum minimum multiply nextafter not_equal pow remainder subtract matmul vecdot argmax argmin isin
    unique_all unique_values searchsorted argsort sort cumulative_prod cumulative_sum max min mean prod std sum var
    diff clip""".split()


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_refuses_complex(name):
    z = xp.asarray([1 + 2j, 3.0])
    takes_two = BY_NAME[name].startswith("x1")
    with pytest.raises((TypeError, ValueError), match="complex"):
        getattr(xp, name)(*([z, z] if takes_two else [z]))


# ---------------------------------------------------------------- special cases

INF, NAN = math.inf, math.nan
# A function, rows of arguments, and the results. The tests compare signs of zeros, too.
SPECIAL: dict[str, Any] = {
    "sign": [(NAN, NAN), (-0.0, 0.0), (INF, 1.0), (-INF, -1.0)],
    "signbit": [(-0.0, True), (0.0, False), (-INF, True), (NAN, False)],
    "round": [(0.5, 0.0), (1.5, 2.0), (-0.5, -0.0), (2.5, 2.0), (INF, INF), (NAN, NAN)],
    "ceil": [(-0.25, -0.0), (-0.0, -0.0), (-INF, -INF)],
    "trunc": [(-0.75, -0.0), (-0.0, -0.0)],
    "sqrt": [(-0.0, -0.0), (-1.0, NAN), (INF, INF)],
    "log": [(0.0, -INF), (-1.0, NAN), (1.0, 0.0), (INF, INF)],
    "log1p": [(-1.0, -INF), (-0.0, -0.0), (-2.0, NAN)],
    "expm1": [(-0.0, -0.0), (-INF, -1.0)],
    "exp": [(-INF, 0.0), (INF, INF), (NAN, NAN)],
    "acosh": [(0.5, NAN), (1.0, 0.0)],
    "atanh": [(1.0, INF), (-1.0, -INF), (2.0, NAN)],
    "tanh": [(INF, 1.0), (-0.0, -0.0)],
    "reciprocal": [(-0.0, -INF), (-INF, -0.0)],
    "atan2": [(0.0, -0.0, math.pi), (-0.0, 0.0, -0.0), (-0.0, -0.0, -math.pi), (INF, INF, math.pi / 4)],
    "copysign": [(NAN, 1.0, NAN), (2.0, -0.0, -2.0), (-INF, 1.0, INF)],
    "floor_divide": [
        *((INF, 2.0, INF), (INF, -2.0, -INF), (INF, INF, NAN), (1.0, -INF, -0.0), (-1.0, INF, -0.0)),
        *((-0.0, 2.0, -0.0), (0.0, 0.0, NAN), (1.0, 0.0, INF), (-1.0, 0.0, -INF), (-7.0, 2.0, -4.0)),
    ],
    "remainder": [
        *((1.0, INF, 1.0), (1.0, -INF, -INF), (-1.0, INF, INF), (INF, 2.0, NAN), (1.0, 0.0, NAN)),
        *((0.0, -3.0, -0.0), (-0.0, 3.0, 0.0), (-7.0, 3.0, 2.0), (7.0, -3.0, -2.0)),
    ],
    "hypot": [(INF, NAN, INF), (NAN, 1.0, NAN), (-0.0, 2.0, 2.0)],
    "logaddexp": [(-INF, -INF, -INF), (INF, NAN, NAN), (INF, 1.0, INF)],
    "maximum": [(NAN, 1.0, NAN), (1.0, NAN, NAN)],
    "minimum": [(NAN, 1.0, NAN), (1.0, NAN, NAN)],
    "nextafter": [(0.0, -0.0, -0.0), (NAN, 1.0, NAN), (1.0, 1.0, 1.0)],
    "pow": [
        *((NAN, 0.0, 1.0), (1.0, NAN, 1.0), (-1.0, INF, 1.0), (2.0, -INF, 0.0), (0.5, -INF, INF)),
        *((-INF, 3.0, -INF), (-INF, -3.0, -0.0), (-0.0, -3.0, -INF), (-2.0, 0.5, NAN), (0.0, -1.0, INF)),
    ],
    "divide": [(1.0, -0.0, -INF), (0.0, 0.0, NAN), (-INF, 2.0, -INF)],
    "equal": [(NAN, NAN, False), (-0.0, 0.0, True)],
    "not_equal": [(NAN, NAN, True)],
    "less": [(NAN, 1.0, False)],
}


def same(got, expected):
    """Compares two numbers up to rounding. Tells -0.0 from 0.0."""
    if isinstance(expected, bool) or math.isnan(expected):
        return got is expected if isinstance(expected, bool) else math.isnan(got)
    if math.isinf(expected) or expected == 0:
        return got == expected and math.copysign(1, got) == math.copysign(1, expected)
    return math.isclose(got, expected, rel_tol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", SPECIAL)
def test_special_cases(name, dtype):
    *arguments, expected = zip(*SPECIAL[name])
    got = getattr(xp, name)(*(make(argument, dtype) for argument in arguments))
    wrong = [(row, one) for row, one, wanted in zip(SPECIAL[name], got.tolist(), expected) if not same(one, wanted)]
    assert wrong == []


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reductions_of_nan_and_of_no_elements(dtype):
    x, empty = make([1.0, NAN, 3.0], dtype), make([], dtype)
    for function in (xp.max, xp.min, xp.mean, xp.std, xp.var, xp.sum, xp.prod):
        assert math.isnan(function(x))
    for function in (xp.mean, xp.std, xp.var):
        assert math.isnan(function(empty))
        if function is not xp.mean:
            assert math.isnan(function(make([1.0], dtype), correction=1))
            assert math.isnan(function(make([1.0, 2.0], dtype), correction=2.5))
    assert xp.sum(empty) == 0 and xp.prod(empty) == 1
    assert xp.all(x) and xp.any(x[1:2]) and xp.all(empty) and not xp.any(empty)
    assert xp.argmax(x) == xp.argmin(x) == 1
    assert xp.count_nonzero(x) == 3


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_nan_is_unique_and_zeros_are_equal(dtype):
    x = make([NAN, 0.0, -0.0, NAN, 1.0], dtype)
    values, indices, inverse, counts = xp.unique_all(x)
    assert values.tolist()[:2] == [0.0, 1.0] and xp.all(xp.isnan(values[2:])) and values.shape == (4,)
    assert indices.tolist() == [1, 4, 0, 3] and counts.tolist() == [2, 1, 1, 1]
    assert inverse.tolist() == [2, 0, 0, 3, 1]
    assert xp.isin(make([NAN, 0.0], dtype), make([NAN, -0.0], dtype)).tolist() == [False, True]
    assert xp.searchsorted(xp.sort(x), make([NAN, INF], dtype)).tolist() == [3, 3]


def test_clip_passes_nan():
    x = make([NAN, 1.0, 2.0], "float32")
    got = xp.clip(x, make([0.0, NAN, 0.0], "float32"), make([3.0, 3.0, NAN], "float32"))
    assert xp.all(xp.isnan(got))
    assert xp.clip(x[1:], 0).tolist() == [1.0, 2.0]


def test_integers_wrap_and_do_not_mix():
    assert xp.add(make([255], "uint8"), 1).tolist() == [0]
    assert xp.sum(make([255, 255], "uint8")).item() == 510
    assert xp.sum(make([2**63, 2**62], "uint64")).item() == 2**63 + 2**62
    assert xp.negative(make([-128], "int8")).tolist() == [-128]
    with pytest.raises(ValueError, match="uint64 and int64"):
        xp.add(make([1], "uint64"), make([1], "int64"))


def test_more_arrays_than_one_op_takes():
    parts = [xp.full((1,), i) for i in range(1500)]
    assert xp.concat(parts).tolist() == list(range(1500))
    assert xp.stack(parts, axis=1).shape == (1, 1500)
