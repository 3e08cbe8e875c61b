"""Random numbers have the moments of their distributions, and repeat by the seed."""

import pytest
import torch
from torch import distributions

DEVICE = "tensord"
COUNT = 40_000


def number(x):
    return torch.tensor(x, device=DEVICE)


@pytest.mark.parametrize(
    "make",
    [
        lambda: distributions.Normal(number(3.0), number(2.0)),
        lambda: distributions.Gamma(number(0.3), number(1.0)),
        lambda: distributions.Gamma(number(4.0), number(2.0)),
        lambda: distributions.Beta(number(2.0), number(3.0)),
        lambda: distributions.Dirichlet(number([1.0, 2.0, 3.0])),
        lambda: distributions.StudentT(number(9.0)),
        lambda: distributions.Exponential(number(2.0)),
        lambda: distributions.Bernoulli(number(0.3)),
        lambda: distributions.Categorical(number([0.2, 0.3, 0.5])),
        lambda: distributions.Geometric(number(0.3)),
        lambda: distributions.LogNormal(number(0.1), number(0.5)),
        lambda: distributions.Poisson(number([0.2, 4.0, 9.9, 10.0, 35.0, 1e5])),
        lambda: distributions.Binomial(number(7.0), number([0.1, 0.5, 0.9])),
        lambda: distributions.Binomial(number(400.0), number([0.001, 0.02, 0.025, 0.3, 0.5, 0.99])),
        lambda: distributions.NegativeBinomial(number(3.0), number(0.4)),
    ],
)
def test_samples_have_the_moments(make):
    torch.manual_seed(5)
    distribution = make()
    x = distribution.sample((COUNT,))
    torch.manual_seed(5)
    assert torch.equal(make().sample((COUNT,)), x)
    x = x.cpu().double()
    if isinstance(distribution, distributions.Categorical):
        counts = torch.bincount(x.long(), minlength=3) / COUNT
        torch.testing.assert_close(counts, torch.tensor([0.2, 0.3, 0.5]), rtol=0, atol=0.02)
        return
    mean, variance = distribution.mean.cpu().double(), distribution.variance.cpu().double()
    # Six standard deviations of the mean; the variance is less exact.
    assert ((x.mean(0) - mean).abs() <= 6 * (variance / COUNT).sqrt()).all()
    torch.testing.assert_close(x.var(0), variance, rtol=0.15, atol=0)
    assert torch.isfinite(distribution.log_prob(distribution.sample((3,)))).all()


@pytest.mark.parametrize(
    "make",
    [
        lambda: distributions.Poisson(number(9.5)),
        lambda: distributions.Poisson(number(10.5)),
        lambda: distributions.Poisson(number(60.0)),
        lambda: distributions.Binomial(number(12.0), number(0.7)),
        lambda: distributions.Binomial(number(25.0), number(0.5)),
        lambda: distributions.Binomial(number(300.0), number(0.8)),
    ],
)
def test_numbers_of_events_have_their_probabilities(make):
    torch.manual_seed(6)
    distribution = make()
    counts = torch.bincount(distribution.sample((COUNT,)).cpu().long()).double()
    probabilities = distribution.log_prob(torch.arange(len(counts), dtype=torch.float32, device=DEVICE)).exp().cpu()
    expected = probabilities.double() * COUNT
    assert expected.sum() > COUNT - 10
    assert ((counts - expected).abs() <= 6 * expected.sqrt() + 6).all()


def test_numbers_of_events_that_are_certain():
    p = number([0.0, 1.0])
    assert torch.binomial(number([5.0, 5.0]), p).tolist() == [0, 5]
    assert torch.binomial(number([500.0, 500.0]), p).tolist() == [0, 500]
    assert torch.binomial(number([0.0]), number([0.3])).tolist() == [0]
    assert torch.binomial(number([5.0, 5.0, -2.0]), number([-0.5, 1.5, 0.7])).tolist() == [0, 5, 0]
    assert torch.poisson(number([0.0])).tolist() == [0]
    assert torch.poisson(torch.ones(2, 0, device=DEVICE)).shape == (2, 0)
    assert torch.poisson(torch.full((3,), 4.0, dtype=torch.float16, device=DEVICE)).dtype == torch.float16


def test_a_generator_of_another_device_is_refused():
    with pytest.raises(RuntimeError, match="expected a generator of tensord, but got one of cpu"):
        torch.rand(2, device=DEVICE, generator=torch.Generator())
    for f in lambda g: torch.rand(2, generator=g), lambda g: torch.poisson(torch.ones(2), generator=g):
        with pytest.raises(RuntimeError, match="expected a generator of cpu, but got one of tensord:0"):
            f(torch.Generator(DEVICE))


@pytest.mark.parametrize("f", [lambda x: x.log_normal_(0.5, 0.2).log_(), lambda x: x.cauchy_(0.5, 0.1)])
def test_samples_have_the_median(f):
    torch.manual_seed(2)
    assert f(torch.empty(COUNT, device=DEVICE)).median().item() == pytest.approx(0.5, abs=0.02)


def test_normal_numbers_of_tensors():
    torch.manual_seed(1)
    mean, deviation = torch.arange(3.0, device=DEVICE), torch.tensor([0.0, 0.1, 2.0], device=DEVICE)
    assert torch.normal(mean, deviation)[0].item() == 0
    assert torch.normal(mean, 0.0).tolist() == [0, 1, 2]
    x = torch.normal(0.0, deviation.expand(COUNT, 3)).cpu()
    torch.testing.assert_close(x.std(0), deviation.cpu(), rtol=0.05, atol=0)
    out = torch.empty(0, device=DEVICE)
    torch.normal(mean, deviation, out=out)
    assert out.shape == (3,)
