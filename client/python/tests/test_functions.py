"""The functions of the module: names, signatures, documentation, values."""

import gc
import inspect

import numpy as np
import pytest
import tensord
from tensord import _core

A = np.float32([[1.5, -2, 0.25], [4, 5, -6]])
B = np.float32([[2, 0.5, -3], [1, 7, 0.5]])
FUNCTIONS = [value for value in vars(_core).values() if type(value).__name__ == "function"]


def test_every_op_is_a_function():
    assert len(_core._op_names) > 120
    for name in _core._op_names:
        assert callable(getattr(tensord, name)), name


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_functions_have_a_signature_and_documentation(function):
    signature = inspect.signature(function)
    tuples = {f"tuple[{', '.join(['Tensor'] * count)}]" for count in (2, 3, 5)}
    returns = {"Tensor", "tuple[Tensor, ...]", "Tensor | tuple[Tensor, ...]"} | tuples
    assert signature.return_annotation in returns
    assert len(function.__doc__) > 2 and function.__name__ in repr(function)
    with pytest.raises(TypeError, match=function.__name__):
        function(no_such_argument=1)


# A function, its result, and what NumPy computes.
VALUES = {
    "add": (lambda x, y: tensord.add(x, y), A + B),
    "add a scalar": (lambda x, y: tensord.add(2, y), 2 + B),
    "relu": (lambda x, y: x.relu(), np.maximum(A, 0)),
    "gelu": (lambda x, y: tensord.gelu(tensord.asarray([0.0]), approximate="tanh"), [0]),
    "clamp": (lambda x, y: x.clamp(-1, 2), np.clip(A, -1, 2)),
    "clamp min": (lambda x, y: x.clamp(min=0), np.clip(A, 0, None)),
    "clamp max": (lambda x, y: x.clamp(max=y), np.minimum(A, B)),
    "where": (lambda x, y: tensord.where(x > y, x, 0), np.where(A > B, A, 0)),
    "isnan": (lambda x, y: tensord.isnan(x), np.isnan(A)),
    "logical_and": (lambda x, y: tensord.logical_and(x > 0, y), (A > 0) & (B != 0)),
    "lerp": (lambda x, y: tensord.lerp(x, y, 0.25), A + 0.25 * (B - A)),
    "addcmul": (lambda x, y: tensord.addcmul(x, y, y, value=2), A + 2 * B * B),
    "matmul": (lambda x, y: tensord.matmul(x, y, transpose_b=True), A @ B.T),
    "conv1d": (
        lambda x, y: tensord.conv1d(x.reshape(1, 2, 3), tensord.asarray([[[1.0, 0, 0], [0, 0, 1]]]), padding="same"),
        [[[5, -4.5, -2]]],
    ),
    "conv2d, activation": (
        lambda x, y: tensord.conv2d(x.reshape(1, 1, 2, 3), tensord.ones(1, 1, 2, 2), activation="relu"),
        [[[[8.5, 0]]]],
    ),
    "conv_transpose1d": (
        lambda x, y: tensord.conv_transpose1d(x.reshape(1, 2, 3), tensord.ones(2, 1, 1), stride=2, output_padding=1),
        [[[5.5, 0, 3, 0, -5.75, 0]]],
    ),
    "sum": (lambda x, y: x.sum(), A.sum()),
    "sum of an axis": (lambda x, y: tensord.sum(x, 1), A.sum(1)),
    "sum, PyTorch's names": (lambda x, y: tensord.sum(x, dim=-1, keepdim=True), A.sum(-1, keepdims=True)),
    "sum of two axes": (lambda x, y: x.sum(axis=(0, 1)), A.sum()),
    "sum, dtype": (lambda x, y: tensord.sum(x > 0, dtype="float64"), (A > 0).sum()),
    "max": (lambda x, y: x.max(axis=0), A.max(0)),
    "argmax": (lambda x, y: x.argmax(axis=1), A.argmax(1)),
    "mean": (lambda x, y: x.mean(axis=0, keepdims=True), A.mean(0, keepdims=True)),
    "var": (lambda x, y: x.var(axis=1), A.var(1, ddof=1)),
    "std": (lambda x, y: x.std(correction=0), A.std()),
    "var_mean": (lambda x, y: tensord.var_mean(x, axis=1)[1], A.mean(1)),
    "any": (lambda x, y: (x > 4).any(axis=1), (A > 4).any(1)),
    "all": (lambda x, y: tensord.all(x), True),
    "norm": (lambda x, y: tensord.norm(x, ord=1.0), np.abs(A).sum()),
    "logsumexp": (lambda x, y: x.logsumexp(axis=1), np.log(np.exp(A).sum(1))),
    "softmax": (lambda x, y: x.softmax(axis=1).sum(axis=1), [1, 1]),
    "cumsum": (lambda x, y: tensord.cumsum(x, 1), A.cumsum(1)),
    "reshape": (lambda x, y: x.reshape(3, -1), A.reshape(3, -1)),
    "reshape to a tuple": (lambda x, y: tensord.reshape(x, (6,)), A.reshape(6)),
    "permute": (lambda x, y: x.permute(1, 0), A.T),
    "transpose": (lambda x, y: x.transpose(0, 1), A.T),
    "squeeze": (lambda x, y: x.reshape(1, 2, 1, 3).squeeze(), A),
    "squeeze an axis": (lambda x, y: x.reshape(1, 2, 1, 3).squeeze(2), A.reshape(1, 2, 3)),
    "unsqueeze": (lambda x, y: x.unsqueeze(-1), A[..., None]),
    "flatten": (lambda x, y: x.reshape(2, 3, 1).flatten(1), A),
    "expand": (lambda x, y: x.unsqueeze(0).expand(2, -1, -1), np.stack([A, A])),
    "broadcast_to": (lambda x, y: tensord.broadcast_to(x, (2, 2, 3)), np.stack([A, A])),
    "concat": (lambda x, y: tensord.concat([x, y], axis=1), np.concatenate([A, B], 1)),
    "stack": (lambda x, y: tensord.stack((x, y), axis=-1), np.stack([A, B], -1)),
    "split": (lambda x, y: tensord.split(x, [1, 2], axis=1)[1], A[:, 1:]),
    "chunk": (lambda x, y: x.chunk(2, axis=1)[1], A[:, 2:]),
    "flip": (lambda x, y: x.flip(1), np.flip(A, 1)),
    "roll": (lambda x, y: x.roll(1, axis=1), np.roll(A, 1, 1)),
    "tril": (lambda x, y: x.tril(-1), np.tril(A, -1)),
    "pad": (lambda x, y: x.pad([1, 0], value=9), np.pad(A, ((0, 0), (1, 0)), constant_values=9)),
    "sort": (lambda x, y: x.sort(axis=1)[0], np.sort(A, 1)),
    "argsort": (lambda x, y: x.argsort(1, descending=True), np.argsort(-A, 1)),
    "topk": (lambda x, y: x.topk(2, axis=1)[0], -np.sort(-A, 1)[:, :2]),
    "searchsorted": (lambda x, y: tensord.searchsorted(tensord.asarray([1.0, 2.0]), x), np.searchsorted([1, 2], A)),
    "nonzero": (lambda x, y: (x > 0).nonzero(), np.stack(np.nonzero(A > 0))),
    "gather": (lambda x, y: x.gather(tensord.asarray([[2], [0]]), axis=1), [[0.25], [4]]),
    "index_select": (lambda x, y: x.index_select(1, tensord.asarray([2, 0])), A[:, [2, 0]]),
    "scatter": (
        lambda x, y: x.scatter(1, tensord.asarray([[0], [1]]), tensord.asarray([[1.0], [2.0]]), reduce="add"),
        A + np.float32([[1, 0, 0], [0, 2, 0]]),
    ),
    "one_hot": (lambda x, y: tensord.one_hot(tensord.asarray([1, 0]), 3), [[0, 1, 0], [1, 0, 0]]),
    "embedding": (lambda x, y: tensord.embedding(tensord.asarray([1, 1]), x), A[[1, 1]]),
    "zeros": (lambda x, y: tensord.zeros(2, 3), np.zeros((2, 3))),
    "zeros of a tuple": (lambda x, y: tensord.zeros((2, 3), dtype="int8"), np.zeros((2, 3))),
    "full": (lambda x, y: tensord.full((2,), 7), [7, 7]),
    "ones_like": (lambda x, y: tensord.ones_like(x), np.ones((2, 3))),
    "full_like": (lambda x, y: tensord.full_like(x, 2), np.full((2, 3), 2)),
    "arange": (lambda x, y: tensord.arange(1, 10, 3), np.arange(1, 10, 3)),
    "arange, stop": (lambda x, y: tensord.arange(2.5), np.arange(2.5)),
    "linspace": (lambda x, y: tensord.linspace(0, 1, 5), np.linspace(0, 1, 5)),
    "linspace without the end": (
        lambda x, y: tensord.linspace(0, 1, 5, endpoint=False),
        np.linspace(0, 1, 5, endpoint=False),
    ),
    "linspace of one": (lambda x, y: tensord.linspace(3, 4, 1), [3]),
    "eye": (lambda x, y: tensord.eye(2, 3, k=1), np.eye(2, 3, 1)),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_agree_with_numpy(name):
    function, expected = VALUES[name]
    result, expected = function(tensord.asarray(A), tensord.asarray(B)), np.asarray(expected)
    assert result.shape == expected.shape
    np.testing.assert_allclose(result.numpy(), expected, rtol=1e-5, atol=1e-6)


# The number of commands of each example that sends more than one, with those of its operands and the drops of
# intermediate results. The numbers may only fall.
COMMANDS = {
    "gelu": 3,
    "where": 3,
    "logical_and": 3,
    "conv1d": 5,
    "conv2d, activation": 5,
    "conv_transpose1d": 5,
    "sum, dtype": 3,
    "var_mean": 2,
    "any": 3,
    "softmax": 3,
    "squeeze": 3,
    "squeeze an axis": 3,
    "flatten": 3,
    "expand": 3,
    "stack": 5,
    "split": 3,
    "chunk": 3,
    "sort": 2,
    "argsort": 2,
    "topk": 2,
    "searchsorted": 3,
    "nonzero": 6,
    "gather": 3,
    "index_select": 3,
    "scatter": 5,
    "one_hot": 3,
    "embedding": 3,
}


@pytest.mark.parametrize("name", VALUES)
def test_functions_send_one_command(client, name):
    x, y = tensord.asarray(A), tensord.asarray(B)
    VALUES[name][0](x, y)  # defines the ops
    gc.collect()
    client.synchronize()
    before = client.stats["commands_sent"]
    result = VALUES[name][0](x, y)
    sent = client.stats["commands_sent"] - before
    assert sent == COMMANDS.get(name, 1)
    del result


@pytest.mark.parametrize(
    "call",
    [
        lambda x: tensord.relu(3),
        lambda x: tensord.relu(x, x),
        lambda x: tensord.relu(x=x),
        lambda x: tensord.sum(x, 0, axis=0),
        lambda x: tensord.sum(x, axis=0.5),
        lambda x: tensord.sum(x, axis="0"),
        lambda x: tensord.sum(x, keepdims=1),
        lambda x: tensord.sum(x, dtype=3),
        lambda x: tensord.concat(x),
        lambda x: tensord.concat([x, 1]),
        lambda x: tensord.zeros(2, device=3),
        lambda x: tensord.gelu(x, approximate=1),
        lambda x: tensord.softmax(x, True),
        lambda x: tensord.reshape(x, None),
    ],
)
def test_arguments_of_a_wrong_type(call):
    with pytest.raises(TypeError):
        call(tensord.asarray(A))


def test_errors_name_the_op_and_the_shapes():
    with pytest.raises(ValueError, match=r"matmul.*float32\[2, 3\]"):
        tensord.asarray(A) @ tensord.asarray(A)
    with pytest.raises(ValueError, match="gelu"):
        tensord.gelu(tensord.asarray(A), approximate="fast")


def test_attention_takes_the_parameters_of_pytorch():
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal(shape, dtype=np.float32) for shape in ((4, 3, 8), (2, 5, 8), (2, 5, 6)))
    inputs = [tensord.asarray(x) for x in (q, k, v)]
    scores = q @ np.repeat(k, 2, 0).transpose(0, 2, 1) * 0.5
    mask = np.arange(15).reshape(3, 5) % 4 != 1

    def expected(scores):
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ np.repeat(v, 2, 0)

    attention = tensord.scaled_dot_product_attention
    got = attention(*inputs, tensord.asarray(mask), scale=0.5, enable_gqa=True)
    np.testing.assert_allclose(got.numpy(), expected(np.where(mask, scores, -np.inf)), 1e-5, 1e-6)
    got = attention(*inputs, is_causal=True, scale=0.5, enable_gqa=True)
    np.testing.assert_allclose(got.numpy(), expected(np.where(np.tri(3, 5) > 0, scores, -np.inf)), 1e-5, 1e-6)
    first, again = (attention(*inputs, dropout_p=0.5, enable_gqa=True, generator=3).numpy() for _ in range(2))
    assert (first == again).all() and not np.allclose(first, attention(*inputs, enable_gqa=True).numpy())
    with pytest.raises(ValueError, match="enable_gqa=True"):
        attention(*inputs)


