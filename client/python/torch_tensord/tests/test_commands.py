"""Counts the commands that PyTorch's ops send. A composition sends one, like any other op."""

import gc

import pytest
import torch
from torch.nn import functional as F

DEVICE = "tensord"
aten = torch.ops.aten

# The ops that send one command, by their operands: x, or the gradient and x.
VALUES = {
    "gelu": F.gelu,
    "softplus": F.softplus,
    "threshold": lambda x: F.threshold(x, 0.5, 20.0),
    "leaky_relu": F.leaky_relu,
    "elu": F.elu,
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 2.0),
    "hardsigmoid": F.hardsigmoid,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "logsigmoid": F.logsigmoid,
}
GRADIENTS = {
    "sigmoid": aten.sigmoid_backward,
    "tanh": aten.tanh_backward,
    "silu": aten.silu_backward,
    "gelu": aten.gelu_backward,
    "softplus": lambda g, x: aten.softplus_backward(g, x, 1, 20),
    "threshold": lambda g, x: aten.threshold_backward(g, x, 0),
    "leaky_relu": lambda g, x: aten.leaky_relu_backward(g, x, 0.1, False),
    "elu": lambda g, x: aten.elu_backward(g, 1, 1, 1, False, x),
    "hardtanh": lambda g, x: aten.hardtanh_backward(g, x, -1, 1),
    "hardsigmoid": aten.hardsigmoid_backward,
    "hardswish": aten.hardswish_backward,
    "mish": aten.mish_backward,
}


def commands_of(connection, function, *operands):
    """Returns the number of commands that a call sends, without the drops of earlier results."""
    sent = []
    for _ in range(3):
        gc.collect()
        torch.tensord.synchronize()
        before = connection.stats["commands_sent"]
        result = function(*operands)
        torch.tensord.synchronize()  # one command
        sent.append(connection.stats["commands_sent"] - before - 1)
        del result
    return min(sent)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", VALUES)
def test_activation_is_one_command(connection, name, dtype):
    x = torch.randn(4, 8).to(dtype).to(DEVICE)
    assert commands_of(connection, VALUES[name], x) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradient_is_one_command(connection, name, dtype):
    g, x = (torch.randn(4, 8).to(dtype).to(DEVICE) for _ in range(2))
    assert commands_of(connection, GRADIENTS[name], g, x) == 1


LOSSES = {
    "mse_loss": F.mse_loss,
    "smooth_l1_loss": F.smooth_l1_loss,
    "huber_loss": F.huber_loss,
    "binary_cross_entropy_with_logits": F.binary_cross_entropy_with_logits,
}


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", LOSSES)
def test_loss_is_one_command(connection, name, reduction):
    x, target = (torch.rand(4, 8).to(DEVICE) for _ in range(2))
    assert commands_of(connection, lambda: LOSSES[name](x, target, reduction=reduction)) == 1


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss", "huber_loss"])  # PyTorch composes the other gradient
def test_gradient_of_a_loss_is_one_command(connection, name, reduction):
    x, target = torch.rand(4, 8).to(DEVICE).requires_grad_(), torch.rand(4, 8).to(DEVICE)
    loss = LOSSES[name](x, target, reduction=reduction)
    g = torch.ones_like(loss)
    assert commands_of(connection, lambda: torch.autograd.grad(loss, x, g, retain_graph=True)) == 1


NORMS = {
    "layer_norm": lambda x, w, b: F.layer_norm(x, (8,), w, b),
    "rms_norm": lambda x, w, b: F.rms_norm(x, (8,), w),
    "group_norm": lambda x, w, b: F.group_norm(x, 2, w, b),
}


