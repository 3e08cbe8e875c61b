"""Which calls wait for the server, and events."""

import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F

DEVICE = "tensord"


def waits():
    return torch.tensord.wait_stats()["waits"]


def mlp():
    return nn.Sequential(nn.Linear(12, 32), nn.LayerNorm(32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 3))


def cnn():
    return nn.Sequential(
        nn.Unflatten(1, (3, 2, 2)), nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(),
        nn.Linear(32, 3),
    )  # fmt: skip


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(16, 12)
        self.layer = nn.TransformerEncoderLayer(12, 2, 24, batch_first=True)
        self.head = nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.layer(self.embedding(x.abs().clamp(max=15).long())).mean(1))


OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9}),
    (torch.optim.Adam, {"lr": 0.01}),
    (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
]


@pytest.mark.parametrize("make", [mlp, cnn, Transformer])
@pytest.mark.parametrize("optimizer, options", OPTIMIZERS)
def test_a_training_step_does_not_wait(make, optimizer, options):
    module = make().to(DEVICE)
    stepper = optimizer(module.parameters(), **options)
    schedule = torch.optim.lr_scheduler.StepLR(stepper, 2)
    x, y = torch.randn(64, 12).pin_memory(), torch.randint(0, 3, (64,)).pin_memory()
    total = torch.zeros((), device=DEVICE)
    before = torch.tensord.wait_stats()
    torch.tensord.set_sync_debug_mode("error")
    try:
        for _ in range(4):
            loss = F.cross_entropy(module(x.to(DEVICE, non_blocking=True)), y.to(DEVICE, non_blocking=True))
            stepper.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            stepper.step()
            schedule.step()
            total += loss.detach()
    finally:
        torch.tensord.set_sync_debug_mode("default")
    assert {**torch.tensord.wait_stats(), "seconds": before["seconds"]} == before
    assert torch.isfinite(total).item()


def test_large_uploads_that_do_not_block_do_not_wait():
    x = torch.randn(1 << 20)
    torch.zeros(1, device=DEVICE)
    before = waits()
    y = x.to(DEVICE, non_blocking=True)
    assert waits() == before
    assert torch.equal(y.cpu(), x)


WAITING = {
    "item": lambda x: x.sum().item(),
    "bool": lambda x: bool(x.sum() > 0),
    "int": lambda x: int(x.sum()),
    "tolist": lambda x: x.tolist(),
    "cpu": lambda x: x.cpu(),
    "numpy": lambda x: x.cpu().numpy(),
    "print": repr,
    "nonzero": lambda x: x.nonzero(),
    "masked_select": lambda x: x.masked_select(x > 0),
    "mask": lambda x: x[x > 0],
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x + 0),
    "synchronize": lambda x: torch.tensord.synchronize(),
    "memory": lambda x: torch.tensord.mem_get_info(),
}


@pytest.mark.parametrize("call", WAITING.values(), ids=list(WAITING))
def test_calls_that_return_values_wait(call):
    x = torch.arange(6.0, device=DEVICE) - 2
    before = waits()
    call(x)
    assert waits() > before


NOT_WAITING = {
    "indexing": lambda x: x[torch.tensor([1, 2], device=DEVICE)] + x[2:].sum() + x[-1],
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "assignment": lambda x: x.__setitem__(slice(1, 3), 5.0),
    "mask_assignment": lambda x: x.__setitem__(x > 0, 0.0),
    "sort": lambda x: x.sort(),
    "topk": lambda x: x.topk(2),
    "random": lambda x: torch.randn_like(x) + torch.randint(0, 3, (6,), device=DEVICE),
    "multinomial": lambda x: torch.multinomial(x.abs() + 1, 2),
    "one_hot": lambda x: F.one_hot(torch.tensor([0, 2], device=DEVICE), 3),
    "device copy": lambda x: x.to("tensord:1").to("tensord:0"),
    "event": lambda x: torch.tensord.Event().record(),
    "number": lambda x: x * torch.tensor(2.0) + torch.tensor([1.0], device=DEVICE),
    "state_dict": lambda x: nn.Linear(2, 2, device=DEVICE).state_dict(),
    "deepcopy": lambda x: x.clone().requires_grad_().detach(),
}


@pytest.mark.parametrize("call", NOT_WAITING.values(), ids=list(NOT_WAITING))
def test_calls_whose_results_stay_on_the_device_do_not_wait(call):
    x = torch.arange(6.0, device=DEVICE) - 2
    before = waits()
    call(x)
    assert waits() == before


def test_an_event_happens_after_the_ops_before_it():
    x = torch.ones(300, 300, device=DEVICE) / 300
    start, end = torch.tensord.Event(enable_timing=True), torch.tensord.Event(enable_timing=True)
    assert end.query()  # it was never recorded
    before = waits()
    start.record()
    for _ in range(50):
        x = x @ x
    end.record()
    torch.tensord.current_stream().wait_event(end)
    end.wait()
    assert waits() == before
    end.synchronize()
    assert start.query() and end.query() and start.elapsed_time(end) > 0
    assert waits() <= before + 1
    end.record()  # a second time
    while not end.query():
        pass
    while not torch.tensord.current_stream().query():
        pass
    assert waits() <= before + 1


def test_a_program_records_events_without_a_limit():
    x = torch.ones(3, device=DEVICE)
    event = torch.tensord.Event()
    for _ in range(200_000):
        event.record()
    event.synchronize()
    assert x.tolist() == [1, 1, 1]


def test_the_streams_of_two_devices_of_a_server_both_become_idle():
    made = [torch.ones(100, 100, device=f"{DEVICE}:{i}") @ torch.ones(100, device=f"{DEVICE}:{i}") for i in range(2)]
    streams = [torch.tensord.current_stream(i) for i in range(2)]
    deadline = time.monotonic() + 60
    while not all([stream.query() for stream in streams]):  # a list: each round asks both
        assert time.monotonic() < deadline
    assert [each[0].item() for each in made] == [100, 100]


def test_an_event_of_a_stopped_server_has_not_happened(run_python, start_daemon, stop_server):
    address, pid = start_daemon("--devices=cpu")
    program = """
import torch
x = torch.ones(3, device="tensord")
start, end = (torch.tensord.Event(enable_timing=True) for _ in range(2))
start.record()
start.synchronize()
stop_server()
x = x + 1
end.record()
print(start.query(), end.query(), torch.tensord.current_stream().query())
try:
    start.elapsed_time(end)
except RuntimeError as e:
    print(e)
os.kill(server, signal.SIGCONT)
end.synchronize()
print(end.query(), start.elapsed_time(end) > 0, x.tolist())
"""
    done = run_python(stop_server + program, TENSORD_SERVER=address, SERVER_PID=str(pid))
    lines = done.stdout.splitlines()
    assert lines[0] == "True False False" and lines[2] == "True True [2.0, 2.0, 2.0]", done.stdout + done.stderr
    assert "must be completed" in lines[1]
