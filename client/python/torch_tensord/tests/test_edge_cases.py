"""Values at the edges of ops' domains: infinities, NaN, zeros of random numbers, 16-bit rounding."""

import math

import pytest
import torch
from torch.nn import functional as F

DEVICE = "tensord"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int32, torch.int64, torch.uint8])
def test_fmod_is_that_of_the_cpu(dtype):
    numbers = [-5.0, -4.0, -1e-3, 0.0, 1e-3, 3.0, 5.0, 7.5]
    if dtype.is_floating_point:
        numbers += [math.inf, -math.inf, math.nan, -0.0, -1e-30, 1e30]
    if dtype is torch.uint8:
        numbers = [0, 3, 5, 200, 255]
    a = torch.tensor(numbers).to(dtype).repeat_interleave(len(numbers))
    b = torch.tensor(numbers).to(dtype).repeat(len(numbers))
    if not dtype.is_floating_point:
        a, b = a[b != 0], b[b != 0]
    for f in (torch.fmod, lambda x, y: torch.fmod(x, 2), lambda x, y: torch.fmod(torch.tensor(3), y)):
        expected = f(a, b)
        result = f(a.to(DEVICE), b.to(DEVICE)).cpu()
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)
        if dtype.is_floating_point:
            assert torch.equal(result.signbit()[~result.isnan()], expected.signbit()[~result.isnan()])


def test_a_tiny_negative_dividend_keeps_its_value():
    x = torch.tensor([-1e-30, -1e-8], dtype=torch.float32)
    assert torch.equal(torch.fmod(x.to(DEVICE), 1.0).cpu(), x)


def test_isin_finds_no_nan():
    x, tests = torch.tensor([1.0, math.nan, 3.0]), torch.tensor([math.nan, 3.0])
    for invert in (False, True):
        assert torch.isin(x.to(DEVICE), tests.to(DEVICE), invert=invert).tolist() == [
            invert, invert, not invert
        ]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_exponential_numbers_are_positive_and_finite(dtype):
    # 2^22 numbers of 24 bits: without a limit, one is 0 with a probability of 22 %.
    torch.manual_seed(0)
    for _ in range(8):
        x = torch.empty(1 << 21, dtype=dtype, device=DEVICE).exponential_()
        assert x.min().item() > 0 and math.isfinite(x.max().item())
    assert abs(x.float().mean().item() - 1) < 0.01


def test_multinomial_never_draws_a_probability_of_zero():
    p = torch.zeros(1 << 20, device=DEVICE)
    p[::2] = 1.0
    torch.manual_seed(1)
    for replacement in (False, True):
        drawn = torch.multinomial(p, 1 << 19, replacement=replacement)
        assert not (drawn % 2).any().item()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_transposed_convolution_of_16_bits_is_rounded_once(dtype):
    torch.manual_seed(2)
    x, w, b = (torch.randn(shape).to(dtype) for shape in ((2, 8, 5, 5), (8, 4, 3, 3), (4,)))
    b = b * 30
    exact = F.conv_transpose2d(x.double(), w.double(), b.double(), stride=2).to(dtype)
    result = F.conv_transpose2d(x.to(DEVICE), w.to(DEVICE), b.to(DEVICE), stride=2).cpu()
    assert result.dtype == dtype and (result != exact).float().mean().item() < 0.005


def test_an_op_on_a_list_takes_a_tensor_without_a_value():
    for shape in ((4,), (2, 3)):
        x = [torch.empty(shape, device=DEVICE), torch.ones(shape, device=DEVICE)]
        torch._foreach_mul_(x, 0.0)
        assert all(torch.equal(each.cpu(), torch.zeros(shape)) for each in x)


def grid(x):
    positions = torch.linspace(-1.4, 1.4, 2 * 5 * 6 * 2, device=x.device).reshape(2, 5, 6, 2)
    return torch.stack([positions[..., 0], positions[..., 1].flip(2)], -1)


WINDOWS = {
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x[0], 5),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x, (5, 3)),
    "adaptive_avg_pool3d": lambda x: F.adaptive_avg_pool3d(x, (2, 5, 3)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x, (5, 3)),
    "avg_pool2d": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "area": lambda x: F.interpolate(x, (5, 3), mode="area"),
    "nearest": lambda x: F.interpolate(x, (15, 3)),
    "linear": lambda x: F.interpolate(x[0], 11, mode="linear"),
    "bilinear": lambda x: F.interpolate(x, (13, 17), mode="bilinear"),
    "bicubic": lambda x: F.interpolate(x, (13, 17), mode="bicubic"),
    "smooth bilinear": lambda x: F.interpolate(x, (3, 5), mode="bilinear", antialias=True),
    "smooth bicubic": lambda x: F.interpolate(x, (4, 5), mode="bicubic", antialias=True),
    "reflection_pad2d": lambda x: F.pad(x, (3, 2, 1, 4), mode="reflect"),
    "replication_pad2d": lambda x: F.pad(x, (3, 9, 1, 4), mode="replicate"),
    "grid_sample": lambda x: F.grid_sample(x, grid(x), align_corners=False),
    "cubic grid_sample": lambda x: F.grid_sample(x, grid(x), mode="bicubic", align_corners=False),
    "grid_sample at the border": lambda x: F.grid_sample(x, grid(x), padding_mode="border", align_corners=False),
    "unfold": lambda x: F.unfold(x, 3, padding=1),
}


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", WINDOWS)
def test_infinities_and_nan_stay_in_their_windows(name, number):
    torch.manual_seed(0)
    x = torch.randn(2, 3, 7, 8)
    for place in (0, 30, -1):
        spoiled = x.clone()
        spoiled.view(-1)[place] = number
        torch.testing.assert_close(
            WINDOWS[name](spoiled.to(DEVICE)).cpu(), WINDOWS[name](spoiled), rtol=1e-4, atol=1e-5, equal_nan=True
        )
        leaf, here = x.clone().requires_grad_(), x.to(DEVICE).requires_grad_()
        result, result_here = WINDOWS[name](leaf), WINDOWS[name](here)
        gradient = torch.randn(result.shape)
        gradient.view(-1)[place] = number
        (expected,) = torch.autograd.grad(result, leaf, gradient)
        (found,) = torch.autograd.grad(result_here, here, gradient.to(DEVICE))
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_the_gradient_of_a_pad_that_repeats_one_element_often():
    n = 200_000
    x = torch.ones(1, 1, n, device=DEVICE, requires_grad=True)
    F.pad(x, (n, 0), mode="replicate").sum().backward()
    assert x.grad[0, 0, :3].tolist() == [n + 1, 1, 1]


