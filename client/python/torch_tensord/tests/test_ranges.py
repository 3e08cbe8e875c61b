"""Ranges of sequences and of random numbers: what a dtype lacks is refused, as on the CPU."""

import math

import pytest
import torch
from torch import distributions

DEVICE = "tensord"
LARGE = 1449629115440469

REFUSED = {
    "random_ of int8": lambda d: torch.zeros(3, dtype=torch.int8, device=d).random_(0, 1000),
    "random_ of uint8 below 0": lambda d: torch.zeros(3, dtype=torch.uint8, device=d).random_(-1, 5),
    "random_ of bool": lambda d: torch.zeros(3, dtype=torch.bool, device=d).random_(0, 3),
    "random_ of float16": lambda d: torch.zeros(3, dtype=torch.half, device=d).random_(2**60),
    "random_ from int8": lambda d: torch.zeros(3, dtype=torch.int8, device=d).random_(-1000, None),
    "randint of uint8": lambda d: torch.randint(0, 257, (3,), dtype=torch.uint8, device=d),
    "randperm of int8": lambda d: torch.randperm(300, dtype=torch.int8, device=d),
    "randperm of float16": lambda d: torch.randperm(2050, dtype=torch.half, device=d),
    "linspace of int8": lambda d: torch.linspace(-200, 200, 5, dtype=torch.int8, device=d),
    "logspace of uint8": lambda d: torch.logspace(0, 300, 3, dtype=torch.uint8, device=d),
    "full of float32": lambda d: torch.full((2,), 1e300, device=d),
    "full of float16": lambda d: torch.full((2,), 1e5, dtype=torch.half, device=d),
    "arange with an infinity": lambda d: torch.arange(0, math.inf, device=d),
    "arange with NaN": lambda d: torch.arange(math.nan, 3, device=d),
    "arange with a step of 0": lambda d: torch.arange(0, 3, 0, device=d),
    "arange with a step of NaN": lambda d: torch.arange(0, 3, math.nan, device=d),
    "arange upwards with a negative step": lambda d: torch.arange(0, 3, -1, device=d),
    "linspace with a negative number of steps": lambda d: torch.linspace(0, 1, -1, device=d),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_range_that_the_dtype_lacks_is_refused(name):
    with pytest.raises(Exception) as expected:
        REFUSED[name]("cpu")
    with pytest.raises(type(expected.value)):
        REFUSED[name](DEVICE)


SEQUENCES = {
    "large integers": lambda d: torch.arange(0, 100 * LARGE, LARGE, device=d),
    "large integers downwards": lambda d: torch.arange(100 * LARGE + 1, 0, -LARGE, device=d),
    "near the largest integer": lambda d: torch.arange(2**63 - 10, 2**63 - 1, 3, device=d),
    "float32": lambda d: torch.arange(0.0, 1.0, 0.1, device=d),
    "int32 of floats": lambda d: torch.arange(0.5, 9.5, 2.5, dtype=torch.int32, device=d),
    "no elements": lambda d: torch.arange(3, 3, -1, device=d),
    "linspace of int8": lambda d: torch.linspace(-100, 100, 7, dtype=torch.int8, device=d),
    "one step": lambda d: torch.linspace(3, 9, 1, dtype=torch.int32, device=d),
    "logspace": lambda d: torch.logspace(-1, 2, 5, device=d),
    "full wraps -1": lambda d: torch.full((2,), -1, dtype=torch.uint8, device=d),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequences_are_those_of_the_cpu(name):
    torch.testing.assert_close(SEQUENCES[name](DEVICE).cpu(), SEQUENCES[name]("cpu"))


@pytest.mark.filterwarnings("ignore:to - 1 is out of bounds")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_random_numbers_stay_below_the_bound_after_rounding(dtype):
    x = torch.empty(20_000, dtype=dtype, device=DEVICE).random_(0, 300).cpu()
    assert x.max().item() < 300 and x.min().item() >= 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("concentration", [1e-3, 1e-2, 0.5])
def test_samples_of_beta_and_dirichlet_lie_inside(concentration, dtype):
    torch.manual_seed(1)
    c = torch.tensor(concentration, dtype=dtype, device=DEVICE)
    beta = distributions.Beta(c, c)
    x = beta.sample((20_000,))
    assert x.dtype == dtype and 0 < x.min().item() and x.max().item() < 1
    assert torch.isfinite(beta.log_prob(x)).all().item()
    y = distributions.Dirichlet(c.expand(3)).sample((5_000,))
    assert 0 < y.min().item() and y.max().item() < 1


@pytest.mark.parametrize("function", [torch.range, torch.arange])
@pytest.mark.filterwarnings("ignore:torch.range is deprecated")
def test_a_sequence_keeps_the_shape_of_its_output(function):
    def filled(device):
        x = torch.zeros(2, 3, device=device)
        function(0, 3 if function is torch.range else 4, out=x[:, 1:])
        return x.tolist()

    assert filled(DEVICE) == filled("cpu") == [[0, 0, 1], [0, 2, 3]]


def test_arange_warns_before_it_resizes_its_output():
    for device in ("cpu", DEVICE):
        with pytest.warns(UserWarning, match="The out tensor will be resized"):
            out = torch.arange(0, 3, out=torch.zeros(1, 2, device=device))
        assert out.tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32])
def test_random_without_an_upper_bound_takes_the_greatest_integer(dtype):
    low = torch.iinfo(dtype).max - 1
    x = torch.zeros(64, dtype=dtype, device=DEVICE).random_(low, None)
    assert set(x.tolist()) == {low, low + 1}


@pytest.mark.parametrize("start, end, steps", [(-2, 3, 101), (0, 1, 7), (-1, 1, 1000), (0.1, 0.7, 50), (1e8, -1e8, 9)])
def test_linspace_of_float32_equals_that_of_the_cpu(start, end, steps):
    assert torch.equal(torch.linspace(start, end, steps, device=DEVICE).cpu(), torch.linspace(start, end, steps))


def test_elements_on_the_edges_of_bins_are_counted_as_on_the_cpu():
    x = torch.tensor([1.5, -2.0, 0.0, 3.0, 0.25, -1.0])
    for bins in (100, 10, 7):
        for got, expected in zip(x.to(DEVICE).histogram(bins), x.histogram(bins)):
            torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=0)


@pytest.mark.parametrize("make", [
    lambda d: torch.kaiser_window(5, device=d),
    lambda d: torch.kaiser_window(6, False, device=d),
    lambda d: torch.kaiser_window(7, True, 3.0, dtype=torch.float64, device=d),
    lambda d: torch.kaiser_window(1, device=d),
])  # fmt: skip
def test_a_kaiser_window_is_that_of_the_cpu(make):
    made = make(DEVICE)
    assert made.device.type == DEVICE
    torch.testing.assert_close(made.cpu(), make("cpu"), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64, torch.float32])
def test_linspace_casts_its_ends_to_the_dtype_first(dtype):
    for start, end, steps in ((4.3, 1, 50), (-2.9, 7.9, 12), (0.5, 0.9, 3)):
        expected = torch.linspace(start, end, steps, dtype=dtype)
        torch.testing.assert_close(torch.linspace(start, end, steps, dtype=dtype, device=DEVICE).cpu(), expected)
