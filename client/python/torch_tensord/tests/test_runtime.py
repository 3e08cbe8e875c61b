"""torch.tensord: devices, copies, errors, random numbers, and what PyTorch does with a device."""

import copy
import os
import pickle

import pytest
import torch
import torch_tensord

DEVICE = "tensord"


def test_devices_have_names():
    assert torch.tensord.is_available() and torch.tensord.device_count() == 2
    assert torch.tensord.get_device_name(1) == "cpu:1" and torch.tensord.get_device_kind(0) == "cpu"
    properties = torch.tensord.get_device_properties(1)
    assert (properties.name, properties.kind, properties.total_memory) == (
        "cpu:1",
        "cpu",
        torch.tensord.mem_get_info(1)[1],
    )
    assert torch.tensord.device_of("cpu:1") == torch.device("tensord:1")
    with torch.tensord.device(1):
        assert torch.tensord.current_device() == 1 and torch.zeros(1, device=DEVICE).device.index == 1
    assert torch.tensord.current_device() == 0
    assert torch.accelerator.current_accelerator() == torch.device(DEVICE) and torch.accelerator.device_count() == 2
    with pytest.raises(RuntimeError, match="tensord:7 doesn't exist"):
        torch.zeros(1, device="tensord:7")


def test_a_program_on_the_cpu_does_not_connect(run_python, address):
    program = """
import os, threading, torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
optimizer = torch.optim.Adam(model.parameters())
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 4)), batch_size=4, num_workers=1)
for (x,) in loader:
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
assert not torch.tensord.is_initialized()
os.environ["TENSORD_SERVER"] = os.environ["LATER"]
x = torch.ones(3, device="tensord:1", requires_grad=True)
thread = threading.Thread(target=lambda: (x * 2).sum().backward())  # on PyTorch's thread for this device
thread.start(); thread.join()
print(x.grad.tolist())
"""
    done = run_python(program, TENSORD_SERVER="127.0.0.1:1", LATER=address)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[2.0, 2.0, 2.0]" and "tensord" not in done.stderr


def test_a_new_connection_is_available_at_once(run_python, address):
    program = """
import os, warnings
import tensord, torch

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    before = torch.tensord.is_available()
client = tensord.connect(os.environ["LATER"])
print(before, torch.tensord.is_available())
"""
    done = run_python(program, TENSORD_SERVER="127.0.0.1:1", LATER=address)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_memory_figures_and_waits():
    free, total = torch.tensord.mem_get_info()
    assert 0 < free <= total and torch.tensord.memory_allocated() >= 0
    event = torch.tensord.Event()
    event.record()
    event.synchronize()
    assert event.query()
    torch.tensord.current_stream().synchronize()
    torch.ones(1, device=DEVICE).record_stream(torch.tensord.current_stream())
    torch.tensord.synchronize()
    torch.accelerator.synchronize()


def test_copies_between_devices_and_dtypes():
    x = torch.arange(6.0).reshape(2, 3).t()
    y = x.to(DEVICE)
    assert y.stride() == x.stride() and torch.equal(y.cpu(), x)
    assert torch.equal(y.to("tensord:1").cpu(), x)
    assert y.to("tensord:1").device.index == 1
    for dtype in (torch.int64, torch.float16, torch.bool, torch.float64, torch.uint8):
        assert torch.equal(y.to(dtype).cpu(), x.to(dtype))
        assert torch.equal(x.to(DEVICE, dtype).cpu(), x.to(dtype))
    target = torch.empty(2, 3, dtype=torch.float64)
    target.copy_(y.t())
    assert torch.equal(target, x.t().double())
    assert torch.equal(torch.zeros(2, 3, device=DEVICE).copy_(torch.arange(3)).cpu(), torch.arange(3.0).expand(2, 3))


