"""Values and dtypes of ops agree with the CPU: negated views, reductions with a dtype, masks, unique, lists of axes."""

import math
import warnings

import pytest
import torch
import torch_tensord
from torch.nn import functional as F

DEVICE = "tensord"
NAN = math.nan

NEGATED = {
    "add": lambda x: x._neg_view() + 1,
    "multiply": lambda x: 2 * x._neg_view(),
    "exp": lambda x: x._neg_view().exp(),
    "sum": lambda x: x._neg_view().sum(),
    "matmul": lambda x: x._neg_view() @ x.T,
    "clone": lambda x: x._neg_view().clone(),
    "contiguous": lambda x: x._neg_view().T.contiguous(),
    "a slice": lambda x: x._neg_view()[0, 1:] * 1,
    "twice": lambda x: x._neg_view()._neg_view() * 1,
    "another dtype": lambda x: x._neg_view().to(torch.int32),
    "copy_ from": lambda x: torch.zeros_like(x).copy_(x._neg_view()),
    "copy_ between negated views": lambda x: torch.zeros_like(x)._neg_view().copy_(x._neg_view()) * 1,
    "index": lambda x: x._neg_view()[torch.tensor([1, 0], device=x.device)],
    "where": lambda x: torch.where(x > 1, x._neg_view(), x),
    "cat": lambda x: torch.cat([x, x._neg_view()]),
    "foreach": lambda x: torch._foreach_add([x._neg_view()], 1)[0],
    "resolve_neg": lambda x: x._neg_view().resolve_neg(),
}


@pytest.mark.parametrize("name", NEGATED)
def test_ops_read_a_negated_view(name):
    x = torch.arange(1.0, 7).reshape(2, 3)
    expected, result = NEGATED[name](x), NEGATED[name](x.to(DEVICE))
    assert not result.is_neg()
    torch.testing.assert_close(result.cpu(), expected)


@pytest.mark.parametrize(
    "write",
    [
        lambda v, x: v.copy_(x),
        lambda v, x: v.copy_(x.cpu()),
        lambda v, x: v.add_(x),
        lambda v, x: v.fill_(3),
        lambda v, x: v.neg_(),
        lambda v, x: v[0].zero_(),
        lambda v, x: torch.exp(x, out=v),
    ],
)
def test_writes_to_a_negated_view_reach_its_base(write):
    def base_after(device):
        x = torch.arange(1.0, 7, device=device).reshape(2, 3)
        base = x.clone()
        write(base._neg_view(), x)
        return base.cpu()

    torch.testing.assert_close(base_after(DEVICE), base_after("cpu"))


def test_a_negated_view_leaves_the_device():
    x = torch.arange(1.0, 4)
    view = x.to(DEVICE)._neg_view()
    assert view.tolist() == [-1, -2, -3] and view[0].item() == -1
    assert torch.equal(view.cpu(), -x) and torch.equal(torch.zeros(3).copy_(view), -x)
    assert torch.equal(x._neg_view().to(DEVICE).cpu(), -x)
    assert torch.equal(view.to(f"{DEVICE}:1").cpu(), -x)
    assert torch_tensord.as_tensord(view).numpy().tolist() == [-1, -2, -3]
    repeats = torch.tensor([-1, -2], device=DEVICE)._neg_view()
    assert torch.repeat_interleave(repeats).tolist() == [0, 1, 1]


def test_a_zero_tensor_is_not_written():
    zeros = torch._efficientzerotensor((2,), device=DEVICE)
    with pytest.raises(RuntimeError, match="ZeroTensors are immutable"):
        zeros.copy_(torch.ones(2, device=DEVICE))


def nansum(x, *args, dtype):
    """Returns x.nansum(). PyTorch 2.11 has none of integers on the CPU. Without NaN, the sum is the same."""
    is_missing = torch.__version__ < (2, 12) and x.device.type == "cpu"
    return x.sum(*args, dtype=dtype) if is_missing else x.nansum(*args, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64, torch.float64])
@pytest.mark.parametrize("source", [torch.float32, torch.int32, torch.bool])
@pytest.mark.parametrize(
    "reduce",
    [
        lambda x, t: x.prod(dtype=t),
        lambda x, t: x.prod(0, dtype=t),
        lambda x, t: x.sum(dtype=t),
        lambda x, t: x.sum(1, True, dtype=t),
        lambda x, t: nansum(x, dtype=t),
        lambda x, t: nansum(x, 0, dtype=t),
        lambda x, t: x.cumsum(0, dtype=t if t is not torch.bool else torch.int8).to(t),
        lambda x, t: x.cumprod(1, dtype=t if t is not torch.bool else torch.int8).to(t),
    ],
)
def test_a_reduction_has_the_dtype_that_is_asked_for(reduce, source, dtype):
    x = torch.tensor([[100.0, 3.0], [2.0, 1.0]]).to(source)
    expected, result = reduce(x, dtype), reduce(x.to(DEVICE), dtype).cpu()
    assert result.dtype == dtype and torch.equal(result, expected)


