"""torch.tensord has the names that PyTorch and other packages look up on torch.<device>, with torch.cuda's meaning."""

import ast
import importlib.util
import inspect
import pathlib

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

DEVICE = "tensord"
PACKAGES = ("torch", "accelerate", "transformers", "pytorch_lightning", "lightning_fabric", "lightning")
# Variables and functions that hold or return the module of a device in these packages.
HOLDERS = {
    *("device_module", "_device_module", "device_mod", "custom_device_mod", "custom_backend_mod", "accelerator_module"),
    *("_device_handle", "device_handle", "torch_accelerator_module", "privateuse1_backend_module"),
}
GETTERS = {"get_device_module", "_get_device_module", "_get_device_handle"}
# Names that the packages look up, and that torch.tensord doesn't have.
ABSENT = {
    "MemPool": "memory belongs to the server",
    "use_mem_pool": "memory belongs to the server",
    "graph": "the packages ask for graphs by the kind of the device",
    "sparse": "there are no sparse tensors",
    "_inductor_backend_init": "optional: inductor has no backend for the device",
    "_lazy_call": "optional: without it PyTorch calls the function at once, and generators need no connection",
    "_utils": "optional: without it PyTorch takes the index of the torch.device",
    "set_rng_ctx": "of the device hpu only",
    "unset_rng_ctx": "of the device hpu only",
}