# The sizes are large enough that the threads of a CPU device share the elements.
DETERMINISTIC = {
    "bincount": lambda x, i: torch.bincount(i, x.detach()),
    "cumsum": lambda x, i: x.cumsum(0),
    "embedding_bag": lambda x, i: F.embedding_bag(i.view(-1, 8), x.view(-1, 16), mode="max"),
    "grid_sample": lambda x, i: F.grid_sample(x.view(1, 4, 256, -1), x.view(1, 512, -1, 2).tanh(), align_corners=False),
    "index_add": lambda x, i: x.index_add(0, i, x),
    "index_put": lambda x, i: x.index_put((i,), x * 2, accumulate=True),
    "interpolate": lambda x, i: F.interpolate(x.view(1, 4, 256, -1), (400, 333), mode="bilinear"),
    "kthvalue": lambda x, i: x.kthvalue(5).values,
    "median": lambda x, i: x.median(),
    "pool": lambda x, i: F.adaptive_avg_pool2d(x.view(1, 4, 256, -1), 5),
    "put": lambda x, i: x.put(i, x * 2),
    "reflection_pad": lambda x, i: F.pad(x.view(1, 4, 256, -1), (3, 3, 3, 3), mode="reflect"),
    "scatter_add": lambda x, i: x.scatter_add(0, i, x * 2),
    "sum": lambda x, i: x.sum(),
}


@pytest.mark.parametrize("name", DETERMINISTIC)
def test_ops_repeat_their_results_when_deterministic_algorithms_are_asked_for(name):
    torch.manual_seed(0)
    x, i = torch.randn(2**20), torch.randint(0, 64, (2**20,))
    outcomes = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            leaf = x.to(DEVICE).requires_grad_()
            result = DETERMINISTIC[name](leaf, i.to(DEVICE))
            if result.requires_grad:
                result.square().sum().backward()
            outcomes.append((result.detach().cpu(), leaf.grad.cpu() if leaf.grad is not None else x))
    finally:
        torch.use_deterministic_algorithms(False)
    for first, second in zip(*outcomes, strict=True):
        assert torch.equal(first, second)


@pytest.mark.parametrize("alpha", [True, 1j])
@pytest.mark.parametrize("function", [torch.add, torch.sub])
def test_an_alpha_of_bool_or_complex_is_refused(function, alpha):
    for device in ("cpu", DEVICE):
        x = torch.ones(2, device=device)
        with pytest.raises(RuntimeError, match="alpha"):
            function(x, x, alpha=alpha)


NEGATIVE = {
    "embedding": lambda x, i: F.embedding(i, x),
    "embedding of int32": lambda x, i: F.embedding(i.int(), x),
    "cross_entropy": lambda x, i: F.cross_entropy(x[:1], i),
    "nll_loss": lambda x, i: F.nll_loss(x[:1], i - 2),
    "gather": lambda x, i: x.gather(0, i[None]),
    "index_select": lambda x, i: x.index_select(0, i),
    "scatter": lambda x, i: x.scatter(0, i[None], 1.0),
    "scatter_add": lambda x, i: x.scatter_add(0, i[None], x[:1, :1]),
    "scatter_reduce": lambda x, i: x.scatter_reduce(0, i[None], x[:1, :1], "amax"),
    "index_add": lambda x, i: x.index_add(0, i, x[:1]),
    "index_copy": lambda x, i: x.index_copy(0, i, x[:1]),
    "one_hot": lambda x, i: F.one_hot(i, 3),
}


@pytest.mark.parametrize("name", NEGATIVE)
def test_negative_indices_are_refused_as_on_the_cpu(name):
    x, i = torch.randn(3, 4), torch.tensor([-1])
    with pytest.raises((RuntimeError, IndexError)):
        NEGATIVE[name](x, i)
    with pytest.raises(RuntimeError, match=r"(index|class) -\d+ at"):
        NEGATIVE[name](x.to(DEVICE), i.to(DEVICE)).cpu()


def test_indexing_counts_negative_indices_from_the_end():
    x, i = torch.randn(3, 4), torch.tensor([-1, 0])
    torch.testing.assert_close(x.to(DEVICE)[i.to(DEVICE)].cpu(), x[i])
    torch.testing.assert_close(x.to(DEVICE).take(i.to(DEVICE)).cpu(), x.take(i))
    assert torch.isfinite(F.cross_entropy(x.to(DEVICE), torch.tensor([0, -100, 1], device=DEVICE)))


def test_tensors_without_elements_and_axes_are_ignored_by_cat():
    none = torch.zeros(0, device=DEVICE)
    assert torch.cat([none, none], 1).shape == (0,)
    assert torch.cat([none, torch.ones(2, 3, device=DEVICE)], 1).tolist() == torch.ones(2, 3).tolist()
