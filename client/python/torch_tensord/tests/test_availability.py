"""If a program asks for the device without using it, it gets no threads and no connection, and it may fork."""

import pytest
import torch
from tensord import _connect

CHECK = """
import os, torch

def check_nothing_changed(when):
    import tensord
    assert not torch.tensord.is_initialized() and not torch.tensord._initialized, when
    assert torch.tensord.default_generators == () and tensord.current_connection() is None, when
    assert len(os.listdir("/proc/self/task")) <= threads, when
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        assert file.read() == "", when

def run_in_child(function):
    pid = os.fork()
    if pid == 0:
        try:
            function()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0

threads = len(os.listdir("/proc/self/task"))
"""
ASK = """
import warnings
warnings.simplefilter("ignore")

weight = torch.ones(3, requires_grad=True)
weight.grad = torch.ones(3)
optimizer = torch.optim.Adam([weight])

def fork_generators():
    with torch.random.fork_rng():
        torch.manual_seed(1)

def draw():
    torch.Generator("tensord").manual_seed(3).get_state()
    torch.tensord.manual_seed_all(3)
    torch.manual_seed(3)

for ask in (
    torch.tensord.is_available,
    torch.tensord.device_count,
    torch.accelerator.is_available,
    torch.accelerator.device_count,
    lambda: torch.accelerator.current_accelerator(check_available=True),
    torch.accelerator.current_device_index,
    torch.accelerator.current_stream,
    torch.accelerator.get_device_capability,
    torch.accelerator.synchronize,
    torch.accelerator.memory_stats,
    torch.accelerator.empty_cache,
    torch.tensord.current_stream,
    torch.tensord.get_rng_state_all,
    fork_generators,
    draw,
    optimizer.step,
    lambda: torch.ones(2).pin_memory(),
    lambda: torch.utils.checkpoint.checkpoint(lambda x: x * 2, weight, use_reentrant=False),
    lambda: torch._utils._get_available_device_type(),
):
    ask()
    check_nothing_changed(ask)
"""