def test_random_numbers_depend_on_the_seed_alone():
    tensord.manual_seed(3)
    first = [tensord.rand(4).tolist(), tensord.randn(2, 2).tolist()]
    tensord.manual_seed(3)
    assert [tensord.rand(4).tolist(), tensord.randn((2, 2)).tolist()] == first
    assert tensord.rand(4, generator=5).tolist() == tensord.rand(4, generator=tensord.Generator(5)).tolist()
    generator = tensord.Generator(5)
    a, b = tensord.rand(4, generator=generator), tensord.rand(4, generator=generator)
    assert a.tolist() != b.tolist() and generator.next_stream == 2 and generator.seed == 5
    x = tensord.randint(-3, 4, (1000,), generator=generator)
    assert x.dtype is tensord.int64 and (x.min().item(), x.max().item()) == (-3, 3)
    kept = tensord.dropout(tensord.ones(1000), 0.25, generator=generator)
    assert set(np.unique(kept.numpy())) == {np.float32(0), np.float32(1 / 0.75)}
    assert tensord.dropout(tensord.ones(3), training=False).tolist() == [1, 1, 1]


def test_functions_whose_size_depends_on_values():
    x = tensord.asarray([[3.0, 1.0, 3.0], [2.0, 1.0, 3.0]])
    assert tensord.masked_select(x, x > 2).tolist() == [3, 3, 3]
    assert tensord.unique(x).tolist() == [1, 2, 3]
    values, inverse, counts = tensord.unique(x, return_inverse=True, return_counts=True)
    assert counts.tolist() == [2, 1, 3] and inverse.tolist() == [[2, 0, 2], [1, 0, 2]]
    assert values[inverse].tolist() == x.tolist()
    assert x.select(0, -1).tolist() == [2, 1, 3] and x.select(1, 0).tolist() == [3, 2]
    with pytest.raises(ValueError, match="mask must be bool"):
        tensord.masked_select(x, x)
