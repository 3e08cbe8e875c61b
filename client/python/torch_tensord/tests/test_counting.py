"""Greatest common divisors, histograms by edges, and unique slices: as on the CPU."""

import pytest
import torch

DEVICE = "tensord"


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64])
def test_divisors_and_multiples_are_those_of_the_cpu(dtype):
    largest = torch.iinfo(dtype).max
    numbers = [0, 1, 2, 12, 18, 35, 97, largest, largest - 1]
    if dtype is not torch.uint8:
        numbers += [-each for each in numbers]
    a, b = 1, 2  # consecutive Fibonacci numbers need the most steps
    while b <= largest:
        numbers.append(b)
        a, b = b, a + b
    x = torch.tensor(numbers, dtype=dtype)
    a, b = x.repeat_interleave(len(x)), x.repeat(len(x))
    for function in (torch.gcd, torch.lcm):
        assert torch.equal(function(a.to(DEVICE), b.to(DEVICE)).cpu(), function(a, b))
    six = torch.tensor(6, dtype=dtype)
    assert torch.equal(torch.gcd(x.to(DEVICE), six).cpu(), torch.gcd(x, six))
    y = x.to(DEVICE)
    assert torch.equal(y.gcd_(y).cpu(), torch.gcd(x, x))
    with pytest.raises(NotImplementedError, match="gcd isn't implemented for Float"):
        torch.gcd(y.float(), y.float())


def test_histograms_are_those_of_the_cpu():
    x = torch.tensor([[-1.0, 0.0, 0.25, 0.5], [0.5, 1.0, 2.0, 0.75]])
    weight = torch.tensor([[1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]])
    edges = torch.tensor([0.0, 0.5, 0.6, 1.0])
    for density in (False, True):
        for w in (None, weight):
            moved = None if w is None else w.to(DEVICE)
            for bins, options in ((edges, {}), (4, {}), (3, {"range": (0.0, 1.0)}), (2, {"range": (1.0, 1.0)})):
                here = bins.to(DEVICE) if isinstance(bins, torch.Tensor) else bins
                expected = torch.histogram(x, bins, weight=w, density=density, **options)
                found = torch.histogram(x.to(DEVICE), here, weight=moved, density=density, **options)
                torch.testing.assert_close(tuple(each.cpu() for each in found), tuple(expected))
    for call in (
        lambda: torch.histogram(x.to(DEVICE), 0),
        lambda: torch.histogram(x.to(DEVICE) / 0, 3),
        lambda: torch.histogram(x.to(DEVICE), 3, range=(2.0, 1.0)),
        lambda: torch.histogram(x.to(DEVICE), edges.to(DEVICE).double()),
    ):
        with pytest.raises(RuntimeError, match="histogram"):
            call()


INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_that_cuda_takes_are_counted_and_unpooled(dtype):  # the CPU refuses them
    x = torch.tensor([0, 1, 1, 3, 9], dtype=dtype, device=DEVICE)
    found = torch.histc(x, bins=4, min=0, max=3)
    assert found.dtype == dtype and found.tolist() == [1, 2, 0, 1]
    assert torch.histc(x, bins=3).tolist() == [3, 1, 1]  # from 0 to 9
    places = torch.tensor([[[[3]]]], device=DEVICE)
    x = torch.tensor([[[[7]]]], dtype=dtype, device=DEVICE)
    assert torch.nn.functional.max_unpool2d(x, places, 2).tolist() == [[[[0, 0], [0, 7]]]]


def test_unique_slices_are_those_of_the_cpu():
    torch.manual_seed(0)
    for x in (torch.randint(-1, 2, (40, 3)), torch.randint(2, (5, 30, 2)).bool(), torch.randint(2, (3, 3)) / 2):
        for dim in range(x.dim()):
            for function in (torch.unique, torch.unique_consecutive):
                expected = function(x, dim=dim, return_inverse=True, return_counts=True)
                found = function(x.to(DEVICE), dim=dim, return_inverse=True, return_counts=True)
                assert all(torch.equal(a.cpu(), b) for a, b in zip(found, expected))
                assert torch.equal(function(x.to(DEVICE), dim=dim).cpu(), expected[0])
    with pytest.raises(RuntimeError, match="0 sized dimensions"):
        torch.unique(torch.zeros(2, 0, device=DEVICE), dim=0)
    assert torch.unique(torch.zeros(0, 2, device=DEVICE), dim=0).shape == (0, 2)
