"""Attributes, operators and conversions of Tensor."""

import copy
import operator

import numpy as np
import pytest
import tensord

BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "lt", "le", "eq", "ne", "gt", "ge"]
INTEGER = ["and_", "or_", "xor", "lshift", "rshift"]


def check(result, expected):
    expected = np.asarray(expected)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", BINARY)
def test_float_operators_agree_with_numpy(name):
    function = getattr(operator, name)
    a, b = np.float32([[1.5, -2, 3], [4, 5, 6]]), np.float32([2, 0.5, 3])
    x, y = tensord.asarray(np.abs(a)), tensord.asarray(b)
    check(function(x, y), function(np.abs(a), b))
    check(function(x, 2.0), function(np.abs(a), np.float32(2)))
    check(function(2.0, x), function(np.float32(2), np.abs(a)))


@pytest.mark.parametrize("name", BINARY + INTEGER)
def test_integer_operators_agree_with_numpy(name):
    function = getattr(operator, name)
    a, b = np.int32([7, 5, 12]), np.int32([2, 3, 1])
    check(function(tensord.asarray(a), tensord.asarray(b)), function(a, b))
    check(function(tensord.asarray(a), 3), function(a, 3))


def test_matmul_and_unary_operators():
    a = np.float32([[1, 2], [3, -4]])
    x = tensord.asarray(a)
    check(x @ x, a @ a)
    check(-x, -a)
    check(+x, a)
    check(abs(x), abs(a))
    check(~tensord.asarray([True, False]), [False, True])
    with pytest.raises(TypeError):
        x @ 2


@pytest.mark.parametrize(
    ("dtype", "scalar", "expected"),
    [
        ("int32", 2, "int32"),
        ("int32", 2.5, "float32"),
        ("float16", 2, "float16"),
        ("float64", 2.5, "float64"),
        ("bool", 2, "int64"),
        ("uint8", True, "uint8"),
        ("float32", np.float64(2.5), "float32"),
        ("int64", np.int8(2), "int64"),
    ],
)
def test_a_scalar_takes_the_dtype_of_the_tensor_unless_its_kind_is_higher(dtype, scalar, expected):
    x = tensord.ones(3, dtype=dtype)
    assert (x + scalar).dtype is tensord.dtype(expected)
    assert (scalar + x).dtype is tensord.dtype(expected)


def test_operators_refuse_other_objects():
    x = tensord.ones(2)
    for other in ("a", [1, 2], None, object(), np.ones(2)):
        with pytest.raises(TypeError):
            x + other
        with pytest.raises(TypeError):
            other + x


def test_operators_with_an_array_of_numpy_say_how_to_convert_it():
    x, array = tensord.ones(2), np.ones(2)
    operations = lambda: x + array, lambda: array + x, lambda: x < array, lambda: array @ x, lambda: x.__imul__(array)
    for operation in operations:
        with pytest.raises(TypeError, match=r"tensord.asarray\(array\)"):
            operation()


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_operators_with_an_array_of_a_subclass_of_numpy_say_how_to_convert_it(tmp_path):
    x = tensord.ones((1, 1))
    memmap = np.memmap(tmp_path / "array", dtype=np.float32, mode="w+", shape=(1, 1))
    for array in memmap, np.ma.array([[1.0]]), np.matrix([[1.0]]):
        for operation in lambda: x + array, lambda: array + x:
            with pytest.raises(TypeError, match=r"tensord.asarray\(array\)"):
                operation()


def test_functions_with_an_array_of_numpy_say_how_to_convert_it():
    x, array = tensord.ones(2), np.ones(2)
    for function in lambda: tensord.add(array, x), lambda: tensord.add(x, array), lambda: tensord.relu(array):
        with pytest.raises(TypeError, match=r"must be a Tensor.*, not numpy.ndarray; .*tensord.asarray\(array\)"):
            function()
    with pytest.raises(TypeError, match=r"must be a Tensor or a number, not str$"):
        tensord.add(x, "1")


def test_an_operator_in_place_changes_the_object_and_not_its_slices():
    x = tensord.asarray([1.0, 2.0])
    same, part, clone = x, x[0:1], x.clone()
    x += 1
    x *= tensord.asarray([2.0, 3.0])
    assert same is x and x.tolist() == [4, 9]
    assert part.tolist() == [1] and clone.tolist() == [1, 2]


