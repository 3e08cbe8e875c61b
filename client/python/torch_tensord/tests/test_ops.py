"""Every op gives what it gives on the CPU: PyTorch's own samples of its ops, and other geometries."""

import importlib.util

import pytest
import torch

DEVICE = "tensord"
MAX_SAMPLES = 2
DTYPES = (torch.float32, torch.int64, torch.bool)
# Values are random, undefined, or unspecified where elements are equal.
RANDOM = {
    "bernoulli", "cauchy", "empty", "empty_like", "empty_permuted", "empty_strided", "exponential", "geometric",
    "log_normal", "multinomial", "native_dropout_backward", "new_empty", "new_empty_strided",
    "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
    "nn.functional.feature_alpha_dropout", "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    "nn.functional.scaled_dot_product_attention", "normal", "rand_like", "randint", "randint_like", "randn",
    "randn_like", "topk", "uniform",
}  # fmt: skip
# Results that PyTorch doesn't define, and arguments that it wants on the CPU.
SKIPPED = {
    "argsort": "the order of equal elements",
    "sort": "the order of equal elements",
    "tensor_split": "PyTorch wants sections on the CPU",
    "to": "a gradient of a copy to the CPU",
}
# Samples of integers have equal elements, whose order is unspecified.
TIES = {"kthvalue"}
# Differences of large numbers: float32 rounds them to few digits.
LOOSE = {"logcumsumexp"}
MODULES = ("linalg.", "fft.", "sparse", "torch.ops", "_refs")
MIN_IMPLEMENTED = 490


def to_device(x, here):
    """Moves a tensor, with its strides and offset, and remembers it in `here`."""
    if x.layout != torch.strided:
        raise NotImplementedError("sparse")
    count = x.untyped_storage().nbytes() // x.element_size()
    if count == 0:
        moved = torch.empty(x.shape, dtype=x.dtype, device=DEVICE)
    else:
        line = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage(), 0, (count,))
        moved = line.to(DEVICE).as_strided(x.shape, x.stride(), x.storage_offset())
    moved = moved.detach().requires_grad_(x.requires_grad)
    here.append((x, moved))
    return moved


def walk(x, f):
    if isinstance(x, torch.Tensor):
        return f(x)
    if isinstance(x, torch.Size):
        return x
    if isinstance(x, (list, tuple)):
        return (list if isinstance(x, list) else tuple)(walk(each, f) for each in x)
    if isinstance(x, dict):
        return {name: walk(each, f) for name, each in x.items()}
    return x


def flat(x):
    if isinstance(x, torch.Tensor):
        return [x]
    return [t for each in x for t in flat(each)] if isinstance(x, (list, tuple)) else []


def compare(op, sample, backward):
    """Compares one sample. Returns False if the CPU refuses it."""
    try:
        expected = op(sample.input, *sample.args, **sample.kwargs)
    except Exception:
        return False
    here = []
    arguments = walk((sample.input, sample.args, sample.kwargs), lambda x: to_device(x, here))
    if "device" in arguments[2]:
        arguments[2]["device"] = DEVICE
    got = op(arguments[0], *arguments[1], **arguments[2])
    torch.testing.assert_close(
        walk(got, lambda x: x.detach().cpu()), walk(expected, torch.Tensor.detach), rtol=1e-4, atol=1e-5, equal_nan=True
    )
    outputs = [(a, b) for a, b in zip(flat(expected), flat(got)) if a.requires_grad]
    inputs = [pair for pair in here if pair[0].requires_grad]
    if not backward or not outputs or not inputs:
        return True
    gradients = [torch.randn_like(a) for a, _ in outputs]
    wanted = torch.autograd.grad([a for a, _ in outputs], [a for a, _ in inputs], gradients, allow_unused=True)
    moved = [g.to(DEVICE) for g in gradients]
    found = torch.autograd.grad([b for _, b in outputs], [b for _, b in inputs], moved, allow_unused=True)
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if op.name in LOOSE else {"rtol": 1e-3, "atol": 1e-4}
    for a, b in zip(wanted, found):
        if a is not None and b is not None:
            torch.testing.assert_close(b.cpu(), a, equal_nan=True, **tolerance)
    return True


