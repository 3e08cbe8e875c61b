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


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_cross_entropy_and_its_gradient_are_one_command_each(connection, reduction):
    x = torch.randn(4, 8).to(DEVICE).requires_grad_()
    y = torch.randint(8, (4,)).to(DEVICE)
    g = torch.ones(4 if reduction == "none" else (), device=DEVICE)
    loss = F.cross_entropy(x, y, reduction=reduction)
    assert commands_of(connection, F.cross_entropy, x, y, None, None, -100, None, reduction) == 1
    assert commands_of(connection, lambda: torch.autograd.grad(loss, x, g, retain_graph=True)) == 1