def test_masked_scatter_with_too_few_elements_is_an_error():
    x, mask = torch.zeros(4, device=DEVICE), torch.tensor([True, False, True, True], device=DEVICE)
    assert x.masked_scatter(mask, torch.arange(1.0, 4, device=DEVICE)).tolist() == [1, 0, 2, 3]
    with pytest.raises(RuntimeError, match="masked_scatter .*too few elements"):
        x.masked_scatter(mask, torch.arange(2.0, device=DEVICE)).cpu()
    empty = torch.zeros(0, device=DEVICE)
    with pytest.raises(RuntimeError, match="source is empty"):
        x.masked_scatter(mask, empty)
    assert x.masked_scatter(mask & False, empty).tolist() == [0] * 4
    with pytest.raises(RuntimeError, match="same dtypes"):
        x.masked_scatter(mask, torch.arange(4, device=DEVICE))


ROWS = {
    "no rows": torch.zeros(0, 1, 2),
    "NaN first": torch.tensor([[NAN, 1], [NAN, 1], [2, 3]]),
    "NaN and numbers": torch.tensor([[2, 3], [NAN, 1], [1, NAN], [2, 3], [1, 5]]),
    "integers": torch.tensor([[2, -3], [1, 5], [2, -3]]),
}
UNIQUE = {
    "unique": lambda x: torch.unique(x, return_inverse=True, return_counts=True),
    "unique of rows": lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
    "consecutive": lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
    "consecutive rows": lambda x: torch.unique_consecutive(x, dim=0, return_inverse=True, return_counts=True),
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", UNIQUE)
def test_unique_is_that_of_the_cpu(name, rows):
    for result, expected in zip(UNIQUE[name](ROWS[rows].to(DEVICE)), UNIQUE[name](ROWS[rows]), strict=True):
        assert result.shape == expected.shape
        torch.testing.assert_close(result.cpu(), expected, equal_nan=True)


def test_unique_rows_begin_with_nan_and_join_equal_rows():
    x = torch.tensor([[-math.inf, 0], [NAN, 1], [-math.inf, 0], [-math.inf, NAN], [3, 0]], device=DEVICE)
    rows, inverse, counts = torch.unique(x, dim=0, return_inverse=True, return_counts=True)
    expected = torch.tensor([[NAN, 1], [-math.inf, NAN], [-math.inf, 0], [3, 0]])
    torch.testing.assert_close(rows.cpu(), expected, equal_nan=True)
    assert inverse.tolist() == [2, 0, 2, 1, 3] and counts.tolist() == [1, 1, 2, 1]


@pytest.mark.parametrize(
    "function",
    [
        lambda x, dims: torch.flip(x, dims),
        lambda x, dims: x.sum(dims),
        lambda x, dims: x.mean(dims),
        lambda x, dims: x.amax(dims),
        lambda x, dims: x.any(dims),
        lambda x, dims: x.all(dims),
        lambda x, dims: x.nansum(dims),
        lambda x, dims: x.count_nonzero(dims),
        lambda x, dims: x.var(dims),
        lambda x, dims: torch.std_mean(x, dims),
        lambda x, dims: torch.linalg.vector_norm(x, dim=dims),
        lambda x, dims: x.norm(dim=dims),
        lambda x, dims: x.logsumexp(dims),
        lambda x, dims: x.permute(dims),
        lambda x, dims: torch.rot90(x, 1, dims),
    ],
)
def test_an_axis_that_is_named_twice_is_refused(function):
    for dims in (0, 0), (0, -2):
        with pytest.raises(RuntimeError):
            function(torch.ones(2, 3), dims)
        with pytest.raises(RuntimeError):
            function(torch.ones(2, 3, device=DEVICE), dims)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float32])
@pytest.mark.parametrize("name", ["median", "nanmedian"])
def test_the_median_of_no_elements_is_that_of_the_cpu(name, dtype):
    x = torch.zeros(0, dtype=dtype)
    torch.testing.assert_close(getattr(x.to(DEVICE), name)().cpu(), getattr(x, name)(), equal_nan=True)


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="PyTorch 2.11 refuses two dtypes on the CPU")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int32, torch.bool])
def test_equal_compares_elements_of_two_dtypes(dtype):
    x = torch.tensor([0.0, 1.0, 1.0])
    for y in (x, x + 0.0625, x[:2]):
        assert torch.equal(x.to(DEVICE), y.to(DEVICE, dtype)) == torch.equal(x, y.to(dtype))


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
def test_a_variance_without_degrees_of_freedom_warns(name):
    for shape, options in ((1,), {}), ((0,), {"dim": 0}), ((3, 1), {"dim": 1}), ((3,), {"dim": 0, "correction": 3}):
        for device in ("cpu", DEVICE):
            with pytest.warns(UserWarning, match=name + r"\(\): degrees of freedom is <= 0"):
                getattr(torch, name)(torch.ones(shape, device=device), **options)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        getattr(torch, name)(torch.ones(3, device=DEVICE))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_embedding_limits_norms_with_indices_of_each_dtype(dtype):
    def embed(device):
        weight = torch.arange(12.0, device=device).reshape(3, 4)
        indices = torch.tensor([0, 2], dtype=dtype, device=device)
        return F.embedding(indices, weight, max_norm=1.0).cpu(), weight.cpu()

    for result, expected in zip(embed(DEVICE), embed("cpu")):
        torch.testing.assert_close(result, expected)


def test_embedding_limits_norms_by_factors_of_float64():
    # In float32, the norm 2 plus PyTorch's 1e-7 is 2, and the factor would be 0.5.
    rows = [F.embedding(torch.tensor([0], device=d), torch.ones(1, 4, device=d), max_norm=1.0) for d in ("cpu", DEVICE)]
    assert torch.equal(rows[1].cpu(), rows[0]) and rows[0][0, 0] < 0.5
