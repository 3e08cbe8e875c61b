"""Compares gradients of gradients on the device with finite differences in float64, along random directions. The
functions are those whose gradients PyTorch can differentiate."""

import pytest
import torch
from torch.autograd import gradgradcheck
from torch.nn import functional as F

DEVICE = "tensord"


def leaf(*shape, low=-2.0, high=2.0, seed=0):
    """Returns values that aren't near 0 or an integer, at which some functions have no derivative."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    x = torch.rand(shape, generator=generator, dtype=torch.float64) * (high - low) + low
    x = torch.where((x - x.round()).abs() < 0.05, x + 0.1, x)
    return x.to(DEVICE).requires_grad_()


def classes(*shape, count=3):
    return torch.arange(torch.Size(shape).numel()).reshape(shape).remainder(count).to(DEVICE)


def attention(q, k, v, **options):
    # The fused kernels of PyTorch have no gradient of their gradient, on no device.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, **options)


def positive(*shape, seed=0):
    return leaf(*shape, low=0.2, high=2.0, seed=seed)


def batch_norm(training):
    def run(x, weight, bias):
        mean, var = torch.zeros(3, dtype=x.dtype, device=x.device), torch.ones(3, dtype=x.dtype, device=x.device)
        return F.batch_norm(x, mean, var, weight, bias, training)

    return run


PROBABILITIES = torch.tensor([[0.1, 0.5, 0.4], [0.3, 0.3, 0.4]], dtype=torch.float64)

# Each case has a function, and a function that makes its operands.
CASES = {
    "matmul": (torch.matmul, lambda: (leaf(2, 3), leaf(3, 4))),
    "matmul, batches": (torch.matmul, lambda: (leaf(2, 2, 3), leaf(2, 3, 2))),
    "linear": (F.linear, lambda: (leaf(2, 3), leaf(4, 3), leaf(4))),
    "mul": (torch.mul, lambda: (leaf(2, 3), leaf(3))),
    "div": (torch.div, lambda: (leaf(2, 3), positive(3))),
    "pow": (lambda x: x**3, lambda: (leaf(4),)),
    "exp": (torch.exp, lambda: (leaf(4),)),
    "log": (torch.log, lambda: (positive(4),)),
    "sqrt": (torch.sqrt, lambda: (positive(4),)),
    "sum": (lambda x: (x * x).sum(1), lambda: (leaf(2, 3),)),
    "mean": (lambda x: (x * x).mean(), lambda: (leaf(2, 3),)),
    "var": (lambda x: x.var(1), lambda: (leaf(2, 3),)),
    "norm": (lambda x: x.norm(dim=1), lambda: (leaf(2, 3),)),
    "slices": (lambda x: x[1:, ::2] * x[0, 0], lambda: (leaf(3, 4),)),
    "index": (lambda x: x[torch.tensor([0, 2, 0], device=x.device)] ** 2, lambda: (leaf(3, 2),)),
    "cat": (lambda x, y: torch.cat([x * y, x]).t() ** 2, lambda: (leaf(2, 2), leaf(2, 2, seed=1))),
    "relu": (lambda x: F.relu(x) ** 2, lambda: (leaf(5),)),
    "leaky_relu": (lambda x: F.leaky_relu(x, 0.2) ** 2, lambda: (leaf(5),)),
    "elu": (F.elu, lambda: (leaf(5),)),
    "celu": (lambda x: F.celu(x, 0.7), lambda: (leaf(5),)),
    "selu": (F.selu, lambda: (leaf(5),)),
    "gelu": (F.gelu, lambda: (leaf(5),)),
    "gelu, tanh": (lambda x: F.gelu(x, approximate="tanh"), lambda: (leaf(5),)),
    "silu": (F.silu, lambda: (leaf(5),)),
    "sigmoid": (torch.sigmoid, lambda: (leaf(5),)),
    "tanh": (torch.tanh, lambda: (leaf(5),)),
    "softplus": (lambda x: F.softplus(x, beta=2), lambda: (leaf(5),)),
    "mish": (F.mish, lambda: (leaf(5),)),
    "hardswish": (F.hardswish, lambda: (leaf(5),)),
    "hardtanh": (lambda x: F.hardtanh(x) ** 2, lambda: (leaf(5),)),
    "logsigmoid": (F.logsigmoid, lambda: (leaf(5),)),
    "softmax": (lambda x: F.softmax(x, 1), lambda: (leaf(2, 3),)),
    "log_softmax": (lambda x: F.log_softmax(x, 0), lambda: (leaf(3, 2),)),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b, stride=2, padding=1), lambda: (leaf(1, 2, 6), leaf(3, 2, 3), leaf(3))),
    "conv2d": (
        lambda x, w, b: F.conv2d(x, w, b, padding=1, dilation=(1, 2), groups=2),
        lambda: (leaf(1, 4, 4, 4), leaf(2, 2, 2, 2), leaf(2)),
    ),
    "conv_transpose2d": (
        lambda x, w: F.conv_transpose2d(x, w, stride=2, output_padding=1),
        lambda: (leaf(1, 2, 2, 3), leaf(2, 3, 2, 2)),
    ),
    "avg_pool2d": (lambda x: F.avg_pool2d(x, 2, padding=1) ** 2, lambda: (leaf(1, 2, 4, 5),)),
    "max_pool2d": (lambda x: F.max_pool2d(x, 2) ** 2, lambda: (leaf(1, 2, 4, 4),)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, [3], w, b), lambda: (leaf(2, 3), leaf(3), leaf(3, seed=1))),
    "rms_norm": (lambda x, w: F.rms_norm(x, [3], w), lambda: (leaf(2, 3), leaf(3))),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), lambda: (leaf(2, 4, 3), leaf(4), leaf(4, seed=1))),
    "batch_norm, training": (batch_norm(True), lambda: (leaf(4, 3), leaf(3), leaf(3, seed=1))),
    "batch_norm": (batch_norm(False), lambda: (leaf(4, 3), leaf(3), leaf(3, seed=1))),
    "attention": (attention, lambda: (leaf(1, 2, 3, 4), leaf(1, 2, 3, 4, seed=1), leaf(1, 2, 3, 4, seed=2))),
    "attention, causal": (
        lambda q, k, v: attention(q, k, v, is_causal=True),
        lambda: (leaf(1, 1, 3, 4), leaf(1, 1, 3, 4, seed=1), leaf(1, 1, 3, 4, seed=2)),
    ),
    "embedding": (lambda w: F.embedding(classes(2, 2), w) ** 2, lambda: (leaf(3, 2),)),
    "mse_loss": (F.mse_loss, lambda: (leaf(2, 3), leaf(2, 3, seed=1))),
    "smooth_l1_loss": (F.smooth_l1_loss, lambda: (leaf(2, 3), leaf(2, 3, seed=1))),
    "huber_loss": (F.huber_loss, lambda: (leaf(2, 3), leaf(2, 3, seed=1))),
    "cross_entropy": (
        lambda x: F.cross_entropy(x, classes(2), label_smoothing=0.1),
        lambda: (leaf(2, 3),),
    ),
    "nll_loss": (lambda x: F.nll_loss(F.log_softmax(x, 1), classes(2)), lambda: (leaf(2, 3),)),
    "binary_cross_entropy": (
        lambda x: F.binary_cross_entropy(x.sigmoid(), PROBABILITIES.to(DEVICE)),
        lambda: (leaf(2, 3),),
    ),
    "binary_cross_entropy_with_logits": (
        lambda x: F.binary_cross_entropy_with_logits(x, PROBABILITIES.to(DEVICE)),
        lambda: (leaf(2, 3),),
    ),
    "kl_div": (lambda x: F.kl_div(F.log_softmax(x, 1), PROBABILITIES.to(DEVICE)), lambda: (leaf(2, 3),)),
}


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # of kl_div
@pytest.mark.parametrize("name", CASES)
def test_gradients_of_gradients_agree_with_differences(name):
    function, operands = CASES[name]
    # The directions are drawn on the CPU.
    torch.manual_seed(1)
    assert gradgradcheck(function, operands(), fast_mode=True, atol=1e-5, rtol=1e-4)


def test_cross_entropy_of_batched_gradients():
    x, y, g = torch.randn(3, 4), torch.tensor([1, 0, 3]), torch.randn(2, 3)

    def gradients(x, y, g):
        loss = F.cross_entropy(x.requires_grad_(), y, reduction="none")
        return torch.autograd.grad(loss, x, g, is_grads_batched=True)[0]

    got = gradients(*(each.to(DEVICE) for each in (x, y, g)))
    torch.testing.assert_close(got.cpu(), gradients(x, y, g))


@pytest.mark.parametrize("device", ["cpu", DEVICE])
def test_cross_entropy_has_no_gradient_of_its_weight(device):
    x, y = torch.randn(3, 4, device=device), torch.tensor([1, 0, 3], device=device)
    with pytest.raises(RuntimeError, match="'weight'"):
        F.cross_entropy(x, y, torch.rand(4, device=device).requires_grad_())
