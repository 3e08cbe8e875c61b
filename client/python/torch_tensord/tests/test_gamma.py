"""The gamma function, its samples, and densities of the distributions that use it."""

import pytest
import torch
from torch import distributions

DEVICE = "tensord"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.int64])
@pytest.mark.parametrize("function", [torch.lgamma, torch.digamma, lambda x: torch.polygamma(1, x)])
def test_gamma_functions_agree_with_the_cpu(function, dtype):
    x = torch.linspace(0.1, 30, 200, dtype=torch.float64).to(dtype)
    if dtype.is_floating_point:
        x = torch.cat([x, -x + 0.03, torch.tensor([0.0, float("inf"), float("nan")]).to(dtype)])
    x = x[x != 0] if dtype == torch.int64 else x
    mine = function(x.to(DEVICE)).cpu()
    expected = function(x.double()).to(mine.dtype)
    torch.testing.assert_close(mine, expected, atol=2e-5, rtol=2e-3 if dtype == torch.float16 else 2e-5, equal_nan=True)


@pytest.mark.parametrize("alpha", [0.1, 0.8, 1.0, 4.0, 60.0])
def test_gamma_samples_have_the_moments(alpha):
    torch.manual_seed(1)
    n = 100_000
    x = distributions.Gamma(torch.tensor(alpha, device=DEVICE), 1.0).sample((n,)).double()
    # Six standard errors of the mean and of the variance, whose fourth moment is 3α² + 6α.
    assert abs(x.mean().item() - alpha) < 6 * (alpha / n) ** 0.5
    assert abs(x.var().item() - alpha) < 6 * ((2 * alpha**2 + 6 * alpha) / n) ** 0.5
    assert x.min().item() > 0


def derivative_of_gamma(alpha, x):
    """Returns dx/dα of a sample at a fixed probability: the sum of xⁿ⁺¹ (ψ(α+n+1) - ln x) / (α (α+1) … (α+n))."""
    term, total = x / alpha, torch.zeros_like(x)
    for n in range(400):
        total += term * (torch.digamma(alpha + n + 1) - x.log())
        term = term * x / (alpha + n + 1)
    return total


@pytest.mark.parametrize("alpha", [0.1, 0.8, 1.0, 4.0, 30.0])
def test_gamma_samples_have_gradients(alpha):
    torch.manual_seed(2)
    parameter = torch.full((64,), alpha, device=DEVICE, requires_grad=True)
    sample = distributions.Gamma(parameter, 1.0).rsample()
    sample.sum().backward()
    expected = derivative_of_gamma(torch.full((64,), alpha, dtype=torch.float64), sample.detach().cpu().double())
    torch.testing.assert_close(parameter.grad.cpu(), expected.float(), rtol=5e-3, atol=1e-5)


@pytest.mark.parametrize("a", [0.5, 1.5, 8.0])
def test_beta_and_dirichlet_samples_have_gradients(a):
    """If the other parameter is 1, the distribution function of Beta is x^a, or 1 - (1 - x)^a."""
    torch.manual_seed(3)
    first, one = torch.full((64,), a, device=DEVICE, requires_grad=True), torch.ones(64, device=DEVICE)
    x = distributions.Beta(first, one).rsample()
    y = distributions.Beta(one, first).rsample()
    z = distributions.Dirichlet(torch.stack([first, one], -1)).rsample()[:, 0]
    of_x, of_y, of_z = (torch.autograd.grad(each.sum(), first)[0].cpu() for each in (x, y, z))
    x, y, z = (each.detach().cpu().double() for each in (x, y, z))
    torch.testing.assert_close(of_x, (-x * x.log() / a).float(), rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(of_y, ((1 - y) * (1 - y).log() / a).float(), rtol=1e-2, atol=1e-4)
    torch.testing.assert_close(of_z, (-z * z.log() / a).float(), rtol=1e-2, atol=1e-4)


CASES = {
    "Beta": lambda a: (distributions.Beta(a, a + 1), torch.full_like(a, 0.3)),
    "Gamma": lambda a: (distributions.Gamma(a, a + 1), a + 0.5),
    "Dirichlet": lambda a: (distributions.Dirichlet(a), torch.full_like(a, 1 / a.numel())),
    "StudentT": lambda a: (distributions.StudentT(a + 2), a),
    "Poisson": lambda a: (distributions.Poisson(a), torch.ones_like(a)),
    "Binomial": lambda a: (distributions.Binomial(5, a / 10), torch.ones_like(a)),
    "Categorical": lambda a: (distributions.Categorical(a / a.sum()), torch.tensor(2, device=a.device)),
    "Normal": lambda a: (distributions.Normal(a, a + 1), torch.zeros_like(a)),
    "Uniform": lambda a: (distributions.Uniform(-a, a), a / 2),
    "Bernoulli": lambda a: (distributions.Bernoulli(a / 10), torch.ones_like(a)),
    "NegativeBinomial": lambda a: (distributions.NegativeBinomial(a, torch.full_like(a, 0.4)), torch.ones_like(a)),
    "LogNormal": lambda a: (distributions.LogNormal(a, a + 1), a),
}


@pytest.mark.parametrize("name", CASES)
def test_log_prob_and_its_gradient_agree_with_the_cpu(name):
    def value_and_gradient(device):
        a = torch.tensor([0.5, 1.5, 4.0, 8.0], device=device, requires_grad=True)
        distribution, point = CASES[name](a)
        log_prob = distribution.log_prob(point.detach()).sum()
        return log_prob.detach().cpu(), torch.autograd.grad(log_prob, a)[0].cpu()

    for mine, expected in zip(value_and_gradient(DEVICE), value_and_gradient("cpu")):
        torch.testing.assert_close(mine, expected, rtol=1e-5, atol=1e-5)


def test_a_number_can_be_divided_and_integers_shifted():
    x = torch.tensor([3, 4])
    torch.testing.assert_close(torch.remainder(5, x.to(DEVICE)).cpu(), torch.remainder(5, x))
    torch.testing.assert_close((x.to(DEVICE) << 1 >> x.to(DEVICE)).cpu(), x << 1 >> x)


def test_layer_norm_refuses_another_shape():
    with pytest.raises(RuntimeError, match="expected input with shape"):
        torch.nn.functional.layer_norm(torch.ones(2, 3, device=DEVICE), (4,))