def holds_module(node):
    """Returns whether an expression is the module of a device that the source doesn't name."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        return (node.id if isinstance(node, ast.Name) else node.attr) in HOLDERS
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    if name == "getattr" and len(node.args) > 1 and ast.unparse(node.args[0]) == "torch":
        return not isinstance(node.args[1], ast.Constant) and "device" in ast.unparse(node.args[1])
    return name in GETTERS


def names_in(tree):
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and holds_module(node.value):
            yield node.attr
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr") and len(node.args) > 1:
            if holds_module(node.args[0]) and isinstance(node.args[1], ast.Constant):
                yield node.args[1].value


def names_that_packages_look_up():
    found = {}
    for package in PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            continue
        folder = pathlib.Path(spec.origin).parent
        for path in folder.rglob("*.py"):
            text = path.read_text(errors="replace")
            if "testing" in path.parts or not any(word in text for word in (*HOLDERS, *GETTERS, "getattr(torch")):
                continue
            for name in names_in(ast.parse(text)):
                found.setdefault(name, path)
    return found


def test_the_names_that_packages_look_up_exist():
    found = names_that_packages_look_up()
    assert {"_initialized", "get_rng_state", "Stream", "device_count", "synchronize"} <= found.keys()
    assert {name: path for name, path in found.items() if name not in ABSENT and not hasattr(torch.tensord, name)} == {}
    assert [name for name in ABSENT if hasattr(torch.tensord, name)] == []


def test_names_of_torch_cuda_have_the_same_kind_and_the_same_arguments():
    checked = []
    pairs = [(torch.tensord, torch.cuda), (torch.tensord.memory, torch.cuda.memory)]
    for module, reference in [*pairs, (torch.tensord.random, torch.cuda.random)]:
        for name in dir(module):
            ours, theirs = getattr(module, name), getattr(reference, name, None)
            if theirs is None or name.startswith("_") or name in ("Any", "torch", "collections"):
                continue
            assert callable(ours) == callable(theirs) and isinstance(ours, type) == isinstance(theirs, type), name
            if callable(ours):
                names = [list(inspect.signature(each).parameters) for each in (ours, theirs)]
                names[1] = [each for each in names[1] if each not in ("kwargs", "external")]
                assert names[0][: len(names[1])] == names[1], name
            checked.append(name)
    assert len(checked) > 50
    assert set(torch.cuda.random.__all__) <= set(dir(torch.tensord.random))


def test_the_module_has_its_name_and_submodules():
    module = torch.get_device_module("tensord")
    assert module is torch.tensord and module.__name__.split(".")[-1] == "tensord"
    from torch.tensord import memory
    from torch.tensord.random import get_rng_state

    assert memory is torch.tensord.memory and get_rng_state is torch.tensord.get_rng_state
    torch.ones(1, device=DEVICE)
    assert torch.tensord._initialized is True and torch.tensord.is_current_stream_capturing() is False


def test_streams_are_a_class():
    x = torch.ones(2, device=DEVICE)
    made = torch.tensord.Stream("tensord:1")
    assert isinstance(made, torch.Stream) and made.device == torch.device("tensord:1")
    for each in (torch.tensord.current_stream(), torch.accelerator.current_stream(), torch.Stream(DEVICE), made):
        assert isinstance(each, torch.tensord.Stream)
        assert not hasattr(torch.Stream, "is_capturing") or not each.is_capturing()  # PyTorch 2.11 lacks it
    assert not isinstance(torch.Stream("cpu"), torch.tensord.Stream)
    assert made == torch.tensord.default_stream(1)
    with torch.tensord.stream(made) as entered, made:
        assert entered is made and torch.accelerator.current_stream(1) == made
    made.wait_stream(torch.tensord.current_stream())
    made.wait_event(torch.tensord.current_stream().record_event())
    event = made.record_event(torch.tensord.Event(enable_timing=True))
    event.synchronize()
    assert event.query()
    x.record_stream(made)
    with torch.tensord.stream(None):
        assert (x + 1).tolist() == [2, 2]


def test_events_for_other_processes_are_refused():
    with pytest.raises(NotImplementedError, match="leave out interprocess=True"):
        torch.tensord.Event(interprocess=True)


def test_device_of_takes_tensors_storages_and_names():
    x = torch.ones(1, device="tensord:1")
    for obj in (x, x.untyped_storage()):
        with torch.tensord.device_of(obj):
            assert torch.zeros(1, device=DEVICE).device == x.device
    with torch.tensord.device_of(torch.ones(1)):
        assert torch.zeros(1, device=DEVICE).device.index == 0
    assert torch.tensord.device_of(torch.tensord.get_device_name(1)) == x.device


def test_default_generators_are_those_of_the_devices():
    generators = torch.tensord.default_generators
    assert [each.device for each in generators] == [torch.device("tensord:0"), torch.device("tensord:1")]
    torch.tensord.manual_seed_all(7)
    assert [each.initial_seed() for each in generators] == [7, 7]
    state = generators[1].get_state()
    first = torch.rand(4, device="tensord:1")
    assert torch.equal(torch.tensord._get_generator(torch.device("tensord:1")).set_state(state).get_state(), state)
    assert torch.equal(torch.rand(4, device="tensord:1"), first)
    with pytest.raises(TypeError, match="RNG state must be a torch.ByteTensor"):
        generators[1].set_state(state.float())
    with torch.random.fork_rng(devices=[0, 1], device_type=DEVICE):
        inside = torch.rand(4, device=DEVICE)
    assert torch.equal(torch.rand(4, device=DEVICE), inside)
    states = torch.tensord.random.get_rng_state_all()
    drawn = torch.rand(4, device="tensord:1")
    torch.tensord.random.set_rng_state_all(states)
    assert torch.equal(torch.rand(4, device="tensord:1"), drawn)


def test_the_capability_names_the_dtypes_of_the_device():
    dtypes = torch.accelerator.get_device_capability()["supported_dtypes"]
    for dtype in (torch.float32, torch.bool, torch.uint16, torch.complex64, torch.float8_e5m2):
        if dtype in dtypes:
            assert torch.zeros(2, dtype=dtype, device=DEVICE).dtype == dtype
        else:
            with pytest.raises(NotImplementedError):
                torch.zeros(2, dtype=dtype, device=DEVICE)
    assert {torch.float32, torch.bool, torch.uint16} <= dtypes


@pytest.mark.parametrize("device", ["tensord:0", "tensord:1"])
@pytest.mark.parametrize("use_reentrant", [True, False])
def test_checkpoint_draws_the_same_numbers_again(use_reentrant, device):
    torch.manual_seed(3)
    layer = nn.Linear(10, 10).to(device)
    x = torch.ones(32, 10, device=device, requires_grad=True)
    for _ in range(2):
        made = checkpoint(lambda x: nn.functional.dropout(layer(x), 0.5), x, use_reentrant=use_reentrant)
        mask = (made.detach() != 0).float()
        x.grad = None
        made.sum().backward()
        assert torch.allclose(x.grad.cpu(), (2 * mask @ layer.weight.detach()).cpu(), atol=1e-5)
        assert 0 < mask.mean().item() < 1
