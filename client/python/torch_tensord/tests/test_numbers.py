"""Numbers beside tensors: values, dtypes and exceptions are those of the CPU, also if a dtype lacks the number."""

import math

import pytest
import torch
from torch.nn import functional as F

DEVICE = "tensord"
INTEGERS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float32, torch.float64, torch.float16, torch.bfloat16]
NUMBERS = [0, -1, 2, 100, 128, 200, 255, 256, -129, -256, 40000, 2**31, 2**40, 2**63 - 1, -(2**63), 0.5, -300.5]
NUMBERS += [1e10, 1e300, -math.inf, math.nan, True]


def elements(dtype):
    numbers = [25, 1, 2, 0, 100, 7] if dtype in (torch.bool, torch.uint8) else [25, 1, -2, 0, 100, -100]
    return torch.tensor(numbers, dtype=dtype)


def outcome(function, x, number):
    try:
        return function(x, number)
    except Exception as error:
        return type(error)


def assert_is_that_of_the_cpu(function, dtype, numbers=NUMBERS):
    x = elements(dtype)
    for number in numbers:
        expected, result = outcome(function, x, number), outcome(function, x.to(DEVICE), number)
        if isinstance(expected, type):
            assert result is expected, (number, result)
            continue
        assert isinstance(result, torch.Tensor), (number, result)
        torch.testing.assert_close(
            result.cpu(), expected, equal_nan=True, msg=lambda text, n=number: f"number {n!r}: {text}"
        )


WRAPPED = {
    "add": lambda x, n: x + n,
    "subtract from": lambda x, n: n - x,
    "multiply": lambda x, n: x * n,
    "add in place": lambda x, n: x.clone().add_(n),
    "less": lambda x, n: x < n,
    "equal": lambda x, n: x == n,
    "maximum of a tensor without dimensions": lambda x, n: torch.maximum(x, torch.tensor(n)),
    "logical_and": lambda x, n: torch.logical_and(x, torch.tensor(n)),
    "foreach": lambda x, n: torch._foreach_add([x], n)[0],
    "fill_ with a tensor": lambda x, n: x.clone().fill_(torch.tensor(n)),
}


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS, *FLOATS])
@pytest.mark.parametrize("name", WRAPPED)
def test_an_operand_is_cast_to_the_dtype(name, dtype):
    numbers = NUMBERS
    if name == "fill_ with a tensor":  # a cast of a large fraction or NaN to an integer is undefined on the CPU
        numbers = [n for n in numbers if isinstance(n, int) or abs(n) <= 1e4]
    assert_is_that_of_the_cpu(WRAPPED[name], dtype, numbers)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize("function", [torch.bitwise_and, torch.bitwise_xor, torch.bitwise_left_shift])
def test_bits_of_a_number_that_exceeds_the_dtype(function, dtype):
    assert_is_that_of_the_cpu(function, dtype, [n for n in NUMBERS if type(n) is int])


PARAMETERS = {
    "fill_": lambda x, n: x.clone().fill_(n),
    "full": lambda x, n: torch.full((2,), n, dtype=x.dtype, device=x.device),
    "masked_fill": lambda x, n: x.masked_fill(x == 1, n),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0, 2], device=x.device), n),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([0, 2], device=x.device), n),
    "index_add": lambda x, n: x.index_add(0, torch.tensor([0, 2], device=x.device), x[:2], alpha=n),
    "new_full": lambda x, n: x.new_full((2,), n),
    "add with alpha": lambda x, n: torch.add(x, x, alpha=n),
    "subtract with alpha": lambda x, n: torch.sub(x, x, alpha=n),
    "addcmul": lambda x, n: torch.addcmul(x, x, x, value=n),
    "lerp": lambda x, n: torch.lerp(x, x + 1, n),
    "threshold": lambda x, n: F.threshold(x, 5, n),
    "clamp_min": lambda x, n: x.clamp(min=n),
    "clamp_max": lambda x, n: x.clamp(max=n),
    "clamp": lambda x, n: x.clamp(-1, n),
    "clamp_": lambda x, n: x.clone().clamp_(n, 50),
    "hardtanh": lambda x, n: F.hardtanh(x, -1, n),
    "leaky_relu": lambda x, n: F.leaky_relu(x, n),
    "elu": lambda x, n: F.elu(x, n),
}


