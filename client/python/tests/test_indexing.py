"""x[key] and x[key] = value, compared with NumPy."""

import random
from typing import Any

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


# ---- random keys

SHAPES = [(3,), (1, 3), (2, 3, 4), (2, 0, 3), (4, 1, 2, 3), ()]
STEPS = [None, 1, 2, 3, -1, -2, -3]


def random_slice(choose, size):
    bounds = [None, *range(-size - 2, size + 3)]
    return slice(choose.choice(bounds), choose.choice(bounds), choose.choice(STEPS))


def random_array(choose, size):
    """Returns indices into an axis, as an array or a list. Some shapes of two arrays don't broadcast."""
    shape = choose.choice([(), (1,), (2,), (2,), (2, 1), (1, 2), (0,)] if size > 0 else [(0,), (2, 0)])
    made = np.array([choose.randrange(-size, size) for _ in range(int(np.prod(shape)))], dtype=np.int64).reshape(shape)
    made = made.astype(choose.choice([np.int64, np.int32, np.int8]))
    return made.tolist() if made.ndim > 0 and made.size > 0 and choose.random() < 0.3 else made


def random_mask(choose, shape):
    return np.array([choose.random() < 0.5 for _ in range(int(np.prod(shape)))], dtype=bool).reshape(shape)


def random_key(choose, shape):
    """Returns the parts of a key for an array of this shape."""
    parts: list[Any] = []
    axis, rest = 0, choose.random() < 0.3
    while axis < len(shape) and choose.random() < 0.9:
        size = shape[axis]
        kinds = ["slice"] * 4 + ["array"] * 2 + ["mask", "none"] + ["int"] * (size > 0)
        kind = choose.choice(kinds + ["mask of two"] * (axis + 1 < len(shape)))
        if rest and choose.random() < 0.3:
            parts.append(Ellipsis)
            rest = False
            axis = choose.randrange(axis, len(shape))
            continue
        if kind == "slice":
            parts.append(random_slice(choose, size))
        elif kind == "array":
            parts.append(random_array(choose, size))
        elif kind == "int":
            parts.append(choose.choice([int, np.int64])(choose.randrange(-size, size)))
        elif kind == "none":
            parts.append(None)
            continue
        else:
            axes = 2 if kind == "mask of two" else 1
            parts.append(random_mask(choose, shape[axis : axis + axes]))
            axis += axes - 1
        axis += 1
    if choose.random() < 0.1:
        parts.insert(choose.randrange(len(parts) + 1), choose.choice([True, False]))
    return parts


def is_basic(part):
    return part is None or part is Ellipsis or isinstance(part, (slice, int, np.integer)) and not isinstance(part, bool)


def two_keys(parts):
    """Returns the basic part of a key, and the key with its arrays into what the basic part selects.

    NumPy takes an int beside arrays as an array. tensord takes it as a basic part, as PyTorch does.
    """
    first, second = [], []
    for part in parts:
        if is_basic(part):
            first.append(part)
            if part is Ellipsis:
                second.append(Ellipsis)
            elif part is None or isinstance(part, slice):
                second.append(slice(None))
        else:
            mask = np.asarray(part)
            if not isinstance(part, bool):
                first += [slice(None)] * (mask.ndim if mask.dtype == bool else 1)
            second.append(part)
    if Ellipsis not in [part for part in first if is_basic(part)]:
        first.append(Ellipsis)  # so that NumPy returns a view, also of one element
    return tuple(first), tuple(second)


def outcome(function):
    try:
        return function()
    except (IndexError, ValueError) as e:
        return type(e)


@pytest.mark.parametrize("seed", range(8))
def test_random_keys_agree_with_numpy(seed):
    choose = random.Random(seed)
    selected = 0
    for _ in range(300):
        shape = choose.choice(SHAPES)
        a = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        parts = random_key(choose, shape)
        first, second = two_keys(parts)
        key = tuple(parts) if len(parts) != 1 or choose.random() < 0.5 else parts[0]
        expected = outcome(lambda: a[first][second])
        result = outcome(lambda: tensord.asarray(a)[key].numpy())
        if isinstance(expected, type):
            assert isinstance(result, type) and issubclass(result, expected), (shape, key, result)
            continue
        assert not isinstance(result, type) and result.shape == expected.shape, (shape, key, result, expected)
        assert (result == expected).all(), (shape, key)
        selected += expected.size > 0
        value = -1 - np.arange(expected.size, dtype=np.float32).reshape(expected.shape)
        if choose.random() < 0.5:
            value = np.float32(-5) if choose.random() < 0.5 or value.ndim == 0 else value[..., :1]
        changed = a.copy()
        changed[first][second] = value
        x = tensord.asarray(a)
        x[key] = value
        assert (x.numpy() == changed).all(), (shape, key, value)
    assert selected > 100
