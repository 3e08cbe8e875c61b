"""torch_tensord.as_cuda(): programs that say "cuda"."""

import contextlib
import io
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import torch_tensord


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


def test_end_of_the_context_restores_pytorch():
    with torch_tensord.as_cuda():
        with pytest.raises(RuntimeError, match="in effect already"):
            torch_tensord.as_cuda()
    assert not torch.cuda.is_available()
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(1, device="cuda")
    assert torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.parametrize("named", ["cuda", "tensord"])
@pytest.mark.parametrize("device_ids", [None, [1], [0, 1]])
def test_data_parallel_uses_one_device(named, device_ids):
    context = torch_tensord.as_cuda() if named == "cuda" else contextlib.nullcontext()
    with context, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = nn.Linear(3, 2).to(f"{named}:{device_ids[0] if device_ids else 0}")
        parallel = nn.DataParallel(module, device_ids)
        x = torch.ones(4, 3)
        made = parallel(x.to(module.weight.device))
        assert torch.equal(made, module(x.to(module.weight.device))) and made.device == module.weight.device
        assert parallel(x).device == module.weight.device  # DataParallel copies inputs from the CPU
        made.sum().backward()
    assert module.weight.grad.cpu().tolist() == [[4, 4, 4]] * 2
    messages = [str(each.message) for each in caught if "DistributedDataParallel" in str(each.message)]
    assert len(messages) == (0 if device_ids == [1] else 1)
    assert torch.equal(nn.DataParallel(nn.Identity())(torch.ones(2)).cpu(), torch.ones(2))