@pytest.mark.parametrize("dtype", [torch.bool, *INTEGERS, *FLOATS])
@pytest.mark.parametrize("name", PARAMETERS)
def test_a_parameter_that_the_dtype_lacks_is_refused(name, dtype):
    if torch.__version__ < (2, 12) and name.startswith(("clamp", "hardtanh")):
        pytest.skip(f"PyTorch {torch.__version__} ignores NaN and limits that the dtype lacks")
    numbers = NUMBERS
    if name == "subtract with alpha":  # -alpha overflows on the CPU
        numbers = [n for n in numbers if n != -(2**63)]
    assert_is_that_of_the_cpu(PARAMETERS[name], dtype, numbers)


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="PyTorch 2.11 has no clamp of these dtypes on the CPU")
@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_limits_of_unsigned_integers(dtype):
    numbers = [0, -1, 5, 2**16, 2**32, 2**63 - 1, 2**63, 2**63 + 5, 2**64 - 1]
    x = torch.tensor([1, 2, 200] if dtype != torch.uint64 else [1, 2, 2**63 + 7], dtype=dtype)
    for number in numbers:
        for function in (lambda x, n: x.clamp(min=n), lambda x, n: x.clamp(max=n)):
            expected, result = outcome(function, x, number), outcome(function, x.to(DEVICE), number)
            if isinstance(expected, type):
                assert result is expected, (number, result)
            else:
                assert torch.equal(result.cpu(), expected), (number, result)


@pytest.mark.parametrize("dtype", INTEGERS)
@pytest.mark.parametrize(
    "function",
    [
        lambda x, n: x // n,
        lambda x, n: x % n,
        lambda x, n: torch.fmod(x, n),
        lambda x, n: torch.div(x, n, rounding_mode="trunc"),
        lambda x, n: x.clone().floor_divide_(n),
    ],
)
def test_division_of_integers_by_a_number(function, dtype):
    numbers = [0, 3, -7, 300, 1000, 0.5] if dtype is not torch.uint8 else [0, 3, 300, 256, 0.5]
    assert_is_that_of_the_cpu(function, dtype, numbers)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("function", [lambda x: x * 0.1, lambda x: x / 2.7, lambda x: x.mul_(1 / 3), lambda x: x * 1e5])
def test_a_factor_is_not_rounded_to_16_bits(function, dtype):
    torch.manual_seed(1)
    x = torch.randn(1000).to(dtype)
    x[0] = 0
    assert torch.equal(function(x.to(DEVICE)).cpu(), function(x))


TWO_OPERANDS = {
    "xlogy": torch.xlogy,
    "xlog1py": torch.special.xlog1py,
    "zeta": torch.special.zeta,
    "fmin": lambda a, b: torch.fmin(torch.as_tensor(a), torch.as_tensor(b)),
    "fmax": lambda a, b: torch.fmax(torch.as_tensor(a), torch.as_tensor(b)),
    "heaviside": lambda a, b: torch.heaviside(*(torch.as_tensor(x, dtype=torch.float64) for x in (a, b))),
}


