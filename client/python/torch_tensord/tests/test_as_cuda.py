"""torch_tensord.as_cuda(): programs that say "cuda"."""

import concurrent.futures
import importlib
import io
import subprocess
import sys
import warnings

import pytest
import torch
import torch_tensord
from torch import nn
from torch.nn import functional as F


@pytest.fixture
def as_cuda():
    with torch_tensord.as_cuda():
        yield


def test_names_of_cuda_mean_tensord(as_cuda):
    assert torch.cuda.is_available() and torch.cuda.device_count() == torch.tensord.device_count()
    for made in (
        torch.zeros(2, device="cuda"),
        torch.zeros(2).cuda(),
        torch.zeros(2).cuda(0),
        torch.zeros(2).to("cuda:0"),
        torch.zeros(2).to(device=torch.device("cuda")),
        torch.tensor([1.0], device=torch.device("cuda", 0)).new_ones(2, device="cuda:0"),
        torch.empty_like(torch.zeros(2), device="cuda"),
    ):
        assert made.device == torch.device("tensord:0") and made.is_cuda
    assert torch.zeros(2, device="cuda:1").device.index == 1
    assert not torch.zeros(2).is_cuda
    with torch.device("cuda"):
        assert torch.ones(1).device.type == "tensord"
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
    torch.cuda.synchronize()
    torch.cuda.synchronize("cuda:0")
    assert torch.cuda.get_device_properties(0).total_memory > 0


def test_training_with_autocast_and_a_scaler(as_cuda):
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda")
    x, y = torch.randn(12, 8).to(device), torch.randint(3, (12,), device=device)
    losses = []
    for _ in range(5):
        with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert next(model.parameters()).device.type == "tensord"


def test_checkpoints_load_to_cuda(as_cuda):
    file = io.BytesIO()
    torch.save({"w": torch.arange(3.0, device="cuda")}, file)
    for where in ("cuda", torch.device("cuda:0"), {"tensord:0": "cuda:1"}, lambda storage, _: storage.cuda(0), "cpu"):
        file.seek(0)
        loaded = torch.load(file, map_location=where)["w"]
        assert torch.equal(loaded.cpu(), torch.arange(3.0))
        assert loaded.device.type == ("cpu" if where == "cpu" else "tensord")
    assert loaded.device.type == "cpu"


@pytest.mark.parametrize("made", ["before", "after"])
def test_all_threads_see_the_switch(made):
    def make():
        return torch.zeros(2, device="cuda:1").device, torch.ones(2).to("cuda").is_cuda, torch.cuda.is_available()

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        if made == "before":
            pool.submit(int).result()
        with torch_tensord.as_cuda():
            assert pool.submit(make).result() == (torch.device("tensord:1"), True, True)
        assert pool.submit(torch.cuda.is_available).result() is False


def test_names_that_modules_have_taken_are_replaced_and_restored():
    taken = type(sys)("taken")
    names = {}
    exec("from torch import zeros, Generator\nfrom torch.cuda import is_available, Stream, memory_allocated", names)
    taken.__dict__.update({name: value for name, value in names.items() if name != "__builtins__"})
    before = dict(vars(taken))
    sys.modules["taken"] = taken
    try:
        with torch_tensord.as_cuda():
            assert taken.zeros(2, device="cuda").device.type == "tensord" and taken.is_available()
            assert taken.memory_allocated("cuda:0") >= 0
            assert taken.Generator("cuda").device.type == "tensord"
            vars(taken)["late"] = torch.cuda.device_count
        assert vars(taken).pop("late") is torch.cuda.device_count
        assert all(vars(taken)[name] is value for name, value in before.items())
    finally:
        del sys.modules["taken"]