def run_database(dtype):
    """Returns the wrong results, and the numbers of implemented and missing ops, of PyTorch's samples."""
    from torch.testing._internal.common_methods_invocations import op_db

    torch.manual_seed(0)
    wrong, implemented, missing = {}, 0, 0
    for op in op_db:
        if op.name.startswith(MODULES) or op.name in RANDOM or op.name in SKIPPED or dtype not in op.dtypes:
            continue
        if dtype != torch.float32 and op.name in TIES:
            continue
        backward = dtype == torch.float32 and op.supports_autograd
        try:
            samples = list(op.sample_inputs("cpu", dtype, requires_grad=backward))[:MAX_SAMPLES]
        except Exception:
            continue
        try:
            for sample in samples:
                compare(op, sample, backward)
            implemented += 1
        except NotImplementedError:
            missing += 1
        except Exception as e:
            wrong[f"{op.name} {op.variant_test_name}"] = str(e)[:300]
    return wrong, implemented, missing


@pytest.mark.skipif(importlib.util.find_spec("expecttest") is None, reason="torch.testing needs expecttest")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_samples_of_pytorch(dtype):
    wrong, implemented, _ = run_database(dtype)
    assert not wrong
    if dtype == torch.float32:
        assert implemented >= MIN_IMPLEMENTED


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


def here_of(x):
    return to_device(x, [])


@pytest.mark.parametrize("name", UNARY)
def test_one_operand_of_any_geometry(name):
    f = getattr(torch, name)
    for x in geometries():
        torch.testing.assert_close(f(here_of(x)).cpu(), f(x), equal_nan=True)
        assert f(here_of(x)).stride() == f(x).stride()
        out = torch.empty(4, 3, dtype=f(x).dtype, device=DEVICE).t()
        if name not in ("isnan", "relu"):
            f(here_of(x), out=out)
            torch.testing.assert_close(out.cpu(), f(x), equal_nan=True)


@pytest.mark.parametrize("name", BINARY)
def test_two_operands_of_any_geometry(name):
    f = getattr(torch, name)
    for x in geometries():
        for y in [*geometries(), torch.rand(4) + 0.5, torch.tensor(2.0)]:
            torch.testing.assert_close(f(here_of(x), here_of(y)).cpu(), f(x, y), equal_nan=True)
            if name not in ("floor_divide", "logical_and"):
                assert f(here_of(x), here_of(y)).stride() == f(x, y).stride()
    in_place = getattr(torch.Tensor, name + "_", None)
    for x in geometries():
        if in_place is None or 0 in x.stride():
            continue
        expected, got, two = x.clone(), here_of(x), torch.full((4,), 2.0)
        in_place(expected, two)
        in_place(got, two.to(DEVICE))
        torch.testing.assert_close(got.cpu(), expected)


@pytest.mark.parametrize("name", ["mul", "div"])
def test_overloads_for_numbers(name):
    f = getattr(torch.ops.aten, name).Scalar
    for x in [*geometries(), torch.arange(4), torch.tensor([True, False]), torch.tensor(2.0)]:
        for number in (2, 2.5, True):
            torch.testing.assert_close(f(here_of(x), number).cpu(), f(x, number))
            assert f(here_of(x), number).stride() == f(x, number).stride()
    x = torch.ones(2, device=DEVICE, requires_grad=True)
    f(x, 4.0).sum().backward()
    assert x.grad.tolist() == ([4, 4] if name == "mul" else [0.25, 0.25])


def test_products_of_any_geometry():
    for a in geometries():
        for b in geometries():
            torch.testing.assert_close((here_of(a) @ here_of(b).t()).cpu(), a @ b.t())
            torch.testing.assert_close((here_of(a).t() @ here_of(b)).cpu(), a.t() @ b)
            bias = torch.rand(3)
            torch.testing.assert_close(
                torch.addmm(here_of(bias), here_of(a), here_of(b).t()).cpu(), torch.addmm(bias, a, b.t())
            )


def test_reductions_of_any_geometry():
    for x in geometries():
        reductions = [torch.sum, torch.mean, torch.amax, torch.argmin, torch.std, torch.logsumexp]
        for f in [*reductions, torch.softmax, torch.cumsum]:
            for dim in (0, 1, -1):
                torch.testing.assert_close(f(here_of(x), dim).cpu(), f(x, dim))
        assert here_of(x).max().item() == x.max().item()


def test_results_go_to_out():
    x = torch.rand(3, 4)
    out = torch.empty(0, device=DEVICE)
    torch.add(here_of(x), 1, out=out)
    torch.testing.assert_close(out.cpu(), x + 1)
    double = torch.empty(3, 4, dtype=torch.float64, device=DEVICE)
    torch.mul(here_of(x), 2, out=double)
    torch.testing.assert_close(double.cpu(), (x * 2).double())


def test_channels_last_keeps_its_strides():
    x = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    got = here_of(x) * here_of(y)
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
