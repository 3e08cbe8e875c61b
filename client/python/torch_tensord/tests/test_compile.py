"""torch.compile(backend="tensord"): the same numbers as without it, and one message for each graph."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "tensord:0"


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(function, **options):
    return torch.compile(function, backend="tensord", **options)


def count_aten_ops(function):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        function()
    return sum(event.name.startswith("aten::") for event in profile.events())


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2, self.head = nn.Conv2d(8, 8, 3, stride=2), nn.Linear(8 * 9, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.conv1(x))), 2)
        return self.head(F.gelu(self.conv2(F.pad(x, (0, 1, 0, 1)))).flatten(1)[:, : 8 * 9])


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(50, 32)
        self.layer = nn.TransformerEncoderLayer(32, 4, 64, dropout=0.1, batch_first=True)
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.layer(self.embedding(x)).mean(1))


MODELS = {
    "mlp": (lambda: nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 10)), lambda: torch.randn(6, 12)),
    "cnn": (Cnn, lambda: torch.randn(6, 3, 14, 14)),
    "attention": (Attention, lambda: torch.randint(50, (6, 7))),
}


def train(name, compile_model, steps=4):
    make_model, make_x = MODELS[name]
    torch.manual_seed(3)
    model = make_model().to(DEVICE)
    x, y = make_x().to(DEVICE), torch.randint(10, (6,)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    function = compiled(model) if compile_model else model
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(function(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        return losses, function(x).cpu(), {k: v.cpu() for k, v in model.state_dict().items()}


@pytest.mark.parametrize("name", MODELS)
def test_training_has_the_numbers_of_eager_mode(name):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="torch.compile: a graph.*")
        losses, output, state = train(name, True)
    wanted_losses, wanted_output, wanted_state = train(name, False)
    assert losses == pytest.approx(wanted_losses, rel=1e-4)
    torch.testing.assert_close(output, wanted_output, rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(state, wanted_state, rtol=1e-3, atol=1e-4)


def test_call_after_the_first_runs_no_op():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.Sigmoid()).to(DEVICE)
    function, x = compiled(model), torch.randn(4, 8, device=DEVICE)
    with torch.no_grad():
        function(x)
        assert count_aten_ops(lambda: model(x)) > 4
        assert count_aten_ops(lambda: function(x)) <= 1


def test_dropout_differs_in_each_call_and_repeats_by_the_seed():
    model, x = nn.Dropout(0.5).to(DEVICE), torch.ones(100, device=DEVICE)
    function = compiled(lambda x: model(x) + torch.rand_like(x))
    torch.manual_seed(1)
    first, second = function(x).cpu(), function(x).cpu()
    assert not torch.equal(first, second)
    torch.manual_seed(1)
    assert torch.equal(function(x).cpu(), first)


def test_views_and_writes_to_inputs():
    def function(x, y):
        x.mul_(2)
        x[1:].add_(y[:-1])
        return x.t(), y[0], x + 1

    x, y = torch.arange(12.0).view(3, 4), torch.ones(3, 4)
    ours = x.to(DEVICE), y.to(DEVICE)
    run = compiled(function)
    for _ in range(3):
        wanted = function(x, y)
        outputs = run(*ours)
        for ours_out, out in zip(outputs, wanted):
            assert torch.equal(ours_out.cpu(), out)
        assert torch.equal(ours[0].cpu(), x)
    outputs[0].add_(1)  # a view of the input
    assert torch.equal(ours[0].cpu(), x + 1)


def test_other_shapes_are_recorded_anew():
    run = compiled(lambda x: (x * 2).sum(0) + x.shape[0])
    for n in (2, 3, 5, 3, 7):
        assert torch.equal(run(torch.ones(n, 4, device=DEVICE)).cpu(), torch.full((4,), 3.0 * n))


def test_inputs_that_share_a_storage():
    run = compiled(lambda a, b: a + b)
    base = torch.arange(10.0, device=DEVICE)
    for start in (1, 2):
        assert torch.equal(run(base[start : start + 3], base[5:8]).cpu(), torch.arange(3.0) * 2 + 5 + start)
    other = torch.zeros(3, device=DEVICE)
    assert torch.equal(run(base[:3], other).cpu(), torch.arange(3.0))


def test_graph_with_an_input_of_the_cpu_runs_op_by_op():
    run = compiled(lambda x, y: (x + 1) * y.to(DEVICE))
    x, y = torch.ones(3, device=DEVICE), torch.arange(3.0)
    with pytest.warns(UserWarning, match="runs op by op: its inputs are on cpu, tensord:0"):
        assert torch.equal(run(x, y).cpu(), y * 2)
    assert torch.equal(run(x, y).cpu(), y * 2)


@pytest.mark.parametrize("function", [lambda x: x + 1, lambda x: x.sum()], ids=["elementwise", "reduction"])
def test_inductor_refuses_the_device(function):
    run = torch.compile(function)
    with pytest.raises(Exception, match="backend=.tensord."):
        run(torch.ones(3, device=DEVICE))
