"""torch.func: derivatives of derivatives, forward mode, and vectors of models."""

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, stack_module_state, vmap
from torch.nn import functional as F

DEVICE = "tensord"
FUNCTIONS = {
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "elu": F.elu,
    "softplus": F.softplus,
    "hardtanh": F.hardtanh,
    "hardswish": F.hardswish,
    "mish": F.mish,
    "leaky_relu": F.leaky_relu,
    "logsigmoid": F.logsigmoid,
    "prelu": lambda x: F.prelu(x, x[:1]),
    "softmax": lambda x: torch.softmax(x, 0)[0],
    "log_softmax": lambda x: torch.log_softmax(x, 0)[0],
    "quotient": lambda x: x / (x * x + 1),
    "power": lambda x: (x * x + 1) ** 1.5,
    "norm": lambda x: x.norm(),
    "mse": lambda x: F.mse_loss(x.sin(), x),
    "product": lambda x: torch.outer(x, x).sin(),
}


@pytest.mark.parametrize("transform", [hessian, jacfwd, jacrev], ids=lambda t: getattr(t, "__name__", "hessian"))
@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_agree_with_the_cpu(name, transform):
    torch.manual_seed(0)
    x = torch.randn(5)
    derivative = transform(lambda v: FUNCTIONS[name](v).sum())
    torch.testing.assert_close(derivative(x.to(DEVICE)).cpu(), derivative(x), rtol=1e-4, atol=1e-5)


def test_jvp_agrees_with_the_cpu():
    torch.manual_seed(0)
    w, x, v = torch.randn(3), torch.randn(5, 3), torch.randn(3)

    def tangent(device):
        return jvp(lambda w: (x.to(device) @ w).sin(), (w.to(device),), (v.to(device),))[1]

    torch.testing.assert_close(tangent(DEVICE).cpu(), tangent("cpu"))


def test_gradients_of_each_sample():
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)), torch.randn(6, 3)

    def gradients(device):
        moved = copy.deepcopy(model).to(device)
        parameters = {name: p.detach() for name, p in moved.named_parameters()}
        loss = lambda p, row: functional_call(moved, p, (row[None],)).square().sum()
        return vmap(grad(loss), (None, 0))(parameters, x.to(device))

    expected = gradients("cpu")
    for name, gradient in gradients(DEVICE).items():
        torch.testing.assert_close(gradient.cpu(), expected[name])


def test_models_in_one_call():
    torch.manual_seed(0)
    models, x = [nn.Linear(3, 2) for _ in range(4)], torch.randn(5, 3)
    parameters, buffers = stack_module_state([copy.deepcopy(m).to(DEVICE) for m in models])
    base = copy.deepcopy(models[0]).to("meta")
    y = vmap(lambda p, b, x: functional_call(base, (p, b), (x,)), (0, 0, None))(parameters, buffers, x.to(DEVICE))
    torch.testing.assert_close(y.cpu(), torch.stack([m(x) for m in models]))