def test_uploads_that_do_not_wait_keep_the_values():
    x = torch.randn(1 << 17).pin_memory()
    assert x.is_pinned()
    expected = x.clone()
    y = x.to(DEVICE, non_blocking=True)
    x.zero_()
    assert torch.equal(y.cpu(), expected)
    assert torch.equal(torch.empty(1 << 17, pin_memory=True).copy_(y, non_blocking=True), expected)


@pytest.mark.parametrize("f", [torch.add, torch.mul, torch.maximum, torch.mm, torch.where, torch.cat])
def test_tensors_of_several_devices_are_refused(f):
    def call(a, b):
        if f is torch.where:
            return f(a > 0, a, b)
        return f([a, b]) if f is torch.cat else f(a, b)

    x = torch.ones(2, 2, device=DEVICE)
    for other in (torch.ones(2, 2), torch.ones(2, 2, device="tensord:1")):
        with pytest.raises(RuntimeError, match="same device"):
            call(x, other)
    with pytest.raises(RuntimeError, match=r"copy it with x.to\('tensord:0'\)"):
        x + torch.ones(2, 2)


def test_numbers_of_the_cpu_are_operands():
    x = torch.ones(2, device=DEVICE)
    assert (x + torch.tensor(2.5)).tolist() == [3.5, 3.5]
    assert torch.maximum(torch.tensor(3.0), x).tolist() == [3, 3]
    assert torch.where(x > 0, torch.tensor(1.0), x).tolist() == [1, 1]


def test_dtypes_are_promoted_as_on_the_cpu():
    dtypes = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16]
    dtypes += [torch.bfloat16, torch.float32, torch.float64]
    for a in dtypes:
        for b in dtypes:
            x, y = torch.ones(2, dtype=a), torch.ones(2, dtype=b)
            assert (x.to(DEVICE) + y.to(DEVICE)).dtype == (x + y).dtype
            assert (x.to(DEVICE) / y.to(DEVICE)).dtype == (x / y).dtype
            assert (x.to(DEVICE) == y.to(DEVICE)).dtype == torch.bool
        x = torch.ones(2, dtype=a)
        for number in (2, 2.5, True):
            assert (x.to(DEVICE) * number).dtype == (x * number).dtype


def test_an_op_without_a_kernel_says_its_name(run_python):
    with pytest.raises(NotImplementedError, match="airy_ai.out isn't implemented .* x.cpu.*TENSORD_CPU_F"):
        torch.special.airy_ai(torch.ones(2, device=DEVICE))
    with pytest.raises(NotImplementedError, match="Complex"):
        torch.zeros(2, dtype=torch.complex64, device=DEVICE)
    program = """
import torch
print(torch.special.airy_ai(torch.zeros(2, device="tensord")).tolist(), torch.tensord.fallbacks())
"""
    done = run_python(program, TENSORD_CPU_FALLBACK="1")
    assert "0.355" in done.stdout and "aten::special_airy_ai.out" in done.stdout, done.stderr
    assert "the CPU of this machine computes aten::special_airy_ai.out" in done.stderr


def test_an_error_of_the_device_is_raised_at_the_wait_with_its_cause():
    x = torch.ones(3, device=DEVICE)
    y = x[torch.tensor([7], device=DEVICE)] + 1
    with pytest.raises(RuntimeError, match="index 7 at .* is out of range for axis 0 of size 3"):
        y.cpu()
    assert (x + 1).tolist() == [2, 2, 2]
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(1 << 44, device=DEVICE).sum().item()


def test_debug_mode_reports_waits():
    x = torch.ones(2, device=DEVICE)
    torch.tensord.set_sync_debug_mode("error")
    try:
        with pytest.raises(RuntimeError, match="waits for the device"):
            x.sum().item()
    finally:
        torch.tensord.set_sync_debug_mode("default")
    assert x.sum().item() == 2