def run(run_python, program, **environment):
    done = run_python(CHECK + program, **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def test_asking_changes_nothing_and_a_child_may_use_the_device(run_python, address):
    program = """
assert torch.accelerator.is_available() and torch.tensord.device_count() == 2
def use():
    assert torch.ones(2, device="tensord:1").sum().item() == 2
run_in_child(use)
check_nothing_changed("after the child")
use()
assert torch.tensord.is_initialized() and torch.tensord._initialized
assert len(torch.tensord.default_generators) == torch.tensord.device_count() == 2
def refused():
    assert not torch.tensord.is_initialized() and torch.tensord._is_in_bad_fork()
    assert torch.tensord.is_available() and torch.tensord.device_count() == 2
run_in_child(refused)
"""
    run(run_python, ASK + program, TENSORD_SERVERS=address)


@pytest.mark.parametrize("setting", [{"TENSORD_SERVER": "127.0.0.1:1"}, {"TENSORD_SERVER": "", "TENSORD_LOCAL": "0"}])
def test_without_a_server_the_device_is_unavailable(run_python, setting):
    if setting["TENSORD_SERVER"] == "" and _connect._answers(_connect._DEFAULT_ADDRESS):
        pytest.skip("a server runs at the default address")
    done = run(run_python, ASK, **setting)
    assert "tensord" not in done.stderr
    program = """
assert not torch.tensord.is_available() and not torch.accelerator.is_available()
assert torch.accelerator.current_accelerator(check_available=True) is None
assert torch.tensord.device_count() == 0
"""
    done = run(run_python, program, **setting)
    reason = "TENSORD_LOCAL=0 forbids" if setting["TENSORD_SERVER"] == "" else "127.0.0.1:1"
    assert done.stderr.count("tensord has no devices") == 1 and reason in done.stderr


def test_a_private_server_is_not_started_by_asking(run_python):
    if _connect._answers(_connect._DEFAULT_ADDRESS):
        pytest.skip("a server runs at the default address")
    settings = {"TENSORD_SERVER": "", "TENSORD_LOCAL_DEVICES": "cpu,cpu,cpu"}
    program = """
assert torch.accelerator.is_available() and torch.tensord.device_count() == 3
"""
    assert "private server" not in run(run_python, ASK + program, **settings).stderr
    use = """
assert torch.accelerator.is_available()
check_nothing_changed("available")
x = torch.ones(2, device="tensord:2")
assert torch.tensord.device_count() == 3 and x.sum().item() == 2
"""
    assert "started a private server" in run(run_python, use, **settings).stderr


def test_a_connection_of_the_other_package_is_counted(run_python, address):
    program = """
import tensord
with tensord.connect(os.environ["ADDRESS"]):
    assert torch.tensord.is_available() and torch.tensord.device_count() == 2
    assert not torch.tensord.is_initialized()
"""
    run(run_python, program, TENSORD_SERVER="127.0.0.1:1", ADDRESS=address)


def test_other_addresses_are_asked_at_once(run_python, address):
    program = """
assert not torch.tensord.is_available()
os.environ["TENSORD_SERVER"] = os.environ["LATER"]
assert torch.tensord.is_available() and torch.tensord.device_count() == 2
check_nothing_changed("asked")
"""
    run(run_python, program, TENSORD_SERVER="127.0.0.1:1", LATER=address)


def test_an_application_with_its_own_interpreter_connects_in_place_of_asking(run_python, address):
    program = """
import sys
sys.frozen = True
assert torch.tensord.is_available() and torch.tensord.is_initialized() and torch.tensord.device_count() == 2
"""
    run(run_python, program, TENSORD_SERVERS=address)


def test_a_program_on_the_cpu_may_fork_and_run_backward_passes_in_the_child(run_python, address):
    program = """
import threading
weight = torch.ones(3, requires_grad=True)
def train():
    (weight * 2).sum().backward()
train()
check_nothing_changed("after backward()")
run_in_child(train)

# Later backward passes on the device run on the threads that call them.
def train_on_device():
    x = torch.ones(3, device="tensord:1", requires_grad=True)
    (x * 2).sum().backward()
    results.append(x.grad.tolist())
    loss = (x * 3).sum()
    thread = threading.Thread(target=loss.backward)
    thread.start(); thread.join()
    results.append(x.grad.tolist())
results = []
train_on_device()
thread = threading.Thread(target=train_on_device)
thread.start(); thread.join()
assert results == [[2] * 3, [5] * 3] * 2, results
train()
"""
    run(run_python, program, TENSORD_SERVERS=address)


def test_import_torch_loads_no_other_packages(run_python):
    program = """
import sys
import torch
torch.tensord.is_available()
roots = {name.partition(".")[0] for name in sys.modules}
print(sorted(roots - sys.stdlib_module_names - {"tensord", "torch_tensord"}))
"""
    base = (
        "import sys, torch, torch.distributed\n" + program.splitlines()[-2].join(["", "\n"]) + program.splitlines()[-1]
    )
    with_device = run_python(program).stdout
    without = run_python(base, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout
    assert with_device == without != ""


def test_load_and_checkpoint_ask_before_they_use_the_device(run_python, address):
    program = """
import io
buffer = io.BytesIO()
torch.save({"x": torch.arange(3.0)}, buffer)
buffer.seek(0)
assert torch.load(buffer, map_location="cpu")["x"].device.type == "cpu"
check_nothing_changed("loaded on the CPU")
buffer.seek(0)
assert torch.load(buffer, map_location="tensord:1")["x"].device == torch.device("tensord:1")
assert torch.tensord.is_initialized()
buffer.seek(0)
try:
    torch.load(buffer, map_location="tensord:2")
    raise AssertionError
except RuntimeError as e:
    assert "device_count() is 2" in str(e)
"""
    run(run_python, program, TENSORD_SERVERS=address)


def test_the_device_type_is_the_accelerator():
    assert torch.accelerator.current_accelerator(check_available=True) == torch.device("tensord")