@pytest.mark.parametrize("name", TWO_OPERANDS)
@pytest.mark.parametrize("number", [2.0, 0.0, 0.5, math.nan])
def test_functions_of_a_number_and_a_tensor(name, number):
    x, f = torch.tensor([0.0, 1.0, 2.5, 4.0, math.nan], dtype=torch.float64), TWO_OPERANDS[name]
    for operand in (number, torch.tensor(number, dtype=torch.float64)):
        for expected, result in (
            (f(x, operand), f(x.to(DEVICE), operand)),
            (f(operand, x), f(operand, x.to(DEVICE))),
        ):
            torch.testing.assert_close(result.cpu(), expected, rtol=1e-10, atol=1e-12, equal_nan=True)
    if name in ("xlogy", "xlog1py", "zeta"):
        out = torch.empty(0, dtype=torch.float64, device=DEVICE)
        f(number, x.to(DEVICE), out=out)
        torch.testing.assert_close(out.cpu(), f(number, x), rtol=1e-10, atol=1e-12, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
@pytest.mark.parametrize("number", [-5, 2, 2.5, 300])
def test_a_number_is_searched(number, dtype):
    line = torch.tensor([-5, 1, 2, 2, 7], dtype=dtype)
    for f in (
        lambda x: torch.searchsorted(x, number),
        lambda x: torch.searchsorted(x, number, side="right"),
        lambda x: torch.bucketize(number, x, right=True, out_int32=True),
        lambda x: torch.isin(x, number),
        lambda x: torch.isin(number, x, invert=True),
    ):
        expected, result = f(line), f(line.to(DEVICE)).cpu()
        assert result.dtype == expected.dtype and torch.equal(result, expected)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, -1, 3])
def test_powers_of_zeros_and_infinities(exponent, dtype):
    x = torch.tensor([0.0, -0.0, 4.0, -4.0, math.inf, -math.inf, math.nan], dtype=dtype)
    for function in (lambda x: x**exponent, lambda x: x.clone().pow_(exponent), lambda x: x[::2] ** exponent):
        got, expected = function(x.to(DEVICE)).cpu(), function(x)
        torch.testing.assert_close(got, expected, equal_nan=True)
        assert torch.equal(got.signbit() & ~got.isnan(), expected.signbit() & ~expected.isnan())


@pytest.mark.parametrize("eps", [None, 0.0, 0.3, 0.7, math.nan])
def test_all_forms_of_logit_are_that_of_the_cpu(eps):
    x = torch.tensor([-0.2, -0.0, 0.0, 0.1, 0.5, 0.9, 1.0, 1.5, math.nan])
    expected = torch.logit(x, eps)
    ours = x.to(DEVICE)
    out = torch.empty(0, device=DEVICE)
    torch.logit(ours, eps, out=out)
    for result in torch.logit(ours, eps), out, ours.clone().logit_(eps):
        torch.testing.assert_close(result.cpu(), expected, equal_nan=True)
    leaves = x.requires_grad_(), ours.requires_grad_()
    slope, slope_here = (torch.autograd.grad(torch.logit(leaf, eps).sum(), leaf)[0].cpu() for leaf in leaves)
    torch.testing.assert_close(slope_here, slope, equal_nan=True)


def test_lerp_with_a_weight_of_one_is_the_end():
    start, end = torch.tensor([1e8, -3.0]), torch.tensor([1.0, 1e-3])
    for weight in torch.tensor([1.0, 1.0]), torch.tensor([-2.0, 0.25]), torch.tensor(1.0):
        expected = torch.lerp(start, end, weight)
        assert torch.equal(torch.lerp(start.to(DEVICE), end.to(DEVICE), weight.to(DEVICE)).cpu(), expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32])
def test_addbmm_of_integers_keeps_the_dtype(dtype):
    x = torch.arange(4).reshape(1, 2, 2).to(dtype)
    result = torch.addbmm(x[0].to(DEVICE), x.to(DEVICE), x.to(DEVICE))
    assert result.dtype == dtype and torch.equal(result.cpu(), torch.addbmm(x[0], x, x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16])