def test_tensors_are_printed_copied_and_pickled():
    x = torch.tensor([[1.5, 2.0], [3.0, float("nan")]], device=DEVICE)
    assert repr(x) == "tensor([[1.5000, 2.0000],\n        [3.0000,    nan]], device='tensord:0')"
    assert repr(torch.arange(3, device=DEVICE)) == "tensor([0, 1, 2], device='tensord:0')"
    parameter = torch.nn.Parameter(torch.arange(3.0, device=DEVICE))
    pair = copy.deepcopy([parameter, parameter])
    assert pair[0] is pair[1] and pair[0] is not parameter and torch.equal(pair[0], parameter)
    restored = pickle.loads(pickle.dumps(parameter))
    assert restored.device == parameter.device and torch.equal(restored, parameter)


def test_random_numbers_repeat_by_seed_and_state():
    torch.manual_seed(5)
    first = torch.randn(4, device=DEVICE)
    state = torch.tensord.get_rng_state()
    second = torch.randn(4, device=DEVICE)
    torch.manual_seed(5)
    assert torch.equal(first, torch.randn(4, device=DEVICE)) and not torch.equal(first, second)
    torch.tensord.set_rng_state(state)
    assert torch.equal(second, torch.randn(4, device=DEVICE))
    generator = torch.Generator(device=DEVICE).manual_seed(1)
    third = torch.rand(4, device=DEVICE, generator=generator)
    assert torch.equal(third, torch.rand(4, device=DEVICE, generator=generator.manual_seed(1)))
    assert torch.equal(torch.randperm(50, device=DEVICE).sort()[0].cpu(), torch.arange(50))
    x = torch.rand(10000, device=DEVICE)
    assert abs(x.mean().item() - 0.5) < 0.02 and 0 <= x.min().item() and x.max().item() < 1
    assert abs(torch.nn.functional.dropout(torch.ones(10000, device=DEVICE), 0.25).mean().item() - 1) < 0.05
    draws = torch.multinomial(torch.tensor([0.0, 3.0, 1.0], device=DEVICE), 4000, replacement=True)
    assert abs(draws.bool().float().mean().item() - 1) < 1e-6 and abs((draws == 1).float().mean().item() - 0.75) < 0.05


def test_a_forked_child_is_refused(run_python):
    program = """
import os, torch
x = torch.ones(2, device="tensord").cpu()
pid = os.fork()
if pid == 0:
    try:
        (torch.ones(2, device="tensord") + 1).cpu()
    except Exception as e:
        os._exit(0 if "process" in str(e) and torch.tensord._is_in_bad_fork() else 1)
    os._exit(2)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), (torch.ones(2, device="tensord") + 1).tolist())
"""
    assert run_python(program).stdout.strip() == "0 [2.0, 2.0]"


def test_import_torch_loads_the_device_and_connects_later(run_python):
    program = """
import torch
print(torch.tensord.is_initialized(), torch.ones(2, device="tensord").sum().item(), torch.tensord.is_initialized())
"""
    assert run_python(program).stdout.strip() == "False 2.0 True"
    off = """
import torch
print(hasattr(torch, "tensord"))
import torch_tensord
print(torch.ones(1, device="tensord").item())
"""
    assert run_python(off, TORCH_DEVICE_BACKEND_AUTOLOAD="0").stdout.split() == ["False", "1.0"]


