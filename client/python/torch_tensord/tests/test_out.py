"""`out=`: dtypes, sizes, overlaps and expanded memory, and variants of ops, as on the CPU."""

import math
import warnings

import pytest
import torch

DEVICE = "tensord"
DTYPES = (torch.bool, torch.uint8, torch.int32, torch.int64, torch.float32, torch.float64)


def outcome(function, device):
    """Returns the name of the exception, or the results as (dtype, strides, values), and the texts of warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            results = function(device)
        except Exception as e:
            known = (NotImplementedError, RuntimeError)  # the device raises other subclasses of RuntimeError
            return next((kind.__name__ for kind in known if isinstance(e, kind)), type(e).__name__)
    results = results if isinstance(results, (tuple, list)) else (results,)
    tensors = [
        (x.dtype, tuple(x.shape), x.stride(), x.cpu().double().mul(1e4).round().nan_to_num(-1).tolist())
        for x in results
    ]
    return tensors, sorted(str(w.message).split("(Triggered")[0][:60] for w in caught)


def check(function):
    expected, got = outcome(function, "cpu"), outcome(function, DEVICE)
    assert got == expected


NUMBERS = torch.tensor([[3.4, 1.6], [2.7, 4.9]])
TWO_OPERANDS = "add sub mul div floor_divide remainder fmod pow atan2 maximum minimum fmax hypot eq lt logical_and gcd"
ONE_OPERAND = (
    "abs neg exp sqrt sigmoid floor sign isposinf logical_not reciprocal nan_to_num square logit cumsum cumprod"
)
PAIRS = "max min median mode kthvalue sort topk cummax aminmax"
REDUCTIONS = "sum nansum mean prod amax argmax all any norm var logsumexp"


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
@pytest.mark.parametrize(
    "name", f"{TWO_OPERANDS} {ONE_OPERAND} {REDUCTIONS} cat where gather index_select mm tril".split()
)
def test_a_dtype_of_out_is_accepted_or_refused_as_on_the_cpu(name, dtype):
    if torch.__version__ < (2, 12) and name in ("mean", "norm", "var") and dtype == torch.int64:
        pytest.skip(f"PyTorch {torch.__version__} has other errors for means and norms of integers")

    def run(device, out_dtype):
        x = NUMBERS.to(device, dtype)
        index = torch.tensor([[1, 0], [0, 1]], device=device)
        arguments = {
            "cat": ([x],), "where": (x > 2, x, x), "gather": (x, 0, index), "index_select": (x, 0, index[0]),
            "mm": (x, x), "cumsum": (x, 0), "cumprod": (x, 0), "norm": (x, None, 1),
            **dict.fromkeys(TWO_OPERANDS.split(), (x, x)),
        }.get(name, (x, 1) if name in REDUCTIONS.split() else (x,))  # fmt: skip
        shape = (2,) if name in REDUCTIONS.split() else (2, 2)
        return getattr(torch, name)(*arguments, out=torch.zeros(shape, dtype=out_dtype, device=device))

    for out_dtype in DTYPES:
        if outcome(lambda device: run(device, out_dtype), "cpu") == "NotImplementedError":
            continue  # the CPU has no kernel
        check(lambda device: run(device, out_dtype))


@pytest.mark.parametrize("name", ["sum", "nansum", "mean", "prod", "cumsum", "cumprod"])
def test_out_has_the_dtype_that_the_call_names(name):
    if torch.__version__ < (2, 12) and name == "mean":
        pytest.skip(f"PyTorch {torch.__version__} has other errors for means of integers")
    for dtype in (torch.float32, torch.float64, torch.int64):
        for out_dtype in DTYPES:

            def run(device):
                shape = (2, 2) if name.startswith("cum") else (2,)
                out = torch.zeros(shape, dtype=out_dtype, device=device)
                return getattr(torch, name)(NUMBERS.to(device), 0, dtype=dtype, out=out)

            if outcome(run, "cpu") != "NotImplementedError":  # the CPU has a kernel
                check(run)


@pytest.mark.parametrize("name", PAIRS.split())
def test_dtypes_of_two_outputs_are_accepted_or_refused_as_on_the_cpu(name):
    arguments = {"sort": (1,), "topk": (2, 1), "kthvalue": (1, 1)}.get(name, (1,))
    if name == "aminmax":
        arguments = ()
    for values in (torch.float32, torch.float64, torch.int64):
        for indices in (torch.int64, torch.int32, torch.float32):

            def run(device):
                outputs = tuple(torch.zeros(0, dtype=t, device=device) for t in (values, indices))
                options = {"dim": 1} if name == "aminmax" else {}
                return getattr(torch, name)(NUMBERS.to(device), *arguments, **options, out=outputs)

            check(run)


@pytest.mark.parametrize("size", [(), (2,)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_the_extremum_of_all_elements_is_cast_to_out(name, size):
    for dtype in (torch.bool, torch.int32, torch.float32):
        for out_dtype in DTYPES:

            def run(device):
                out = torch.zeros(size, dtype=out_dtype, device=device)
                return getattr(torch, name)(NUMBERS.to(device, dtype), out=out)

            check(run)


SPECIAL = {
    "polygamma": lambda x, out: torch.polygamma(1, x, out=out),
    "i0": torch.i0,
    "i1e": torch.special.i1e,
    "lgamma": torch.lgamma,
    "digamma": torch.digamma,
    "sinc": torch.sinc,
    "erfc": torch.erfc,
    "reciprocal": torch.reciprocal,
    "exp2": torch.exp2,
    "zeta": lambda x, out: torch.special.zeta(x, x, out=out),
    "xlog1py": lambda x, out: torch.special.xlog1py(x, x, out=out),
    "xlogy": lambda x, out: torch.xlogy(x, x, out=out),
    "mul": lambda x, out: torch.mul(x, 2.7, out=out),
    "div": lambda x, out: torch.div(x, 2.7, out=out),
    "deg2rad": torch.deg2rad,
    "rad2deg": torch.rad2deg,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", SPECIAL)
def test_a_result_of_16_bits_is_rounded_before_out_of_32_bits_gets_it(name, dtype):
    x = torch.tensor([1.5, 2.25, 0.3, 3.7], dtype=dtype, device=DEVICE)
    out = SPECIAL[name](x, out=torch.empty(4, device=DEVICE))
    torch.testing.assert_close(out.cpu(), out.cpu().to(dtype).float(), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("size", [(0,), (2, 2), (3,), (4, 1)])
@pytest.mark.parametrize("function", [
    torch.exp,
    torch.logical_not,
    lambda x, out: torch.add(x, 1, out=out),
    lambda x, out: torch.sum(x, 0, out=out),
    lambda x, out: torch.cat([x, x], out=out),
])  # fmt: skip
def test_out_of_another_size_is_resized_with_a_warning(function, size):
    check(lambda device: function(NUMBERS.to(device), out=torch.zeros(size, device=device)))


def test_out_gets_the_strides_of_permuted_operands():
    check(
        lambda device: torch.exp(
            torch.zeros(2, 3, 4, device=device).permute(2, 0, 1), out=torch.zeros(0, device=device)
        )
    )


@pytest.mark.parametrize("device", ["cpu", "tensord:1"])
def test_out_on_another_device_is_refused(device):
    with pytest.raises(RuntimeError, match="same device"):
        torch.exp(NUMBERS.to(DEVICE), out=torch.zeros(2, 2, device=device))


# ---- memory that is shared


@pytest.mark.parametrize("write", [
    lambda x: x[:4].copy_(x[1:]),
    lambda x: torch.sin(x[:4], out=x[1:]),
    lambda x: torch.add(x[:4], 1, out=x[1:]),
    lambda x: torch.cumsum(x[:4], 0, out=x[1:]),
    lambda x: x.put_(torch.tensor([0, 1], device=x.device), x[:2]),
    lambda x: x.index_put_((torch.tensor([0, 1], device=x.device),), x[:2]),
    lambda x: x.masked_scatter_(x > 2, x),
    lambda x: x[1:].add_(x[:4]),
    lambda x: x.copy_(x),
    lambda x: x.add_(x),
    lambda x: torch.sin(x, out=x),
    lambda x: x[:2].copy_(x[2:4]),
])  # fmt: skip
def test_outputs_that_overlap_operands(write):
    def run(device):
        x = torch.arange(5.0, device=device)
        write(x)
        return x

    check(run)


@pytest.mark.parametrize("write", [
    lambda x: x.fill_(2),
    lambda x: x.fill_(torch.tensor(3.0, device=x.device)),
    lambda x: x.zero_(),
    lambda x: torch.nn.functional.threshold(x, 1.5, 7.0, inplace=True),
    lambda x: x.add_(1),
    lambda x: x.copy_(torch.ones(3, 3, device=x.device)),
    lambda x: x.uniform_(),
    lambda x: torch.relu_(x),
    lambda x: torch.exp(torch.ones(3, 3, device=x.device), out=x),
])  # fmt: skip
def test_tensors_whose_elements_are_one(write):
    def run(device):
        x = torch.ones(1, 3, device=device).expand(3, 3)
        write(x)
        return x

    check(run)


# ---- variants


@pytest.mark.parametrize("function", [
    lambda d: torch.nonzero(NUMBERS.to(d) > 1, out=torch.zeros(0, dtype=torch.long, device=d)),
    lambda d: torch.nonzero(NUMBERS.to(d) > 1),
    lambda d: torch.argwhere(NUMBERS.to(d) > 1),
    lambda d: torch.nonzero(NUMBERS.to(d), out=torch.zeros(0, device=d)),
    lambda d: torch.isin(NUMBERS.to(d), 2),
    lambda d: torch.isin(NUMBERS.to(d), 2, invert=True),
    lambda d: torch.isin(2, NUMBERS.to(d)),
    lambda d: torch.bucketize(2.5, NUMBERS.to(d).flatten().sort()[0]),
    lambda d: torch.bucketize(
        NUMBERS.to(d), torch.tensor([1.0, 2.5], device=d), out=torch.zeros(2, 2, dtype=torch.long, device=d)),
    lambda d: torch.searchsorted(torch.tensor([1, 3, 5], device=d), 4),
    lambda d: torch.searchsorted(torch.tensor([1.0, 3.0], device=d), NUMBERS.to(d), out=torch.zeros(2, 2, device=d)),
    lambda d: torch.take(NUMBERS.to(d), torch.tensor([3, 0], device=d), out=torch.zeros(2, device=d)),
    lambda d: (NUMBERS.to(d) / 8).clone().logit_(),
    lambda d: torch.max(NUMBERS.to(d), out=torch.zeros((), device=d)),
    lambda d: torch.range(0, 3, out=torch.zeros(0, device=d)),
    lambda d: torch.range(5, 0, -2, out=torch.zeros(0, dtype=torch.int64, device=d)),
    lambda d: torch.range(0.5, 3.7, 1.5, dtype=torch.int64, device=d),
    lambda d: torch.range(2**62, 2**62 + 3, dtype=torch.int64, device=d),
    lambda d: torch.range(0, 3, math.nan, device=d),
    lambda d: torch.zeros(4, dtype=torch.bool, device=d).scatter_reduce(
        0, torch.tensor([0, 2], device=d), torch.tensor([True, False], device=d), "amax"),
    lambda d: torch._C._nn.mse_loss(NUMBERS.to(d), NUMBERS.to(d) + 1, out=torch.zeros((), device=d)),
    lambda d: torch._C._nn.huber_loss(NUMBERS.to(d), NUMBERS.to(d) + 1, out=torch.zeros((), device=d)),
    lambda d: torch._C._nn.log_sigmoid(NUMBERS.to(d), out=torch.zeros(0, device=d)),
])  # fmt: skip
def test_variants_give_what_they_give_on_the_cpu(function):
    check(function)


def test_a_range_of_integers_whose_step_is_truncated_to_0_is_refused():  # on the CPU, the program ends
    with pytest.raises(RuntimeError, match="step must be nonzero"):
        torch.range(0, 3, 0.5, dtype=torch.int64, device=DEVICE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_frexp(dtype):
    finfo = torch.finfo(dtype)
    numbers = [0.0, -0.0, 1.0, -1.0, 0.75, 3.0, -1e-3, finfo.max, finfo.tiny, finfo.tiny / 4, float("inf")]
    x = torch.tensor(numbers, dtype=dtype)
    got = torch.frexp(x.to(DEVICE))
    for a, b in zip(got, torch.frexp(x)):
        assert a.dtype == b.dtype and torch.equal(a.cpu(), b)


def test_is_set_to():
    x = torch.zeros(2, device=DEVICE)
    assert x.is_set_to(x.detach()) and not x.is_set_to(torch.zeros(2, device=DEVICE)) and not x.is_set_to(x[:1])


@pytest.mark.parametrize("write", [
    lambda x: x.deg2rad_(),
    lambda x: x.rad2deg_(),
    lambda x: torch.msort(x, out=x.double()),
])  # fmt: skip
def test_a_result_whose_dtype_cannot_be_cast_to_the_output_is_refused(write):
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match="can't be cast to|to have dtype"):
            write(torch.tensor([90, 45], device=device))


def test_addcdiv_and_polygamma_refuse_integers_as_results():
    x = torch.ones(2, dtype=torch.int32, device=DEVICE)
    with pytest.raises(RuntimeError, match="Integer division with addcdiv is no longer supported"):
        torch.addcdiv(x, x, x, out=x)
    with pytest.raises(RuntimeError, match="result type Float can't be cast"):
        x.polygamma_(1)


def test_an_op_in_place_does_not_grow_its_tensor():
    x = torch.ones(3, 1, device=DEVICE)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        x.ldexp_(torch.ones(3, 4, device=DEVICE))
    assert x.shape == (3, 1)


@pytest.mark.parametrize("shape", [(), (3,), (1, 3)])
def test_addr_in_place_does_not_grow_its_tensor(shape):
    for device in ("cpu", DEVICE):
        x, y = torch.ones(shape, device=device), torch.ones(3, device=device)
        with pytest.raises(RuntimeError, match="2D tensor expected|output with shape|size mismatch"):
            x.addr_(y, y)
        assert x.shape == shape


def test_a_result_of_16_bits_is_rounded_before_it_becomes_float32():
    x = torch.linspace(0.1, 7, 20, dtype=torch.float16, device=DEVICE)
    for function in (lambda **o: torch.addcmul(x, x, x, **o), lambda **o: torch.add(x, x, alpha=0.3, **o)):
        assert torch.equal(function(out=torch.zeros(20, device=DEVICE)), function().float())


EXPANDED = {
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([0.1, 0.2, 0.5], device=x.device)),
    "isin": lambda x: torch.isin(x, torch.tensor([0.3], device=x.device)),
    **{
        f"{name} {reduction}": lambda x, f=function, r=reduction: f(x, x * 0.5, reduction=r)
        for name, function in vars(torch.nn.functional).items()
        if name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "binary_cross_entropy")
        for reduction in ("none", "sum", "mean")
    },
    "both expanded": lambda x: torch.nn.functional.mse_loss(x, x.detach()[:1].expand_as(x), reduction="sum"),
}


@pytest.mark.parametrize("name", EXPANDED)
def test_expanded_elements_count_as_often_as_they_occur(name):
    def run(device):
        x = torch.tensor([[0.3], [0.4]], device=device).expand(2, 4).detach().requires_grad_()
        y = EXPANDED[name](x)
        gradient = torch.autograd.grad(y.sum(), x)[0] if y.requires_grad else torch.zeros(())
        return y.detach().cpu(), gradient.cpu()

    for got, expected in zip(run(DEVICE), run("cpu"), strict=True):
        torch.testing.assert_close(got, expected, check_stride=False)


def test_elements_are_found_in_an_expanded_tensor():
    listed = torch.tensor([[0.3], [0.4]], device=DEVICE).expand(2, 4)  # PyTorch's CPU refuses it
    assert torch.isin(torch.tensor([0.4, 0.5], device=DEVICE), listed).tolist() == [True, False]


def test_a_softmax_without_elements_resizes_its_output():
    check(lambda d: torch.softmax(torch.ones(5, 0, device=d), 1, out=torch.empty(0, device=d)))


@pytest.mark.parametrize("function", [torch.isposinf, torch.isneginf, torch.signbit])
def test_a_truth_is_not_written_into_numbers(function):
    for device in ("cpu", DEVICE):
        with pytest.raises(RuntimeError, match=f"{function.__name__} does not support non-boolean outputs"):
            function(torch.ones(2, device=device), out=torch.zeros(2, device=device))


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_operands_without_a_result_are_refused_with_an_output_too(device):
    x, y = torch.ones(2, device=device), torch.ones(2, dtype=torch.int32, device=device)
    with pytest.raises(RuntimeError, match="heaviside is not yet implemented for tensors with different dtypes"):
        torch.heaviside(x, y, out=x.clone())
    with pytest.raises(RuntimeError, match="Integers to negative integer powers are not allowed"):
        torch.pow(y, -1, out=y.clone())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_quotient_of_16_bits_is_truncated_as_on_the_cpu(dtype):
    torch.manual_seed(1)
    x, y = torch.randn(2, 2000).mul(5).to(dtype)
    for a, b in ((x, y), (x, 0.1), (x, y[:1]), (3.0, y)):
        a_here, b_here = (z.to(DEVICE) if isinstance(z, torch.Tensor) else z for z in (a, b))
        if isinstance(a, float):
            a, a_here = torch.tensor(a, dtype=dtype), torch.tensor(a, dtype=dtype, device=DEVICE)
        expected = torch.div(a, b, rounding_mode="trunc")
        assert torch.equal(torch.div(a_here, b_here, rounding_mode="trunc").cpu(), expected)