@pytest.mark.parametrize("name", NORMS)
def test_norm_and_its_gradients_are_one_command_each(connection, name):
    x, w, b = (torch.rand(shape).to(DEVICE).requires_grad_() for shape in ((4, 8), (8,), (8,)))
    y, g = NORMS[name](x, w, b), torch.rand(4, 8).to(DEVICE)
    assert commands_of(connection, NORMS[name], x, w, b) == 1
    operands = [x, w] if name == "rms_norm" else [x, w, b]
    assert commands_of(connection, lambda: torch.autograd.grad(y, operands, g, retain_graph=True)) == 1


@pytest.mark.parametrize("name, gates", [("lstm", 4), ("gru", 3)])
def test_cell_and_its_gradients_are_one_command_each(connection, name, gates):
    shapes = (4, gates * 8), (4, gates * 8), (4, 8), (gates * 8,), (gates * 8,)
    operands = [torch.rand(shape).to(DEVICE).requires_grad_() for shape in shapes]
    cell = getattr(aten, f"_thnn_fused_{name}_cell")
    new = cell(*operands)[0]
    assert commands_of(connection, cell, *operands) == 1
    g = torch.rand(4, 8).to(DEVICE)
    assert commands_of(connection, lambda: torch.autograd.grad(new, operands, g, retain_graph=True)) == 1


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_layer_and_its_gradients_are_one_command_each(connection, kind):
    network = kind(3, 4).to(DEVICE)
    x, g, state = (torch.randn(shape).to(DEVICE) for shape in ((5, 2, 3), (5, 2, 4), (1, 2, 4)))
    given = (state, state.clone()) if kind is torch.nn.LSTM else state
    output = network(x, given)[0]
    assert commands_of(connection, network, x, given) == 1
    parameters = list(network.parameters())
    assert commands_of(connection, lambda: torch.autograd.grad(output, parameters, g, retain_graph=True)) == 1


def test_linspace_is_one_command(connection):
    assert commands_of(connection, lambda: torch.linspace(0, 1, 50, device=DEVICE)) == 1
    assert commands_of(connection, lambda: torch.linspace(-3, 9, 7, dtype=torch.int32, device=DEVICE)) == 1


def test_a_step_of_adagrad_is_one_op(connection):
    parameter, gradient, total = (torch.ones(8).to(DEVICE) for _ in range(3))
    count = torch.ones(()).to(DEVICE)

    def step():
        torch._fused_adagrad_(
            [parameter], [gradient], [total], [count], lr=0.1, lr_decay=0.5, weight_decay=0.1, eps=1e-10, maximize=False
        )

    assert commands_of(connection, step) <= 3  # the op, and the drops of the old values


def test_unscaling_a_gradient_is_one_op(connection):
    gradient, found, inverse = torch.rand(8).to(DEVICE), torch.zeros(()).to(DEVICE), torch.ones(()).to(DEVICE)

    def unscale():
        torch._amp_foreach_non_finite_check_and_unscale_([gradient], found, inverse)

    assert commands_of(connection, unscale) <= 3  # the op, and the drops of the old values


def test_nll_loss_and_its_gradient_are_one_command_each(connection):
    x = torch.randn(4, 8).to(DEVICE).requires_grad_()
    y = torch.randint(8, (4,)).to(DEVICE)
    loss, g = F.nll_loss(x, y), torch.ones((), device=DEVICE)
    assert commands_of(connection, F.nll_loss, x, y) == 1
    assert commands_of(connection, lambda: torch.autograd.grad(loss, x, g, retain_graph=True)) == 1


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy_and_its_gradient_are_one_command_each(connection, reduction):
    x = torch.randn(4, 8).to(DEVICE).requires_grad_()
    y = torch.randint(8, (4,)).to(DEVICE)
    g = torch.ones(4 if reduction == "none" else (), device=DEVICE)
    loss = F.cross_entropy(x, y, reduction=reduction)
    assert commands_of(connection, F.cross_entropy, x, y, None, None, -100, None, reduction) == 1
    assert commands_of(connection, lambda: torch.autograd.grad(loss, x, g, retain_graph=True)) == 1
