"""The number of commands that each op in PyTorch's database of samples sends, compared with commands.txt.

A line of commands.txt is: the op, the commands of a call, those of its gradient or "-", and, if one of the numbers
exceeds 7, the reason. An op of the server is a command, and so is the drop of an intermediate result: 7 commands are
four ops. The numbers may only get smaller: a test that needs fewer commands fails until its line is changed.
TENSORD_WRITE_COMMANDS=FILE writes the list of the run to FILE, with the reasons of commands.txt.
"""

import atexit
import gc
import itertools
import os
import pathlib
import warnings

import pytest
import torch
from test_op_database import DTYPES, call, flat, infos, is_real, listed, move

pytestmark = [
    pytest.mark.skipif(torch.__version__ < (2, 15), reason="commands.txt is of PyTorch 2.15"),
    pytest.mark.filterwarnings("ignore"),
]
TABLE = pathlib.Path(__file__).parent / "commands.txt"
FEW = 7
_written = {}


def table():
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


def first_samples(op):
    dtype = next((dtype for dtype in DTYPES if dtype in op.dtypes), None)
    if dtype is None:
        return
    torch.manual_seed(0)
    try:
        for sample in itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=op.supports_autograd), 5):
            arguments = sample.input, sample.args, sample.kwargs
            if is_real(arguments):
                yield arguments
    except Exception:
        return  # the op has no samples of this dtype


def count(connection, op):
    """Returns the commands of a call of the first sample that runs, and of its gradient or None."""
    for arguments in first_samples(op):
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


def write():
    reasons = table() if TABLE.exists() else {}
    lines = [f"{name} {counts} {reasons.get(name, ('', ''))[1]}".rstrip() for name, counts in sorted(_written.items())]
    pathlib.Path(os.environ["TENSORD_WRITE_COMMANDS"]).write_text("\n".join(lines) + "\n")


if os.environ.get("TENSORD_WRITE_COMMANDS"):
    atexit.register(write)


def ops():
    return [op for op in infos() if "call float32" not in listed()[op.formatted_name]]


@pytest.fixture(autouse=True, scope="module")
def no_garbage():
    """Garbage that is collected during a count would add commands."""
    gc.disable()
    yield
    gc.enable()


def test_all_ops_of_the_table_exist():
    assert not table().keys() - {op.formatted_name for op in ops()}


@pytest.mark.parametrize("op", ops(), ids=lambda op: op.formatted_name)
def test_op_sends_as_many_commands_as_the_table_says(connection, op):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        of_call, of_gradient = count(connection, op)
    name = op.formatted_name
    if of_call is None:
        assert name not in table(), "no sample of the op runs"
        pytest.skip("no sample runs on the device")
    counts = f"{of_call} {'-' if of_gradient is None else of_gradient}"
    _written[name] = counts
    if os.environ.get("TENSORD_WRITE_COMMANDS"):
        return
    wanted, reason = table().get(name, ("nothing", ""))
    assert counts == wanted, f"commands.txt says {wanted}"
    assert reason or max(of_call, of_gradient or 0) <= FEW, "commands.txt must give the reason"