def test_import_torch_does_not_load_the_device_on_a_machine_with_cuda(run_python, address, tmp_path):
    (tmp_path / "sitecustomize.py").write_text("""
import importlib.abc
import sys

class PretendsCuda(importlib.abc.MetaPathFinder):  # before torch loads its extensions, gives torch.cuda a GPU
    def find_spec(self, name, path=None, target=None):
        if name == "torch.utils.cpp_extension" or "torch.cuda" not in sys.modules or "torch" not in sys.modules:
            return None
        torch = sys.modules["torch"]
        if hasattr(torch, "version") and hasattr(torch, "cuda") and hasattr(torch.cuda, "device_count"):
            torch.version.cuda, torch.cuda.device_count = "13.0", lambda: 1
        return None

sys.meta_path.insert(0, PretendsCuda())
""")
    program = """
import os
import warnings
import torch
print(hasattr(torch, "tensord"))
os.environ["TENSORD_SERVER"] = os.environ["ADDRESS"]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch_tensord
print(hasattr(torch, "tensord"), sum("161129" in str(each.message) for each in caught))
print(torch.ones(1, device="tensord").item())
"""
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    settings = {"PYTHONPATH": path, "TENSORD_SERVER": "", "ADDRESS": address}
    assert run_python(program, **settings).stdout.split() == ["False", "True", "1", "1.0"]
    first = "import torch_tensord, torch; print(hasattr(torch, 'tensord'))"
    assert run_python(first, **settings).stdout.split() == ["True"]
    named = "import torch; print(hasattr(torch, 'tensord'))"
    assert run_python(named, **{**settings, "TENSORD_SERVER": address}).stdout.split() == ["True"]


def test_another_version_of_pytorch_than_the_compiled_one_is_refused(run_python):
    program = """
import torch
compiled = torch.__version__.split("+")[0].rsplit(".", 1)[0]
torch.__version__ = "1.99.0"
try:
    import torch_tensord
except ImportError as e:
    print(f"is compiled for PyTorch {compiled}, and PyTorch 1.99.0 is installed" in str(e))
"""
    done = run_python(program, TORCH_DEVICE_BACKEND_AUTOLOAD="0")
    assert done.stdout.split() == ["True"], done.stderr


def test_supported_ops_are_listed():
    names = torch.tensord.supported_ops()
    assert "aten::add.Tensor" in names and "aten::mm" in names and len(names) > 250


@pytest.mark.parametrize("first", ["torch", "torch_tensord", "tensord"])
def test_the_packages_are_imported_in_any_order(run_python, first):
    program = f"import {first}\nimport torch\nprint((torch.ones(2, device='tensord') + 1).tolist())"
    done = run_python(program)
    assert done.stdout.strip() == "[2.0, 2.0]", done.stderr


def test_memory_statistics_have_the_names_of_pytorch():
    kept = torch.ones(1 << 20, device="tensord:1")
    torch.tensord.synchronize(1)
    for memory in (torch.tensord, torch.accelerator):
        used, peak = memory.memory_allocated(1), memory.max_memory_allocated(1)
        assert peak >= used >= 4 << 20
        stats = memory.memory_stats(1)
        for name in ("allocated_bytes", "reserved_bytes", "active_bytes"):
            assert stats[f"{name}.all.current"] == used and stats[f"{name}.all.peak"] == peak
        assert stats["num_ooms"] == stats["allocation.all.current"] == stats["allocated_bytes.all.freed"] == 0
        assert memory.memory_reserved(1) == used and memory.max_memory_reserved(1) == peak
        memory.reset_peak_memory_stats(1)
        memory.reset_accumulated_memory_stats(1)
        memory.empty_cache()
        assert memory.max_memory_allocated(1) == peak
    assert torch.tensord.memory_stats("tensord:1") == torch.accelerator.memory_stats("tensord:1")
    assert torch.tensord.memory_stats_as_nested_dict(1)["allocated_bytes"]["all"]["current"] == used
    assert torch.accelerator.get_memory_info(1) == torch.tensord.mem_get_info(1)
    summary = torch.tensord.memory_summary(1)
    assert f"{used / 2**20:.1f} MiB" in summary and summary.startswith("tensord:1 (")
    assert len(torch.tensord.memory_summary(1, abbreviated=True)) < len(summary)
    if not torch.cuda.is_available():
        with torch_tensord.as_cuda():
            assert torch.cuda.memory_stats(1)["allocated_bytes.all.current"] == used
            assert "MiB" in torch.cuda.memory_summary(1)
    del kept