def test_an_operator_in_place_keeps_dtype_and_shape():
    x = tensord.ones(3, dtype="int32")
    with pytest.raises(TypeError, match="dtype"):
        x += 0.5
    with pytest.raises(ValueError, match="shape"):
        x += tensord.ones(2, 3, dtype="int32")
    assert x.tolist() == [1, 1, 1]


def test_attributes():
    x = tensord.zeros(2, 3, dtype=tensord.int16)
    assert (x.shape, x.ndim, x.size, x.itemsize, x.nbytes, len(x)) == ((2, 3), 2, 6, 2, 12, 2)
    assert x.T.shape == (3, 2) and tensord.zeros(2, 3, 4).mT.shape == (2, 4, 3)
    assert tensord.zeros(2, 3, 4).T.shape == (4, 3, 2)
    assert str(x.device) == "cpu:0" and x.device == tensord.default_device()
    with pytest.raises(ValueError):
        tensord.zeros(2).mT


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, bool), (-3, int), (2**63, int), (1.5, float), (np.complex64(1 + 2j), complex)],
)
def test_item_returns_a_number_of_python(value, kind):
    item = tensord.asarray(value).item()
    assert type(item) is kind and item == value


def test_conversions_of_one_element():
    assert int(tensord.asarray([7])) == 7
    assert float(tensord.asarray(2)) == 2.0
    assert bool(tensord.asarray(0.5)) and not tensord.asarray(0)
    assert [10, 20, 30][tensord.asarray(1)] == 20
    assert complex(tensord.asarray(2.5)) == 2.5 and complex(tensord.asarray(1 + 2j)) == 1 + 2j
    assert f"{tensord.asarray(2.5):.2f} {tensord.asarray(7):04d}" == "2.50 0007"
    with pytest.raises(TypeError):
        operator.index(tensord.asarray(1.0))
    for convert in (int, float, bool):
        with pytest.raises(ValueError):
            convert(tensord.ones(2))


def test_iteration_and_length():
    x = tensord.asarray([[1, 2], [3, 4]])
    assert [row.tolist() for row in x] == [[1, 2], [3, 4]]
    first, second = x
    assert second.tolist() == [3, 4]
    with pytest.raises(TypeError):
        iter(tensord.asarray(1))
    with pytest.raises(TypeError):
        len(tensord.asarray(1))


def test_repr_is_that_of_pytorch():
    assert (
        repr(tensord.asarray([[1.0, 2.5], [3, 4]]))
        == "tensor([[1.0000, 2.5000],\n        [3.0000, 4.0000]], device='cpu:0')"
    )
    assert repr(tensord.asarray([1, 2], dtype="uint8")) == "tensor([1, 2], device='cpu:0', dtype=uint8)"
    assert f"{tensord.asarray(3)}" == "tensor(3, device='cpu:0')"


def test_to_moves_and_converts(client):
    x = tensord.asarray([1.5, 2.5])
    assert x.to("cpu:0") is x and x.to(tensord.float32) is x
    assert x.to("int64").tolist() == [1, 2]
    other = x.to(client.devices[1])
    assert other.device == client.device("cpu:1") and other.tolist() == [1.5, 2.5]
    both = x.to("cpu:1", "float64")
    assert both.device == other.device and both.dtype is tensord.float64
    assert x.to(device=client.devices[1], dtype="int32").dtype is tensord.int32
    with pytest.raises(tensord.InvalidArgumentError, match="cpu:1"):
        x + other
    with pytest.raises(tensord.NotFoundError):
        x.to("cuda:7")


def test_a_tensor_is_not_hashable_and_copies_share_no_box():
    x = tensord.asarray([1.0])
    with pytest.raises(TypeError):
        hash(x)
    for duplicate in (copy.copy(x), copy.deepcopy(x)):
        duplicate += 1
    assert x.tolist() == [1]


def test_dtypes():
    assert tensord.dtype("float32") is tensord.float32 is tensord.dtype(np.float32) is tensord.dtype(np.dtype("f4"))
    assert tensord.dtype(float) is tensord.float64 and tensord.dtype(int) is tensord.int64
    assert tensord.dtype(bool) is tensord.bool and tensord.dtype(np.bool_) is tensord.bool
    assert repr(tensord.bfloat16) == "tensord.bfloat16" and tensord.bfloat16.itemsize == 2
    assert copy.deepcopy(tensord.int8) is tensord.int8
    with pytest.raises(TypeError, match="float32"):
        tensord.dtype("float31")
