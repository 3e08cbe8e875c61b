"""The default backend, meshes, and the parallel modules of PyTorch that are built on them."""

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")

MODEL = """
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
def make_model(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
torch.manual_seed(1)
x, y = torch.randn(4, 8), torch.randn(4, 4)
def train(model, x, y, steps=3):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
def full(tensor):
    return (tensor.full_tensor() if isinstance(tensor, DTensor) else tensor).detach().cpu()
def differences(model, expected):
    return max((full(a) - full(b)).abs().max().item() for a, b in zip(model.parameters(), expected.parameters()))
def trained_on_the_cpu():
    model = make_model()
    train(model, x, y)
    return model
dist.init_process_group("tensord", device_id=device)
mesh = init_device_mesh("tensord", (2,), mesh_dim_names=("data",))
part = slice(2 * rank, 2 * rank + 2)
"""
END = """
dist.barrier()
dist.destroy_process_group()
print(json.dumps(answers))
"""


def test_a_program_that_uses_only_the_cpu_has_gloo_and_no_connection(run_ranks):
    answers = run_ranks(
        """
import tensord
dist.init_process_group()
answers = []
def sum_of_ranks(device):
    t = torch.full((2,), float(dist.get_rank()), device=device)
    dist.all_reduce(t)
    return t.tolist()
answers.append(sum_of_ranks("cpu"))
objects = [None, None]; dist.all_gather_object(objects, dist.get_rank()); answers.append(objects)
dist.barrier()
mesh = dist.init_device_mesh("cpu", (2,)); dist.barrier(group=mesh.get_group())
group = dist.new_group([0, 1]); dist.barrier(group=group)
assert tensord.current_connection() is None and not torch.tensord.is_initialized()
torch.tensord.set_device(dist.get_rank())
answers.append(sum_of_ranks("tensord")); answers.append(sum_of_ranks("cpu"))
dist.barrier()
dist.destroy_process_group()
print(json.dumps(answers))
""",
        setup="import json, torch, torch.distributed as dist\n",
    )
    assert answers == [[[1, 1], [0, 1], [1, 1], [1, 1]]] * 2


@pytest.mark.skipif(torch.__version__ < (2, 12), reason="PyTorch 2.11 has monitored_barrier() for Gloo alone")
def test_monitored_barrier_of_the_default_backend(run_ranks):
    answers = run_ranks(
        """
dist.init_process_group()
dist.monitored_barrier()
dist.destroy_process_group()
print(json.dumps(torch.tensord.is_initialized()))
""",
        setup="import json, torch, torch.distributed as dist\n",
    )
    assert answers == [False] * 2


def test_the_default_backend_of_the_device(run_ranks):
    (answers,) = run_ranks(
        """
answers = [dist.get_default_backend_for_device(each) for each in ("tensord", device, "cpu")]
for device_type in ("cpu", "tensord"):
    mesh = dist.init_device_mesh(device_type, (1,))
    t = torch.ones(2, device=device_type); dist.all_reduce(t, group=mesh.get_group()); answers.append(t.tolist())
    dist.destroy_process_group()
dist.init_process_group(device_id=device)
group = dist.group.WORLD
answers += [dist.get_backend(), group.group_name != "", group.group_desc, group.name()]
dist.destroy_process_group()
print(json.dumps(answers))
""",
        size=1,
    )
    assert answers == ["tensord", "tensord", "gloo", [1, 1], [1, 1], "tensord", True, "default_pg", "tensord"]


def test_the_device_of_the_group_needs_not_be_the_current_one(run_ranks):
    answers = run_ranks(
        """
dist.init_process_group("tensord", device_id=torch.device("tensord", int(os.environ["RANK"])))
dist.barrier()
group = dist.new_group([0, 1]); dist.barrier(group=group)
t = torch.ones(1); dist.all_reduce(t, group=group)
dist.destroy_process_group()
print(json.dumps(t.item()))
""",
        setup="import json, os, torch, torch.distributed as dist\n",
    )
    assert answers == [2, 2]


