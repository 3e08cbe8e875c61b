"""Compares activations, losses and their gradients with PyTorch's, for random configurations. If torch is missing, the
tests are skipped."""

import random

import pytest
import tensord

torch = pytest.importorskip("torch", reason="torch isn't installed; tests/run --torch installs it")
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore:reduction. 'mean' divides")  # of kl_div

# The largest relative difference from PyTorch's result in float64, and the absolute one.
TOLERANCES = {
    torch.float16: (1e-3, 1e-4),
    torch.bfloat16: (8e-3, 1e-3),
    torch.float32: (1e-5, 1e-5),
    torch.float64: (1e-11, 1e-12),
}
REDUCTIONS = ("none", "mean", "sum")


def ours(x):
    if x is not None and not x.is_contiguous():
        x = x.contiguous()
    return None if x is None else tensord.from_dlpack(x.detach())


def check(result, expected, dtype, what):
    rtol, atol = TOLERANCES[dtype]
    result = torch.from_dlpack(result)
    assert result.dtype == dtype, what
    scale = max(1.0, expected.abs().nan_to_num(posinf=0).max().item()) if expected.numel() else 1.0
    torch.testing.assert_close(
        result.double(), expected.double(), rtol=rtol, atol=atol * scale, equal_nan=True, msg=lambda m: f"{what}: {m}"
    )


