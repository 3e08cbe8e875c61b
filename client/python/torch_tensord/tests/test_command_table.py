"""The number of commands that each op in PyTorch's database of samples sends, compared with commands.txt.

Each line has the op, the commands of its second call, and those of its gradient or "-". If a number exceeds 7, the line
ends with a reason for it: "call: tensord runs several ops" (our kernel sends them), or "gradient: PyTorch runs several
ops" (PyTorch has no single op). "; " separates two reasons. An op that the server runs is one command, and so is the
drop of an intermediate result: four ops with three drops are 7 commands. The numbers must match exactly, so a change that saves commands must also change the
line. TENSORD_WRITE_COMMANDS=FILE writes the list of the run to FILE, with the reasons of commands.txt.
"""

import atexit
import gc
import os
import pathlib
import warnings

import pytest
import torch
from test_op_database import DTYPES, call, flat, infos, listed, move, samples_of
from torch import nn
from torch.nn import functional as F

pytestmark = [
    pytest.mark.skipif(torch.__version__ < (2, 15), reason="commands.txt is of PyTorch 2.15"),
    pytest.mark.filterwarnings("ignore"),
]
TABLE = pathlib.Path(__file__).parent / "commands.txt"
MAX_WITHOUT_REASON = 7
REASONS = {f"{what}: {caller} runs several ops" for what in ("call", "gradient") for caller in ("tensord", "PyTorch")}
_written = {}


def read_table():
    """Returns {op: ("call gradient", reason)}."""
    rows = {}
    for line in TABLE.read_text().splitlines():
        name, of_call, of_gradient, *reason = line.split(" ", 3)
        rows[name] = f"{of_call} {of_gradient}", "".join(reason)
    return rows


def sent_by(connection, function):
    """Returns the result, and the number of commands that a second call sends."""
    result = function()
    del result
    torch.tensord.synchronize()
    before = connection.stats["commands_sent"]
    result = function()
    return result, connection.stats["commands_sent"] - before


def count_commands(connection, op):
    """Returns (commands of a call, commands of its gradient) for the first sample that runs.

    If there is no gradient, the second number is None. If no sample runs, returns (None, None).
    """
    dtype = next((dtype for dtype in DTYPES if dtype in op.dtypes), None)
    for arguments in samples_of(op, dtype) if dtype else []:
        here = []
        moved = move(arguments, here)
        torch.manual_seed(0)
        try:
            result, sent = sent_by(connection, lambda: call(op, moved))
        except Exception:
            continue  # there is no kernel, or the op refuses the sample
        outputs = [x for x in flat(result) if x.requires_grad]
        inputs = [x for _, x in here if x.requires_grad]
        if not outputs or not inputs:
            return sent, None
        ones = [torch.randn_like(x) for x in outputs]

        def gradient():
            return torch.autograd.grad(outputs, inputs, ones, allow_unused=True, retain_graph=True)

        return sent, sent_by(connection, gradient)[1]
    return None, None


def write_table():
    reasons = read_table() if TABLE.exists() else {}
    lines = [f"{name} {counts} {reasons.get(name, ('', ''))[1]}".rstrip() for name, counts in sorted(_written.items())]
    pathlib.Path(os.environ["TENSORD_WRITE_COMMANDS"]).write_text("\n".join(lines) + "\n")


if os.environ.get("TENSORD_WRITE_COMMANDS"):
    atexit.register(write_table)


def ops():
    return [op for op in infos() if "call float32" not in listed()[op.formatted_name]]


@pytest.fixture(autouse=True, scope="module")
def no_garbage():
    """Garbage that is collected during a count would add commands."""
    gc.disable()
    yield
    gc.enable()


def test_all_ops_of_the_table_exist():
    assert not read_table().keys() - {op.formatted_name for op in ops()}


@pytest.mark.parametrize("op", ops(), ids=lambda op: op.formatted_name)
def test_op_sends_as_many_commands_as_the_table_says(connection, op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_call, of_gradient = count_commands(connection, op)
    name = op.formatted_name
    if of_call is None:
        assert name not in read_table(), "no sample of the op runs"
        pytest.skip("no sample runs on the device")
    counts = f"{of_call} {'-' if of_gradient is None else of_gradient}"
    _written[name] = counts
    if os.environ.get("TENSORD_WRITE_COMMANDS"):
        return
    wanted, reason = read_table().get(name, ("nothing", ""))
    assert counts == wanted, f"commands.txt says {wanted}"
    reasons = [
        f"{what}:"
        for what, number in (("call", of_call), ("gradient", of_gradient or 0))
        if number > MAX_WITHOUT_REASON
    ]
    given = reason.split("; ") if reason else []
    assert set(given) <= REASONS and [each.split(" ")[0] for each in given] == reasons, f"the reasons of {reasons}"


class Sequence(nn.Module):
    """A recurrent network whose last output is classified."""

    def __init__(self, kind):
        super().__init__()
        self.network, self.head = kind(6, 8), nn.Linear(8, 3)

    def forward(self, x):
        return self.head(self.network(x.transpose(0, 1))[0][-1])


def cnn():
    features = nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(4, 3))


def transformer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True)
    return nn.Sequential(nn.Embedding(10, 8), layer, nn.Flatten(), nn.Linear(32, 3))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(24, 8), nn.ReLU(), nn.Linear(8, 3))


# A model, its optimizer, and the commands of a training step. A drop of a tensor is a command, too.
STEPS = {
    "MLP, SGD": (mlp, torch.optim.SGD, {}, 38),
    "MLP, Adam": (mlp, torch.optim.Adam, {}, 86),
    "CNN, SGD with momentum": (cnn, torch.optim.SGD, {"momentum": 0.9}, 78),
    "Transformer, AdamW": (transformer, torch.optim.AdamW, {}, 454),
    "RNN, SGD": (lambda: Sequence(nn.RNN), torch.optim.SGD, {}, 48),
    "LSTM, SGD": (lambda: Sequence(nn.LSTM), torch.optim.SGD, {}, 55),
    "GRU, SGD": (lambda: Sequence(nn.GRU), torch.optim.SGD, {}, 49),
}


@pytest.mark.parametrize("name", STEPS)
def test_training_step_sends_as_many_commands_as_the_table_says(connection, name):
    make, optimizer, options, expected = STEPS[name]
    model = make().to("tensord")
    stepper = optimizer(model.parameters(), lr=0.01, **options)
    x = {cnn: torch.rand(2, 1, 4, 6), transformer: torch.randint(10, (2, 4))}.get(make, torch.rand(2, 4, 6))
    x, y = x.to("tensord"), torch.tensor([0, 2]).to("tensord")
    sent = []
    for _ in range(4):
        gc.collect()
        torch.tensord.synchronize()
        before = connection.stats["commands_sent"]
        stepper.zero_grad()
        F.cross_entropy(model(x), y).backward()
        stepper.step()
        sent.append(connection.stats["commands_sent"] - before)
    assert sent[-1] == expected, sent
