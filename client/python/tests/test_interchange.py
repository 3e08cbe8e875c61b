"""NumPy, DLPack, the buffer protocol, sequences and pickle."""

import array
import pickle

import numpy as np
import pytest
import tensord

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]  # fmt: skip


def sample(dtype):
    return (np.arange(12) % 5).astype(dtype).reshape(3, 4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_arrays_keep_their_elements_and_dtypes(dtype):
    a = sample(dtype)
    for x in (tensord.asarray(a), tensord.from_dlpack(a), pickle.loads(pickle.dumps(tensord.asarray(a)))):
        assert x.dtype is tensord.dtype(dtype)
        for back in (x.numpy(), np.asarray(x), np.from_dlpack(x)):
            assert back.dtype == a.dtype and (back == a).all()
        assert x.tolist() == a.tolist() and x.tobytes() == a.tobytes()


@pytest.mark.parametrize(
    "view", [lambda a: a.T, lambda a: a[::-1], lambda a: a[:, ::2], lambda a: a[1:1], lambda a: a[1, 2]]
)
@pytest.mark.parametrize("make", [tensord.asarray, tensord.from_dlpack])
def test_strided_arrays(view, make):
    a = view(sample("float32"))
    if make is tensord.from_dlpack and not isinstance(a, np.ndarray):
        pytest.skip("a scalar of NumPy has no DLPack")
    x = make(a)
    assert x.shape == a.shape and (x.numpy() == a).all()


def test_other_byte_orders_and_read_only_arrays():
    a = sample("float32")
    a.flags.writeable = False
    assert (tensord.asarray(a).numpy() == a).all()
    assert (tensord.asarray(a.astype(">f4")).numpy() == a).all()


def test_bfloat16_needs_ml_dtypes():
    x = tensord.asarray([1.5, -2.0]).to(tensord.bfloat16)
    assert x.tolist() == [1.5, -2.0]
    try:
        import ml_dtypes
    except ImportError:
        with pytest.raises(TypeError, match="ml_dtypes"):
            x.numpy()
    else:
        a = x.numpy()
        assert a.dtype == ml_dtypes.bfloat16 and a.astype(float).tolist() == [1.5, -2.0]
        assert tensord.asarray(a).dtype is tensord.bfloat16 and tensord.asarray(a).tolist() == [1.5, -2.0]


def test_objects_with_the_buffer_protocol():
    assert tensord.asarray(array.array("d", [1, 2])).dtype is tensord.float64
    assert tensord.asarray(b"ab").tolist() == [97, 98]
    assert tensord.asarray(memoryview(bytearray(b"ab"))).dtype is tensord.uint8


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        (True, "bool", ()),
        (3, "int64", ()),
        (2**63, "uint64", ()),
        (1.5, "float32", ()),
        ([1, 2.5], "float32", (2,)),
        ([True, 2], "int64", (2,)),
        ([[1, 2], (3, 4)], "int64", (2, 2)),
        ([], "float32", (0,)),
        ([[], []], "float32", (2, 0)),
        (range(3), "int64", (3,)),
        ([np.float32(1), 2], "float32", (2,)),
        ([np.ones(2, "int16"), np.ones(2, "int16")], "int16", (2, 2)),
        (np.float64(1), "float64", ()),
        (1 + 2j, "complex128", ()),
    ],
    ids=str,
)
def test_numbers_and_sequences(value, dtype, shape):
    x = tensord.asarray(value)
    assert x.dtype is tensord.dtype(dtype) and x.shape == shape
    assert (x.numpy() == np.asarray(value)).all()


def test_asarray_with_a_dtype():
    assert tensord.asarray([1, 2], dtype="float16").dtype is tensord.float16
    assert tensord.asarray([1.0, 0.0], dtype=bool).tolist() == [True, False]
    assert tensord.asarray(np.float64([1.5]), dtype="float32").dtype is tensord.float32
    assert tensord.asarray([1.5, -1.5], dtype="int32").tolist() == [1, -1]
    for value, dtype in [([300], "uint8"), ([-1], "uint64"), ([1e10], "int32")]:
        with pytest.raises(ValueError):
            tensord.asarray(value, dtype=dtype)
    for value in ([[1, 2], [3]], [[1], 2], "text", object(), None, [None]):
        with pytest.raises((TypeError, ValueError)):
            tensord.asarray(value)