class Draw:
    """Random shapes and options. The sequence depends only on the seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.generator = torch.Generator().manual_seed(seed)

    def shape(self, low=0, high=4):
        return [self.random.randint(1, 6) for _ in range(self.random.randint(low, high))]

    def values(self, shape, dtype, low=-4.0, high=4.0):
        x = torch.rand(shape, generator=self.generator, dtype=torch.float64) * (high - low) + low
        return x.to(dtype)

    def choose(self, *values):
        return self.random.choice(values)


# Each activation has PyTorch's function, ours, our gradient, whether the gradient takes the result, and the options.
ACTIVATIONS = {
    "sigmoid": (torch.sigmoid, tensord.sigmoid, tensord.sigmoid_backward, True, lambda d: {}),
    "tanh": (torch.tanh, tensord.tanh, tensord.tanh_backward, True, lambda d: {}),
    "relu": (torch.relu, tensord.relu, tensord.threshold_backward, True, lambda d: {}),
    "silu": (F.silu, tensord.silu, tensord.silu_backward, False, lambda d: {}),
    "gelu": (F.gelu, tensord.gelu, tensord.gelu_backward, False, lambda d: {"approximate": d.choose("none", "tanh")}),
    "softplus": (
        F.softplus,
        tensord.softplus,
        tensord.softplus_backward,
        False,
        lambda d: {"beta": d.choose(0.5, 1, 3), "threshold": d.choose(1, 20)},
    ),
    "threshold": (
        F.threshold,
        tensord.threshold,
        lambda g, x, threshold, value: tensord.threshold_backward(g, x, threshold),
        False,
        lambda d: {"threshold": d.choose(-1, 0, 0.5), "value": d.choose(-2, 3)},
    ),
    "leaky_relu": (
        F.leaky_relu,
        tensord.leaky_relu,
        tensord.leaky_relu_backward,
        False,
        lambda d: {"negative_slope": d.choose(0.01, 0.3, -0.5)},
    ),
    "elu": (F.elu, tensord.elu, tensord.elu_backward, False, lambda d: {"alpha": d.choose(0.5, 1, 2)}),
    "celu": (
        F.celu,
        lambda x, alpha: tensord.elu(x, alpha, 1, 1 / alpha),
        lambda g, x, alpha: tensord.elu_backward(g, x, alpha, 1, 1 / alpha),
        False,
        lambda d: {"alpha": d.choose(0.5, 1, 2)},
    ),
    "selu": (
        F.selu,
        lambda x: tensord.elu(x, 1.6732632423543772, 1.0507009873554805),
        lambda g, x: tensord.elu_backward(g, x, 1.6732632423543772, 1.0507009873554805),
        False,
        lambda d: {},
    ),
    "hardtanh": (
        lambda x, min, max: F.hardtanh(x, min, max),
        tensord.hardtanh,
        tensord.hardtanh_backward,
        False,
        lambda d: {"min": d.choose(-2, -1), "max": d.choose(0.5, 1)},
    ),
    # PyTorch's gradient of hardsigmoid divides by 6 in float32, also for float64.
    "hardsigmoid": (
        lambda x: F.relu6(x + 3) / 6,
        tensord.hardsigmoid,
        tensord.hardsigmoid_backward,
        False,
        lambda d: {},
    ),
    "hardswish": (F.hardswish, tensord.hardswish, tensord.hardswish_backward, False, lambda d: {}),
    "mish": (F.mish, tensord.mish, tensord.mish_backward, False, lambda d: {}),
    "log_sigmoid": (F.logsigmoid, tensord.log_sigmoid, tensord.log_sigmoid_backward, False, lambda d: {}),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_agree_with_pytorch(name):
    theirs, forward, backward, takes_result, options_of = ACTIVATIONS[name]
    for dtype in TOLERANCES:
        draw = Draw(3)
        for _ in range(8):
            options, shape = options_of(draw), draw.shape()
            x, g = draw.values(shape, dtype), draw.values(shape, dtype)
            leaf = x.double().requires_grad_()
            y = theirs(leaf, **options)
            what = f"{name} {options} {dtype} {shape}"
            check(forward(ours(x), **options), y, dtype, what)
            if takes_result:
                # The gradient is computed from the rounded result.
                z = y.detach().to(dtype)
                slope = {"sigmoid": lambda z: z * (1 - z), "tanh": lambda z: 1 - z * z, "relu": lambda z: z > 0}[name]
                check(backward(ours(g), ours(z)), g.double() * slope(z.double()), dtype, what)
                continue
            (expected,) = torch.autograd.grad(y, leaf, g.double())
            check(backward(ours(g), ours(x), **options), expected, dtype, what)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_at_special_values(name):
    theirs, forward, backward, takes_result, options_of = ACTIVATIONS[name]
    x = torch.tensor([0.0, -0.0, 1, -1, 2, -2, 0.5, 3, -3, 30, -30, 200, -200, float("nan")])
    options = options_of(Draw(1))
    leaf = x.clone().requires_grad_()
    y = theirs(leaf, **options)
    check(forward(ours(x), **options), y, torch.float32, name)
    g = torch.full_like(x, 2)
    (expected,) = torch.autograd.grad(y, leaf, g)
    result = torch.from_dlpack(backward(ours(g), ours(y if takes_result else x), **options))
    # The gradient of a NaN is NaN here. PyTorch's is sometimes a number.
    torch.testing.assert_close(result[:-1], expected[:-1], rtol=1e-5, atol=1e-6)


def logits_options(draw, shape, dtype):
    options = {"reduction": draw.choose(*REDUCTIONS)}
    for name in ("weight", "pos_weight"):
        if draw.choose(True, False):
            options[name] = draw.values(shape[-1:] if draw.choose(True, False) else shape, dtype, 0.1, 2)
    return options


def bce_options(draw, shape, dtype):
    return {k: v for k, v in logits_options(draw, shape, dtype).items() if k != "pos_weight"}


# Each loss has the ranges of x and of the target, and the options.
LOSSES = {
    "mse_loss": ((-4, 4), (-4, 4), lambda d, s, t: {"reduction": d.choose(*REDUCTIONS)}),
    "l1_loss": ((-4, 4), (-4, 4), lambda d, s, t: {"reduction": d.choose(*REDUCTIONS)}),
    "smooth_l1_loss": (
        (-4, 4),
        (-4, 4),
        lambda d, s, t: {"reduction": d.choose(*REDUCTIONS), "beta": d.choose(0, 0.5, 1, 3)},
    ),
    "huber_loss": (
        (-4, 4),
        (-4, 4),
        lambda d, s, t: {"reduction": d.choose(*REDUCTIONS), "delta": d.choose(0.5, 1, 3)},
    ),
    "binary_cross_entropy": ((0.05, 0.95), (0, 1), bce_options),
    "binary_cross_entropy_with_logits": ((-8, 8), (0, 1), logits_options),
    "kl_div": (
        (-4, 0),
        (0, 1),
        lambda d, s, t: {"reduction": d.choose(*REDUCTIONS), "log_target": d.choose(True, False)},
    ),
}


def wide(options):
    return {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in options.items()}


def narrow(options):
    return {k: ours(v) if isinstance(v, torch.Tensor) else v for k, v in options.items()}


@pytest.mark.parametrize("name", LOSSES)
def test_losses_agree_with_pytorch(name):
    of_x, of_target, options_of = LOSSES[name]
    for dtype in TOLERANCES:
        draw = Draw(4)
        for _ in range(10):
            shape = draw.shape()
            options = options_of(draw, shape, dtype)
            x, target = draw.values(shape, dtype, *of_x), draw.values(shape, dtype, *of_target)
            leaf = x.double().requires_grad_()
            y = getattr(F, name)(leaf, target.double(), **wide(options))
            g = draw.values(y.shape, dtype)
            (expected,) = torch.autograd.grad(y, leaf, g.double())
            what = f"{name} {options} {dtype} {shape}"
            check(getattr(tensord, name)(ours(x), ours(target), **narrow(options)), y, dtype, what)
            backward = getattr(tensord, f"{name}_backward")
            check(backward(ours(g), ours(x), ours(target), **narrow(options)), expected, dtype, what)


def test_nll_loss_agrees_with_pytorch():
    for dtype in TOLERANCES:
        draw = Draw(5)
        for _ in range(30):
            shape = draw.shape(1, 4)
            classes = shape[min(1, len(shape) - 1)]
            rows = shape[:1] + shape[2:] if len(shape) > 1 else []
            x = draw.values(shape, dtype, -6, 0)
            target = torch.randint(0, classes, rows, generator=draw.generator)
            options = {"reduction": draw.choose(*REDUCTIONS), "ignore_index": draw.choose(-100, 0, 1)}
            if draw.choose(True, False):
                options["weight"] = draw.values([classes], dtype, 0.1, 2)
            leaf = x.double().requires_grad_()
            y = F.nll_loss(leaf, target, **wide(options))
            g = draw.values(y.shape, dtype)
            (expected,) = torch.autograd.grad(y, leaf, g.double())
            what = f"nll_loss {options} {dtype} {shape}"
            check(tensord.nll_loss(ours(x), ours(target), **narrow(options)), y, dtype, what)
            if y.isnan().any():
                expected = expected.nan_to_num()  # all targets are ignored: PyTorch has NaN or 0
            check(tensord.nll_loss_backward(ours(g), ours(x), ours(target), **narrow(options)), expected, dtype, what)


def test_embedding_gradients_agree_with_pytorch():
    for dtype in TOLERANCES:
        draw = Draw(6)
        for _ in range(12):
            rows, width = draw.random.randint(2, 7), draw.random.randint(1, 9)
            indices = torch.randint(0, rows, draw.shape(0, 3), generator=draw.generator)
            weight = draw.values([rows, width], dtype).double().requires_grad_()
            options = {"padding_idx": draw.choose(None, 0, -1), "scale_grad_by_freq": draw.choose(True, False)}
            g = draw.values([*indices.shape, width], dtype)
            (expected,) = torch.autograd.grad(F.embedding(indices, weight, **options), weight, g.double())
            result = tensord.embedding_backward(ours(g), ours(indices), rows, **options)
            check(result, expected, dtype, f"embedding {options} {dtype}")


def test_dropout():
    x = tensord.randn(50)
    for p in (0.0, 0.4, 1.0):
        y, mask = tensord.dropout_with_mask(x, p, generator=3)
        kept = torch.from_dlpack(mask.to("int32")).bool()
        scale = 1 / (1 - p) if p < 1 else 0
        for result in (y, tensord.dropout_backward(x, mask, p), tensord.dropout(x, p, generator=3)):
            check(result, torch.where(kept, torch.from_dlpack(x) * scale, 0), torch.float32, f"dropout {p}")


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("momentum", [0, 0.9])
def test_sgd_steps_agree_with_pytorch(momentum, maximize, nesterov):
    if nesterov and not momentum:
        pytest.skip("nesterov needs a momentum")
    options = {"momentum": momentum, "weight_decay": 0.1, "maximize": maximize, "nesterov": nesterov}
    if momentum and not nesterov:
        options["dampening"] = 0.5
    parameter = torch.nn.Parameter(torch.randn(3, 4, dtype=torch.float64))
    optimizer = torch.optim.SGD([parameter], lr=0.1, **options)
    state = (ours(parameter.clone()),)
    for step in range(3):
        parameter.grad = torch.randn(3, 4, dtype=torch.float64)
        p, *buffer = state
        state = tensord.sgd_step(p, ours(parameter.grad), *buffer, lr=0.1, **options)
        optimizer.step()
        check(state[0], parameter.detach(), torch.float64, f"step {step}")


def test_cross_entropy_with_weights_smoothing_and_ignored_targets():
    for dtype in (torch.float32, torch.float64):
        draw = Draw(7)
        for _ in range(30):
            shape = draw.shape(2, 4)
            classes = shape[1]
            x = draw.values(shape, dtype)
            target = torch.randint(0, classes, shape[:1] + shape[2:], generator=draw.generator)
            options = {
                "reduction": draw.choose(*REDUCTIONS),
                "ignore_index": draw.choose(-100, 0, 1),
                "label_smoothing": draw.choose(0.0, 0.25, 1.0),
                "weight": draw.choose(None, draw.values([classes], dtype, 0.1, 2)),
            }
            expected = F.cross_entropy(x.double(), target, **wide(options))
            result = tensord.cross_entropy(ours(x), ours(target), **narrow(options))
            check(result, expected, dtype, f"{options} {dtype} {shape}")


def test_losses_of_no_elements_and_of_ignored_targets():
    none, classes = torch.zeros(0, 3), torch.zeros(0, dtype=torch.int64)
    ignored = torch.full((2,), -100)
    for reduction in REDUCTIONS:
        for name in ("mse_loss", "l1_loss", "smooth_l1_loss", "huber_loss", "kl_div", "binary_cross_entropy"):
            expected = getattr(F, name)(none, none, reduction=reduction)
            check(getattr(tensord, name)(ours(none), ours(none), reduction=reduction), expected, torch.float32, name)
        for name in ("nll_loss", "cross_entropy"):
            for x, target in ((none, classes), (torch.randn(2, 3), ignored)):
                expected = getattr(F, name)(x, target, reduction=reduction)
                check(getattr(tensord, name)(ours(x), ours(target), reduction=reduction), expected, torch.float32, name)


def test_norms_and_attention_of_empty_batches():
    x, ones = torch.zeros(0, 4), torch.ones(4)
    for result, expected in (
        (tensord.layer_norm(ours(x), ours(ones), ours(ones)), F.layer_norm(x, [4], ones, ones)),
        (tensord.rms_norm(ours(x), ours(ones)), F.rms_norm(x, [4], ones)),
        (tensord.batch_norm(ours(x), ours(ones), ours(ones)), F.batch_norm(x, ones, ones)),
    ):
        check(result, expected, torch.float32, "norm")
    for q, k in (((0, 4), (3, 4)), ((3, 4), (0, 4))):
        q, k = torch.ones(q), torch.ones(k)
        result = tensord.scaled_dot_product_attention(ours(q), ours(k), ours(k))
        check(result, F.scaled_dot_product_attention(q, k, k), torch.float32, "attention")


def test_attention_of_a_row_without_keys_is_zero():
    q, mask = torch.randn(3, 4), torch.tensor([[True, False], [False, False], [True, True]])
    k = torch.randn(2, 4)
    result = tensord.scaled_dot_product_attention(ours(q), ours(k), ours(k), tensord.asarray(mask.numpy()))
    check(result, F.scaled_dot_product_attention(q, k, k, mask), torch.float32, "attention")
