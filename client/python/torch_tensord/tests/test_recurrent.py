"""Recurrent networks: outputs and gradients are those of the CPU."""

import copy
import itertools

import pytest
import torch
from torch import nn
from torch.nn.utils import rnn as packing
from torch.utils.checkpoint import checkpoint

DEVICE = "tensord"
KINDS = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **options: nn.RNN(*sizes, nonlinearity="relu", **options),
}


def results(network, x, state=None, use=lambda output, state: [output, *state]):
    """Returns the output, the last states, and the gradients of the input, the states and the parameters."""
    x = x.requires_grad_()
    given = tuple(part.requires_grad_() for part in state or ())
    output, last = network(x, *([given if isinstance(network, nn.LSTM) else given[0]] if given else []))
    last = last if isinstance(last, tuple) else (last,)
    generator = torch.Generator().manual_seed(1)
    loss = sum((each * torch.randn(each.shape, generator=generator).to(each)).sum() for each in use(output, last))
    operands = [x, *given, *network.parameters()]
    gradients = torch.autograd.grad(loss, operands, allow_unused=True)
    return [output, *last, *gradients]


def assert_as_on_the_cpu(network, x, state=None, **options):
    expected = results(network, x.clone(), state and [each.clone() for each in state], **options)
    here = copy.deepcopy(network).to(DEVICE)
    got = results(here, x.to(DEVICE), state and [each.to(DEVICE) for each in state], **options)
    for a, b in zip(got, expected):
        assert (a is None) == (b is None)
        if a is not None:
            torch.testing.assert_close(a.cpu(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
def test_layers_and_directions(kind, bidirectional, batch_first):
    for layers, bias, given in itertools.product((1, 2), (True, False), (True, False)):
        options = {"num_layers": layers, "bias": bias, "bidirectional": bidirectional, "batch_first": batch_first}
        network = KINDS[kind](3, 4, **options)
        x = torch.randn(2, 5, 3) if batch_first else torch.randn(5, 2, 3)
        shape = (layers * (1 + bidirectional), 2, 4)
        state = [torch.randn(shape) for _ in range(2 if kind == "lstm" else 1)] if given else None
        assert_as_on_the_cpu(network, x, state)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_of_the_results(kind):
    network, x = KINDS[kind](3, 4, num_layers=2), torch.randn(5, 2, 3)
    assert_as_on_the_cpu(network, x, use=lambda output, state: [output])
    assert_as_on_the_cpu(network, x, use=lambda output, state: [output[-1]])
    assert_as_on_the_cpu(network, x, use=lambda output, state: [state[0]])
    assert_as_on_the_cpu(network, x, use=lambda output, state: [state[-1]])


@pytest.mark.parametrize("kind", KINDS)
def test_shapes(kind):
    for shape in ((5, 3), (1, 2, 3), (5, 0, 3)):  # without a batch, one step, an empty batch
        network = KINDS[kind](3, 4)
        assert_as_on_the_cpu(network, torch.randn(shape))
    assert_as_on_the_cpu(KINDS[kind](3, 4).double(), torch.randn(5, 2, 3, dtype=torch.double))
    with pytest.raises(RuntimeError, match="sequence length"):
        KINDS[kind](3, 4).to(DEVICE)(torch.zeros(0, 2, 3, device=DEVICE))


@pytest.mark.parametrize("kind", KINDS)
def test_networks_that_are_composed_of_cells(kind):
    network = KINDS[kind](3, 4)
    here = copy.deepcopy(network).to(DEVICE)
    x, lengths = torch.randn(5, 3, 3), [5, 3, 1]
    packed = packing.pack_padded_sequence(x, lengths), packing.pack_padded_sequence(x.to(DEVICE), lengths)
    expected, got = (packing.pad_packed_sequence(module(each)[0])[0] for module, each in zip((network, here), packed))
    torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-5)
    if kind == "lstm":
        assert_as_on_the_cpu(nn.LSTM(3, 4, proj_size=2), torch.randn(5, 2, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_gradients(kind):
    def penalty(network, x):
        x = x.requires_grad_()
        gradient = torch.autograd.grad(network(x)[0].pow(2).sum(), x, create_graph=True)[0]
        return torch.autograd.grad(gradient.pow(2).sum(), [x, *network.parameters()], allow_unused=True)

    for bidirectional in (False, True):
        network, x = KINDS[kind](3, 4, bidirectional=bidirectional), torch.randn(5, 2, 3)
        for got, expected in zip(penalty(copy.deepcopy(network).to(DEVICE), x.to(DEVICE)), penalty(network, x)):
            torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_of_gradients_if_operands_depend_on_each_other(kind):
    def penalty(network, x, device):
        x = x.to(device).requires_grad_()
        network = copy.deepcopy(network).to(device)
        network.bias_hh_l0 = network.bias_ih_l0  # tied
        state = x.mean((0, 2), keepdim=True).expand(1, 2, 3) @ torch.ones(3, 4, device=device)
        output, state = network(x, (state, 2 * state) if kind == "lstm" else state)
        output, _ = network(output[:, :, :3], state)  # goes on from the first call
        parameters = dict(network.named_parameters()).values()
        gradient = torch.autograd.grad(output.pow(2).sum(), x, create_graph=True)[0]
        return torch.autograd.grad(gradient.pow(2).sum(), [x, *parameters], allow_unused=True)

    network, x = KINDS[kind](3, 4), torch.randn(5, 2, 3)
    for got, expected in zip(penalty(network, x, DEVICE), penalty(network, x, "cpu")):
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_transforms(kind):
    network, x = KINDS[kind](3, 4), torch.randn(5, 2, 3)
    here, x_here = copy.deepcopy(network).to(DEVICE), x.to(DEVICE)

    def loss(module):
        return lambda x: torch.func.functional_call(module, dict(module.named_parameters()), (x,))[0].pow(2).sum()

    expected = torch.func.grad(loss(network))(x)
    torch.testing.assert_close(torch.func.grad(loss(here))(x_here).cpu(), expected, rtol=1e-4, atol=1e-5)
    if kind in ("tanh", "relu"):  # PyTorch's cells have no forward mode
        expected = torch.func.jvp(loss(network), (x,), (torch.ones_like(x),))[1]
        got = torch.func.jvp(loss(here), (x_here,), (torch.ones_like(x_here),))[1]
        torch.testing.assert_close(got.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_modes(kind):
    network, x = KINDS[kind](3, 4), torch.randn(5, 2, 3)
    here = copy.deepcopy(network).to(DEVICE)
    expected = network(x)[0].detach()
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(here(x.to(DEVICE))[0].cpu(), expected, rtol=1e-4, atol=1e-5)
    with torch.autocast(DEVICE, torch.bfloat16):
        output = here(x.to(DEVICE))[0]
    assert output.dtype == torch.bfloat16
    torch.testing.assert_close(output.float().cpu(), expected, rtol=0.05, atol=0.05)
    output.float().sum().backward()
    assert all(p.grad.dtype == torch.float32 for p in here.parameters())
    half = copy.deepcopy(here).half()
    torch.testing.assert_close(half(x.to(DEVICE).half())[0].float().cpu(), expected, rtol=0.01, atol=0.01)
    x_here = x.to(DEVICE).requires_grad_()
    checkpoint(lambda x: here(x)[0], x_here, use_reentrant=False).sum().backward()
    x_cpu = x.clone().requires_grad_()
    network(x_cpu)[0].sum().backward()
    torch.testing.assert_close(x_here.grad.cpu(), x_cpu.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_output_may_change_in_place(kind):
    network, x = KINDS[kind](3, 4), torch.randn(5, 2, 3)
    output = network(x)[0]
    torch.cat((output[:1], output[1:] * 2)).sum().backward()
    here = copy.deepcopy(network).to(DEVICE)
    here.zero_grad()
    output = here(x.to(DEVICE))[0]
    output[1:] *= 2
    output.mul_(1)
    output.sum().backward()
    for got, expected in zip(here.parameters(), network.parameters()):
        torch.testing.assert_close(got.grad.cpu(), expected.grad, rtol=1e-4, atol=1e-5)


def test_dropout_acts_between_layers_in_training():
    network = nn.LSTM(3, 8, num_layers=2, dropout=0.5).to(DEVICE)
    x = torch.randn(5, 2, 3).to(DEVICE)
    first, second = network(x)[0], network(x)[0]
    assert not torch.equal(first, second)
    network.eval()
    assert torch.equal(network(x)[0], network(x)[0])