@pytest.mark.parametrize(
    "value", [np.datetime64("2020"), np.timedelta64(3, "s"), np.str_("a"), np.array(["2020"], "M8[D]")]
)
def test_asarray_refuses_elements_that_are_no_numbers(value):
    with pytest.raises(TypeError, match="no dtype for elements of NumPy's dtype"):
        tensord.asarray(value)


def test_copy_false():
    x = tensord.asarray([1.0])
    assert tensord.asarray(x, copy=False).tolist() == [1]
    assert tensord.from_dlpack(x, copy=False) is x
    for function in (
        lambda: tensord.asarray([1.0], copy=False),
        lambda: tensord.asarray(x, dtype="int32", copy=False),
        lambda: x.__array__(copy=False),
    ):
        with pytest.raises(ValueError):
            function()
    for function in (
        lambda: x.__dlpack__(copy=False),
        lambda: x.__dlpack__(dl_device=(2, 0)),
        lambda: tensord.from_dlpack(np.ones(1), copy=False),
    ):
        with pytest.raises(BufferError):
            function()


def test_dlpack_exports_a_copy_in_host_memory():
    x = tensord.asarray(sample("int32"))
    assert x.__dlpack_device__() == (1, 0)
    assert "dltensor_versioned" in repr(x.__dlpack__(max_version=(1, 0)))
    assert '"dltensor"' in repr(x.__dlpack__())
    a = np.from_dlpack(x)
    del x
    assert a.sum() == sample("int32").sum()


def test_large_arrays_and_other_devices(client):
    a = np.random.default_rng(1).random((1 << 20) + 3, dtype=np.float32)
    x = tensord.asarray(a, device="cpu:1")
    assert x.device == client.devices[1] and (x.numpy() == a).all()
    assert tensord.from_dlpack(a, device=client.devices[1]).device == client.devices[1]
    assert pickle.loads(pickle.dumps(x)).device == client.devices[1]
    assert pickle.loads(pickle.dumps(client.devices[1])) == client.devices[1]


def test_connections_refuse_to_be_pickled(client):
    with pytest.raises(TypeError, match="connect"):
        pickle.dumps(client)


@pytest.mark.parametrize("name", ["bool", "int8", "int64", "uint16", "float16", "float32", "complex64"])
@pytest.mark.parametrize("shape", [(), (0, 2), (2, 3), (300, 1000)])
def test_numpy_reads_into_an_existing_array(name, shape):
    values = (np.arange(np.prod(shape, dtype=int)) % 100).reshape(shape).astype(name)
    out = np.full(shape, 7).astype(name)
    assert tensord.asarray(values).numpy(out=out) is out
    np.testing.assert_array_equal(out, values)


def test_numpy_refuses_an_array_that_does_not_fit():
    x = tensord.ones(2, 3)
    with pytest.raises(TypeError, match="out must be a NumPy array, not list"):
        x.numpy(out=[1, 2])
    with pytest.raises(ValueError, match="out has the dtype float64, and the tensor has float32"):
        x.numpy(out=np.empty((2, 3)))
    with pytest.raises(ValueError, match="out has the dtype >f4"):
        x.numpy(out=np.empty((2, 3), ">f4"))
    with pytest.raises(ValueError, match=r"out has the shape \(3, 2\), and the tensor has \(2, 3\)"):
        x.numpy(out=np.empty((3, 2), "float32"))
    with pytest.raises(ValueError, match="contiguous"):
        x.numpy(out=np.empty((3, 2), "float32").T)
    read_only = np.empty((2, 3), "float32")
    read_only.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        x.numpy(out=read_only)


def test_numpy_writes_into_a_part_of_a_larger_array():
    batch = np.zeros((4, 3), "float32")
    tensord.full(3, 5.0).numpy(out=batch[2])
    assert batch.sum(axis=1).tolist() == [0, 0, 15, 0]