def test_classes_of_cuda_stay_classes(as_cuda):
    for name in ("Stream", "Event", "FloatTensor", "device", "StreamContext", "CUDAGraph"):
        assert isinstance(getattr(torch.cuda, name), type) and getattr(torch.cuda, name) | None
    stream = torch.cuda.Stream("cuda:1")
    assert stream.device == torch.device("tensord:1") and isinstance(stream, torch.cuda.Stream)
    assert isinstance(torch.cuda.current_stream(), torch.cuda.Stream)
    x = torch.cuda.FloatTensor([1, 2])
    assert x.device.type == "tensord" and isinstance(x, torch.cuda.FloatTensor)
    assert not isinstance(torch.ones(1), torch.cuda.FloatTensor)
    for kind in (torch.cuda.HalfTensor, "torch.cuda.HalfTensor"):
        made = torch.ones(2).type(kind)
        assert made.dtype == torch.half and made.device.type == "tensord"
    assert torch.ones(2).type("torch.DoubleTensor").dtype == torch.double and torch.ones(2).type().endswith("Tensor")
    with torch.cuda.device_of(x.to("cuda:1")):
        assert torch.cuda.current_device() == 1
    generator = torch.Generator("cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator) and isinstance(torch.Generator(), torch.Generator)
    first = torch.randn(3, device="cuda", generator=generator)
    assert torch.equal(torch.randn(3, device="cuda", generator=generator.manual_seed(3)), first)


def test_autocast_of_cuda_is_that_of_tensord(as_cuda):
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.bfloat16)
        def forward(context, x):
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(context, gradient):
            return gradient * 2

    x = torch.ones(2, device="cuda", requires_grad=True)
    assert not torch.is_autocast_enabled() and not torch.is_autocast_enabled("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert torch.is_autocast_enabled() and torch.get_autocast_dtype("cuda") == torch.bfloat16
        y = Double.apply(x)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert x.grad.tolist() == [2, 2]


def _call(function):
    """Calls the function with several arguments, and returns the texts of its errors."""
    texts = []
    for arguments in ((), (0,), (torch.device("cuda", 0),)):
        try:
            function(*arguments)
        except TypeError:  # the number or the kind of the arguments
            pass
        except Exception as error:
            texts.append(f"{type(error).__name__}: {error}")
    return texts


def test_no_public_name_of_cuda_asks_for_a_driver():
    submodules = "amp gds graphs green_contexts jiterator memory nccl nvtx profiler random sparse streams tunable"
    modules = [torch.cuda, *(importlib.import_module(f"torch.cuda.{name}") for name in submodules.split())]
    names = [(module, name) for module in modules for name in dir(module) if not name.startswith("_")]
    refused = set()
    with torch_tensord.as_cuda(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module, name in names:
            value = getattr(module, name)
            home = getattr(value, "__module__", None) or ""
            # torch.cuda's device_of() takes a tensor, which the arguments here are not.
            if not callable(value) or not home.startswith(("torch.cuda", "torch_tensord")) or name == "device_of":
                continue
            for text in _call(value):
                assert not any(part in text for part in ("driver", "AttributeError", "not compiled")), (name, text)
                if "tensord has no such function" in text:
                    refused.add(name)
        torch.tensord.set_sync_debug_mode("default")
        torch.cuda.set_device(0)
    assert {"CUDAGraph", "FloatStorage", "cudart", "power_draw", "MemPool", "all_reduce"} <= refused
    assert not {"synchronize", "memory_stats", "range_push", "start", "ipc_collect", "Stream"} & refused


def test_libraries_choose_no_kernels_of_cuda(as_cuda):
    # Triton needs 7.0, and flash attention 8.0.
    assert torch.cuda.get_device_capability() < (7, 0) and torch.cuda.get_device_properties(0).major < 7
    assert torch.cuda.is_bf16_supported() and not torch.cuda.is_tf32_supported()


_GROUP = """
import sys, torch, torch_tensord, torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
torch_tensord.as_cuda()
assert dist.is_nccl_available()
dist.init_process_group(sys.argv[1], init_method="tcp://127.0.0.1:0", rank=0, world_size=1)
x = torch.ones(2, device="cuda")
dist.all_reduce(x)
group = dist.new_group([0], backend="nccl")
dist.all_reduce(x, group=group)
print(x.device, x.tolist(), dist.get_backend(group), DeviceMesh("cuda", [0], _init_backend=False).device_type)
dist.destroy_process_group()
"""


@pytest.mark.parametrize("backend", ["nccl", "cpu:gloo,cuda:nccl"])
def test_nccl_means_tensord(backend):
    done = subprocess.run([sys.executable, "-c", _GROUP, backend], capture_output=True, text=True, timeout=120)
    assert done.stdout == "tensord:0 [1.0, 1.0] tensord tensord\n", done.stderr


def test_an_error_while_replacing_leaves_pytorch_as_it_was(monkeypatch):
    from torch_tensord import _as_cuda

    attributes = _as_cuda._attributes

    def fail_midway():
        yield from attributes()
        yield torch.Tensor.to, "name", None  # attributes of a builtin method can't be set

    zeros, to = torch.zeros, torch.Tensor.to
    monkeypatch.setattr(_as_cuda, "_attributes", fail_midway)
    with pytest.raises((AttributeError, TypeError)):
        torch_tensord.as_cuda()
    assert torch.zeros is zeros and torch.Tensor.to is to and not torch.cuda.is_available()
    monkeypatch.undo()
    with torch_tensord.as_cuda():
        assert torch.zeros(1, device="cuda").is_cuda


def _names():
    with torch_tensord.as_cuda():  # imports all submodules of torch.cuda
        pass
    modules = [module for name, module in sys.modules.items() if name.startswith(("torch.cuda", "torch.amp"))]
    owners = [torch, torch.Tensor, torch.nn.Module, torch.autocast, torch.distributed, torch.random, *modules]
    return {(owner, name): value for owner in owners for name, value in list(vars(owner).items())}


def test_end_of_the_context_restores_pytorch():
    before = _names()
    with torch_tensord.as_cuda() as effect:
        with pytest.raises(RuntimeError, match="in effect already"):
            torch_tensord.as_cuda()
    assert not torch.cuda.is_available()
    with pytest.raises(RuntimeError, match="effect has ended"), effect:
        pass
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1, device="cuda")
    assert torch.autocast("cpu", dtype=torch.bfloat16)
    after = _names()
    assert [name for name, value in before.items() if after.get(name, None) is not value] == []
    for module in (torch.cuda, torch.cuda.nvtx, torch.cuda.profiler, torch.cuda.tunable):
        own = [(n, v) for n, v in vars(module).items() if getattr(v, "__module__", None) == module.__name__]
        assert [n for n, v in own if getattr(v, "__name__", n) != n and hasattr(v, "__code__")] == []


def test_the_end_of_the_context_leaves_builtin_types_and_scripts(run_python):
    done = run_python("""
import builtins
import torch, torch_tensord

before = (builtins.list, builtins.dict)
with torch_tensord.as_cuda():
    torch.cuda.get_arch_list()
assert (builtins.list, builtins.dict) == before
functions = [lambda x: x for _ in range(5000)]
assert all(torch.jit._builtins._find_builtin(f) is None for f in functions)
print("right")
""")
    assert done.stdout.split() == ["right"], done.stderr
