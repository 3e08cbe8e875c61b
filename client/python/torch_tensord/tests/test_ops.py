"""Ops on tensors of other geometries than contiguous ones give what they give on the CPU."""

import pytest
import torch
from test_op_database import DEVICE, to_device

UNARY = [
    "abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp", "expm1", "floor", "frac", "isnan",
    "log", "log1p", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "tan",
    "tanh", "trunc",
]  # fmt: skip
BINARY = [
    "add", "sub", "mul", "div", "maximum", "minimum", "atan2", "pow", "remainder", "fmod", "eq", "lt", "floor_divide",
    "fmax", "hypot", "copysign", "logical_and",
]  # fmt: skip


def geometries():
    """Tensors of the shape (3, 4), and one that broadcasts to it."""
    x = torch.rand(3, 4) + 0.5
    yield x
    yield torch.rand(4, 3).t() + 0.0
    yield (torch.rand(4, 3) + 0.5).t()
    yield (torch.rand(6, 8) + 0.5)[::2, 1::2]
    yield (torch.rand(3, 1) + 0.5).expand(3, 4)
    yield (torch.rand(20) + 0.5).as_strided((3, 4), (5, 1), 2)


@pytest.mark.parametrize("name", UNARY)
def test_one_operand_of_any_geometry(name):
    f = getattr(torch, name)
    for x in geometries():
        torch.testing.assert_close(f(to_device(x)).cpu(), f(x), equal_nan=True)
        assert f(to_device(x)).stride() == f(x).stride()
        out = torch.empty(4, 3, dtype=f(x).dtype, device=DEVICE).t()
        if name not in ("isnan", "relu"):
            f(to_device(x), out=out)
            torch.testing.assert_close(out.cpu(), f(x), equal_nan=True)


@pytest.mark.parametrize("name", BINARY)
def test_two_operands_of_any_geometry(name):
    f = getattr(torch, name)
    for x in geometries():
        for y in [*geometries(), torch.rand(4) + 0.5, torch.tensor(2.0)]:
            torch.testing.assert_close(f(to_device(x), to_device(y)).cpu(), f(x, y), equal_nan=True)
            if name not in ("floor_divide", "logical_and"):
                assert f(to_device(x), to_device(y)).stride() == f(x, y).stride()
    in_place = getattr(torch.Tensor, name + "_", None)
    for x in geometries():
        if in_place is None or 0 in x.stride():
            continue
        expected, got, two = x.clone(), to_device(x), torch.full((4,), 2.0)
        in_place(expected, two)
        in_place(got, two.to(DEVICE))
        torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("name", ["mul", "div"])
def test_overloads_for_numbers(name):
    f = getattr(torch.ops.aten, name).Scalar
    for x in [*geometries(), torch.arange(4), torch.tensor([True, False]), torch.tensor(2.0)]:
        for number in (2, 2.5, True):
            torch.testing.assert_close(f(to_device(x), number).cpu(), f(x, number))
            assert f(to_device(x), number).stride() == f(x, number).stride()
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    f(x, 4.0).sum().backward()
    assert x.grad.tolist() == ([4, 4] if name == "mul" else [0.25, 0.25])


def test_products_of_any_geometry():
    for a in geometries():
        for b in geometries():
            torch.testing.assert_close((to_device(a) @ to_device(b).t()).cpu(), a @ b.t())
            torch.testing.assert_close((to_device(a).t() @ to_device(b)).cpu(), a.t() @ b)
            bias = torch.rand(3)
            torch.testing.assert_close(
                torch.addmm(to_device(bias), to_device(a), to_device(b).t()).cpu(), torch.addmm(bias, a, b.t())
            )


def test_reductions_of_any_geometry():
    for x in geometries():
        reductions = [torch.sum, torch.mean, torch.amax, torch.argmin, torch.std, torch.logsumexp]
        for f in [*reductions, torch.softmax, torch.cumsum]:
            for dim in (0, 1, -1):
                torch.testing.assert_close(f(to_device(x), dim).cpu(), f(x, dim))
        assert to_device(x).max().item() == x.max().item()


def test_results_go_to_out():
    x = torch.rand(3, 4)
    out = torch.empty(0, device=DEVICE)
    torch.add(to_device(x), 1, out=out)
    torch.testing.assert_close(out.cpu(), x + 1)
    double = torch.empty(3, 4, dtype=torch.float64, device=DEVICE)
    torch.mul(to_device(x), 2, out=double)
    torch.testing.assert_close(double.cpu(), (x * 2).double())


def test_channels_last_keeps_its_strides():
    x = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    got = to_device(x) * to_device(y)
    assert got.stride() == x.stride()
    torch.testing.assert_close(got.cpu(), x * y)


def test_index_put_accumulates_repeated_indices():
    x = torch.zeros(4, device=DEVICE)
    x.index_put_((torch.tensor([1, 1, 2], device=DEVICE),), torch.ones(3, device=DEVICE), accumulate=True)
    assert x.tolist() == [0, 2, 1, 0]


def test_sorts_are_stable():
    x = torch.randint(0, 5, (200,))
    values, indices = torch.sort(x.to(DEVICE), stable=True)
    expected = torch.sort(x, stable=True)
    assert torch.equal(values.cpu(), expected[0]) and torch.equal(indices.cpu(), expected[1])
