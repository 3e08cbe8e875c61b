"""x[key] and x[key] = value, compared with NumPy."""

import numpy as np
import pytest

import tensord

N = np.arange(24, dtype=np.float32).reshape(2, 3, 4)

KEYS = [
    0,
    -1,
    np.int64(1),
    slice(None),
    slice(None, None, -1),
    slice(5, None),
    (slice(None), 1),
    (1, 2, 3),
    (Ellipsis, 0),
    (Ellipsis, None),
    (None, 1, None),
    (),
    (slice(1, None), slice(None, None, 2), slice(3, 0, -2)),
    (slice(None), slice(2, 2)),
    (slice(None), slice(-2, None), slice(None, -1)),
    np.zeros(0, dtype=bool),
    np.zeros((2, 0), dtype=bool),
    [0, 1, 1],
    np.array([1, 0]),
    np.array([[0, 1], [1, 0]], dtype=np.uint8),
    (slice(None), [2, 0]),
    ([0, 1], [1, 2]),
    ([[0], [1]], [1, 2]),
    (slice(None), [0, 1], [1, 2]),
    (slice(None), None, [0, 2]),
    ([0, 1], slice(None), [1, 2]),
    (slice(None, None, -1), slice(None), [3, -4]),
    (0, [1, 2]),
    [],
    N > 11,
    N > 100,
    N[:, :, 0] > 3,
    np.array([False, True]),
    (slice(None), np.array([True, False, True])),
    (Ellipsis, np.array([True, False, True, True])),
    True,
    False,
]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_getting_agrees_with_numpy(key):
    result, expected = tensord.asarray(N)[key].numpy(), N[key]
    assert result.shape == expected.shape and (result == expected).all()


@pytest.mark.parametrize("key", KEYS, ids=str)
@pytest.mark.parametrize("kind", ["scalar", "tensor", "row", "shared"])
def test_setting_agrees_with_numpy(key, kind):
    expected = N.copy()
    if kind == "row":
        if expected[key].ndim == 0:
            pytest.skip("one element has no row")
        value = expected[key][-1:] + 0.5
        if value.size == 0:
            pytest.skip("no element is selected")
    else:
        value = 7.0 if kind == "scalar" else expected[key] * 2 + 1
    x = tensord.asarray(N)
    clone = x.clone() if kind == "shared" else None
    slice_of_x = x[0:1]
    expected[key] = value
    x[key] = value if kind == "scalar" else tensord.asarray(value)
    assert (x.numpy() == expected).all()
    assert (slice_of_x.numpy() == N[0:1]).all()
    assert clone is None or (clone.numpy() == N).all()


def test_index_arrays_may_be_tensors():
    x = tensord.asarray(N)
    assert (x[tensord.asarray([1, 0])].numpy() == N[[1, 0]]).all()
    assert (x[x > 11].numpy() == N[N > 11]).all()
    x[x > 11] = 0.0
    assert x.sum().item() == N[N <= 11].sum()


def test_setting_converts_the_value_to_the_dtype():
    x = tensord.zeros(3, dtype="int32")
    x[0] = 2
    x[1] = tensord.asarray(3.7)
    x[2] = np.float64(4.2)
    assert x.tolist() == [2, 3, 4] and x.dtype is tensord.int32


def test_a_value_of_the_same_tensor():
    x = tensord.arange(6).reshape(2, 3)
    x[0] = x[1]
    x[:, 0] = x[:, 2]
    assert x.tolist() == [[5, 4, 5], [5, 4, 5]]


@pytest.mark.parametrize(
    ("key", "error"),
    [
        (2, IndexError),
        (-3, IndexError),
        ((0, 0, 0, 0), IndexError),
        ((Ellipsis, Ellipsis), IndexError),
        (1.5, TypeError),
        ("a", TypeError),
        (np.array([1.5]), IndexError),
        (np.array([True, False, True]), IndexError),
        (slice(None, None, 0), ValueError),
    ],
    ids=str,
)
def test_invalid_keys(key, error):
    x = tensord.asarray(N)
    with pytest.raises(error):
        x[key]
    with pytest.raises(error):
        x[key] = 1.0
    assert (x.numpy() == N).all()


def test_an_index_out_of_range_is_an_error_of_the_result():
    x = tensord.asarray(N)
    with pytest.raises(ValueError, match="out of range"):
        x[tensord.asarray([5])].numpy()


def test_values_that_do_not_broadcast_leave_the_tensor_unchanged():
    x = tensord.zeros(2, 3)
    for key in (0, slice(None), [0, 1]):
        with pytest.raises(ValueError):
            x[key] = tensord.ones(5)
    assert x.sum().item() == 0
    with pytest.raises(TypeError):
        del x[0]
