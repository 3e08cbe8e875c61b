"""torch.distributed with the backend "tensord": a process for each device, as torchrun starts them."""

import json
import os
import socket
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")

SETUP = """
import json, os, sys
import torch
import torch.distributed as dist
from torch import nn
rank = int(os.environ["RANK"])
device = torch.device("tensord", rank)
torch.tensord.set_device(rank)
"""
TRAINING = """
def make_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).to(device)
def train(model, x, y, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    losses = []
    for _ in range(steps):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return torch.stack(losses)
torch.manual_seed(1)
x, y = torch.randn(8, 6).to(device), torch.randint(3, (8,)).to(device)
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def run_ranks(address):
    """Returns a function that runs a program as two processes, and returns what each printed as JSON."""

    def run(program, size=2):
        port = free_port()
        processes = []
        for rank in range(size):
            variables = {
                **os.environ, "TENSORD_SERVER": address, "RANK": str(rank), "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            }
            processes.append(subprocess.Popen([sys.executable, "-c", SETUP + program], env=variables, text=True,
                                              stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        answers = []
        for process in processes:
            out, err = process.communicate(timeout=240)
            assert process.returncode == 0, err[-3000:]
            answers.append(json.loads(out.splitlines()[-1]))
        return answers

    return run


def test_operations(run_ranks):
    first, second = run_ranks("""
dist.init_process_group("tensord")
assert dist.get_backend() == "tensord" and dist.get_world_size() == 2 and dist.get_rank() == rank
answers = {}
def keep(name, x): answers[name] = x.tolist()
def x(): return torch.tensor([1.0 + rank, 10.0 * rank], device=device)
for op in ("SUM", "AVG", "MAX", "MIN"):
    t = x(); dist.all_reduce(t, op=getattr(dist.ReduceOp, op)); keep(op, t)
t = torch.tensor([rank == 0, False], device=device); dist.all_reduce(t, op=dist.ReduceOp.MAX); keep("bool", t)
t = torch.tensor([rank, 3], dtype=torch.uint8, device=device); dist.all_reduce(t, op=dist.ReduceOp.MIN); keep("bytes", t)
t = x(); dist.broadcast(t, 1); keep("broadcast", t)
parts = [torch.zeros(2, device=device) for _ in range(2)]
dist.all_gather(parts, x()); keep("all_gather", torch.stack(parts))
t = torch.zeros(4, device=device); dist.all_gather_into_tensor(t, x()); keep("all_gather_into_tensor", t)
t = torch.zeros(1, device=device); dist.reduce_scatter(t, list(x().split(1))); keep("reduce_scatter", t)
t = torch.zeros(1, device=device); dist.reduce_scatter_tensor(t, x()); keep("reduce_scatter_tensor", t)
t = x(); dist.reduce(t, 0); keep("reduce", t)
t = torch.arange(4.0, device=device).view(2, 2).t() * (rank + 1); dist.all_reduce(t); keep("strided", t)
work = dist.all_reduce(x(), async_op=True); work.wait(); assert work.is_completed()
objects = [None, None]; dist.all_gather_object(objects, {"rank": rank}); answers["objects"] = objects
dist.barrier()
t = torch.tensor([1, rank]); dist.all_reduce(t); keep("cpu", t)
t = torch.zeros(2, device=device); dist.scatter(t, [x(), x() + 1] if rank == 0 else None, src=0); keep("scatter", t)
try:
    dist.all_reduce(x(), op=dist.ReduceOp.PRODUCT)
except NotImplementedError as error:
    answers["product"] = str(error)
dist.destroy_process_group()
print(json.dumps(answers))
""")
    same = {
        "SUM": [3, 10], "AVG": [1.5, 5], "MAX": [2, 10], "MIN": [1, 0], "bool": [True, False], "bytes": [0, 3], "broadcast": [2, 10],
        "all_gather": [[1, 0], [2, 10]], "all_gather_into_tensor": [1, 0, 2, 10], "strided": [[0, 6], [3, 9]],
        "cpu": [2, 1], "objects": [{"rank": 0}, {"rank": 1}],
    }
    for answers in (first, second):
        assert {name: answers[name] for name in same} == same
        assert "PRODUCT" in answers["product"]
    assert first["reduce_scatter"] == first["reduce_scatter_tensor"] == [3]
    assert second["reduce_scatter"] == second["reduce_scatter_tensor"] == [10]
    assert first["reduce"] == [3, 10]
    assert first["scatter"] == [1, 0] and second["scatter"] == [2, 1]


def test_data_parallel_training_is_that_of_one_process_with_the_whole_batch(run_ranks):
    first, second = run_ranks(TRAINING + """
dist.init_process_group("tensord")
model = nn.parallel.DistributedDataParallel(make_model())
part = slice(rank * 4, rank * 4 + 4)
losses = train(model, x[part], y[part])
dist.all_reduce(losses, op=dist.ReduceOp.AVG)
weights = [p.tolist() for p in model.parameters()]
compiled = torch.compile(nn.parallel.DistributedDataParallel(make_model()), backend="tensord")
compiled_losses = train(compiled, x[part], y[part])
dist.all_reduce(compiled_losses, op=dist.ReduceOp.AVG)
dist.destroy_process_group()
print(json.dumps([losses.tolist(), weights, train(make_model(), x, y).tolist(), compiled_losses.tolist()]))
""")
    losses, weights, alone, compiled_losses = first
    assert losses == pytest.approx(alone, rel=1e-5)
    assert compiled_losses == pytest.approx(alone, rel=1e-5)
    assert weights == second[1]


def test_another_backend_refuses_the_device(run_ranks):
    (message,) = run_ranks("""
dist.init_process_group("gloo")
try:
    dist.all_reduce(torch.zeros(1, device=device))
    print(json.dumps("no error"))
except Exception as error:
    print(json.dumps(str(error)))
""", size=1)
    assert "tensord" in message