def test_functional_collectives_and_distributed_tensors(run_ranks):
    first, second = run_ranks(
        MODEL
        + """
import torch.distributed._functional_collectives as functional
t, answers = torch.tensor([1.0 + rank, 2.0], device=device), {}
def keep(name, *tensors): answers[name] = [each.tolist() for each in tensors]
keep("all_reduce", functional.all_reduce(t, "sum", mesh))
keep("all_gather", functional.all_gather_tensor(t, 0, mesh))
keep("reduce_scatter", functional.reduce_scatter_tensor(t, "sum", 0, mesh))
keep("broadcast", functional.broadcast(t, 1, mesh))
keep("all_to_all", functional.all_to_all_single(t, None, None, mesh))
keep("all_to_all with sizes", functional.all_to_all_single(t, [1, 1], [1, 1], mesh))
keep("coalesced", *functional.all_reduce_coalesced([t, t + 1], "sum", mesh))
a, b = torch.arange(24.0).view(6, 4), torch.arange(12.0).view(4, 3)
rows = distribute_tensor(a.to(device), mesh, [Shard(0)])
columns = distribute_tensor(a.to(device), mesh, [Shard(1)])
whole = distribute_tensor(b.to(device), mesh, [Replicate()])
partial = columns @ distribute_tensor(b.to(device), mesh, [Shard(0)])
for name, made in (("rows", rows @ whole), ("partial", partial), ("scattered", partial.redistribute(mesh, [Shard(0)]))):
    answers[name] = torch.equal(full(made), a @ b)
grid = init_device_mesh("tensord", (2, 1), mesh_dim_names=("rows", "columns"))
dist.all_reduce(t, group=grid.get_group("rows")); dist.all_reduce(t, group=grid["columns"].get_group())
keep("grid", t)
gloo = dist.new_group([0, 1], backend="gloo"); t = torch.ones(1); dist.all_reduce(t, group=gloo)
keep("gloo", t)
keep("redistributed", rows.redistribute(mesh, [Shard(1)]).to_local())
"""
        + END
    )
    same = {
        "all_reduce": [[3, 4]],
        "all_gather": [[1, 2, 2, 2]],
        "broadcast": [[2, 2]],
        "coalesced": [[3, 4], [5, 6]],
        "grid": [[3, 4]],
        "gloo": [[2]],
        "rows": True,
        "partial": True,
        "scattered": True,
    }
    for answers in (first, second):
        assert {name: answers[name] for name in same} == same
        assert answers["all_to_all"] == answers["all_to_all with sizes"]
    assert (first["reduce_scatter"], second["reduce_scatter"]) == ([[3]], [[4]])
    assert (first["all_to_all"], second["all_to_all"]) == ([[1, 2]], [[2, 2]])
    assert first["redistributed"][0] == [[4 * i, 4 * i + 1] for i in range(6)]
    assert second["redistributed"][0] == [[4 * i + 2, 4 * i + 3] for i in range(6)]


def test_parallel_modules_train_as_one_process_does(run_ranks):
    answers = run_ranks(
        MODEL
        + """
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
answers, expected = {}, trained_on_the_cpu()
own, own_y = x[part].to(device), y[part].to(device)
replicated = nn.parallel.DistributedDataParallel(make_model().to(device))
train(replicated, own, own_y); answers["DistributedDataParallel"] = differences(replicated.module, expected)
sharded = make_model().to(device)
fully_shard(sharded[0], mesh=mesh); fully_shard(sharded, mesh=mesh)
train(sharded, own, own_y); answers["fully_shard"] = differences(sharded, expected)
split = parallelize_module(make_model().to(device), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
train(split, x.to(device), y.to(device)); answers["parallelize_module"] = differences(split, expected)
"""
        + END
    )
    for answer in answers:
        assert set(answer) == {"DistributedDataParallel", "fully_shard", "parallelize_module"}
        assert all(difference < 1e-4 for difference in answer.values()), answer


def test_a_pipeline_computes_the_gradients_of_its_stages(run_ranks):
    answers = run_ranks(
        MODEL
        + """
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
model, expected = make_model(), make_model()
nn.functional.mse_loss(expected(x), y).backward()
parts = [model[:2], model[2:]], [expected[:2], expected[2:]]
stage = PipelineStage(parts[0][rank].to(device), rank, 2, device)
schedule = Schedule1F1B(stage, n_microbatches=2, loss_fn=nn.functional.mse_loss)
made = schedule.step(x.to(device)) if rank == 0 else schedule.step(target=y.to(device))
gradients = zip(parts[0][rank].parameters(), parts[1][rank].parameters())
answers = [max((a.grad.cpu() - b.grad).abs().max().item() for a, b in gradients)]
answers.append((made.cpu() - expected(x)).abs().max().item() if rank == 1 else 0.0)
"""
        + END
    )
    assert all(difference < 1e-5 for answer in answers for difference in answer), answers


def test_a_checkpoint_of_a_sharded_model_is_loaded_again(run_ranks, tmp_path):
    answers = run_ranks(
        MODEL
        + f"""
import torch.distributed.checkpoint as checkpoint
saved, loaded = make_model(seed=0).to(device), make_model(seed=5).to(device)
fully_shard(saved, mesh=mesh); fully_shard(loaded, mesh=mesh)
checkpoint.save({{"model": saved.state_dict()}}, checkpoint_id={str(tmp_path)!r})
state = {{"model": loaded.state_dict()}}
checkpoint.load(state, checkpoint_id={str(tmp_path)!r})
loaded.load_state_dict(state["model"])
answers = differences(loaded, make_model(seed=0))
"""
        + END
    )
    assert answers == [0, 0]