@pytest.mark.parametrize("source", FLOATS)
def test_a_floating_number_wraps_in_a_small_integer(source, dtype):
    numbers = [-1.5, -2.0, -200.0, 300.0, 256.0, 1000.0, -40000.0, 0.9]
    x = torch.tensor(numbers, dtype=source)
    # The value without its fraction, modulo 2^bits.
    bits = torch.iinfo(dtype).bits
    whole = [math.trunc(number) % 2**bits for number in x.tolist()]
    expected = [n - 2**bits if n > torch.iinfo(dtype).max else n for n in whole]
    assert x.to(DEVICE).to(dtype).tolist() == expected
    assert torch.zeros(8, dtype=dtype, device=DEVICE).copy_(x.to(DEVICE)).tolist() == expected


@pytest.mark.parametrize("dtype", [*INTEGERS, torch.uint64])
@pytest.mark.parametrize("source", FLOATS)
def test_a_number_out_of_the_range_becomes_the_integer_that_the_processor_gives(source, dtype):
    # The processor converts to int32 or int64. A number that these lack, and NaN, become the smallest integer, whose
    # last bits are zeros.
    x = torch.tensor([math.inf, -math.inf, math.nan, 1e20, -1e20, 300.0, -2.0], dtype=source)
    lowest, signed, bits = torch.iinfo(dtype).min, dtype.is_signed, torch.iinfo(dtype).bits
    outside = [lowest if bits >= 32 else 0] * 5
    if dtype is torch.uint64:  # the processor subtracts 2^63 from a number above, and changes the first bit back
        outside = [0, 2**63, 2**63, 0, 2**63]
    wrapped = [n % 2**bits for n in (300, -2)]
    expected = outside + [n - 2**bits if signed and n >= 2 ** (bits - 1) else n for n in wrapped]
    assert x.to(DEVICE).to(dtype).tolist() == expected
    assert x[2].to(DEVICE).to(dtype).item() == x[2].to(dtype).item()


def test_the_upper_half_of_uint64():
    greatest, x = 2**64 - 1, torch.zeros(2, dtype=torch.uint64, device=DEVICE)
    for made in (torch.full((2,), greatest, dtype=torch.uint64, device=DEVICE), x.new_full((2,), greatest),
                 torch.full_like(x, greatest), x.fill_(greatest)):  # fmt: skip
        assert made.tolist() == [greatest, greatest]
    halves = torch.tensor([2.0**63, 1.5 * 2.0**63, 2.0**62], dtype=torch.float64)
    assert halves.to(DEVICE).to(torch.uint64).tolist() == [2**63, 3 * 2**62, 2**62]


@pytest.mark.parametrize("dtype", FLOATS)
def test_erfc_has_the_precision_of_the_dtype(dtype):
    x = torch.cat([torch.linspace(-6, 27, 400, dtype=torch.float64), torch.tensor([0.0, 1e-9, 1e-300, 40, 1e300])])
    x = torch.cat([x, torch.tensor([math.inf, -math.inf, math.nan])]).to(dtype)
    expected = torch.tensor([math.erfc(n) if n == n else n for n in x.tolist()], dtype=torch.float64)
    # Above the smallest normal number, the error is relative. A difference from 1 would lose all digits.
    error = {torch.float64: 1e-14}.get(dtype, torch.finfo(dtype).eps)
    least = torch.finfo(dtype).smallest_normal * (4e7 if dtype is torch.float64 else 1)
    result = torch.erfc(x.to(DEVICE)).cpu()
    assert result.dtype == dtype
    torch.testing.assert_close(result.double(), expected, rtol=error, atol=least * error * 8, equal_nan=True)


def test_a_dtype_without_a_kernel_is_not_implemented():
    for device in ("cpu", DEVICE):
        with pytest.raises(NotImplementedError, match="not implemented for"):
            F.silu(torch.ones(2, dtype=torch.int32, device=device))
        with pytest.raises(NotImplementedError, match="not implemented for"):
            torch.ones(2, device=device).bitwise_or(torch.ones(2, device=device))
