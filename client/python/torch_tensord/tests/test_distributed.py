"""torch.distributed with the backend "tensord": a process for each device, as torchrun starts them."""

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")

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
    dist.all_reduce(x(), op=dist._make_nccl_premul_sum(2.0))
except NotImplementedError as error:
    answers["premultiplied"] = str(error)
dist.destroy_process_group()
print(json.dumps(answers))
""")
    same = {
        "SUM": [3, 10],
        "AVG": [1.5, 5],
        "MAX": [2, 10],
        "MIN": [1, 0],
        "bool": [True, False],
        "bytes": [0, 3],
        "broadcast": [2, 10],
        "all_gather": [[1, 0], [2, 10]],
        "all_gather_into_tensor": [1, 0, 2, 10],
        "strided": [[0, 6], [3, 9]],
        "cpu": [2, 1],
        "objects": [{"rank": 0}, {"rank": 1}],
    }
    for answers in (first, second):
        assert {name: answers[name] for name in same} == same
        assert "isn't implemented by the backend tensord: it has SUM" in answers["premultiplied"]
    assert first["reduce_scatter"] == first["reduce_scatter_tensor"] == [3]
    assert second["reduce_scatter"] == second["reduce_scatter_tensor"] == [10]
    assert first["reduce"] == [3, 10]
    assert first["scatter"] == [1, 0] and second["scatter"] == [2, 1]


def test_reductions_by_product_and_bits(run_ranks):
    first, second = run_ranks("""
dist.init_process_group("tensord")
answers = {}
def x(): return torch.tensor([2.0 + rank, -3.0, 0.5, 4.0], device=device)
def n(): return torch.tensor([5 + rank, 12, 2, 3], dtype=torch.int32, device=device)
t = x(); dist.all_reduce(t, op=dist.ReduceOp.PRODUCT); answers["product"] = t.tolist()
t = n(); dist.all_reduce(t, op=dist.ReduceOp.PRODUCT); answers["integers"] = t.tolist(); assert t.dtype == torch.int32
for op in ("BAND", "BOR", "BXOR"):
    t = n(); dist.all_reduce(t, op=getattr(dist.ReduceOp, op)); answers[op] = t.tolist()
t = torch.zeros(2, device=device); dist.reduce_scatter_tensor(t, x(), op=dist.ReduceOp.PRODUCT)
answers["part"] = t.tolist()
t = x(); dist.reduce(t, 1, op=dist.ReduceOp.PRODUCT); answers["reduce"] = t.tolist()
t = torch.tensor([True, rank == 0], device=device); dist.all_reduce(t, op=dist.ReduceOp.PRODUCT)
answers["bool"] = t.tolist()
dist.barrier()
dist.destroy_process_group()
print(json.dumps(answers))
""")
    for answers in (first, second):
        assert answers["product"] == [6, 9, 0.25, 16] and answers["integers"] == [30, 144, 4, 9]
        assert (answers["BAND"], answers["BOR"], answers["BXOR"]) == ([4, 12, 2, 3], [7, 12, 2, 3], [3, 0, 0, 0])
        assert answers["bool"] == [True, False]
    assert first["part"] == [6, 9] and second["part"] == [0.25, 16]
    assert first["reduce"] == [2, -3, 0.5, 4] and second["reduce"] == [6, 9, 0.25, 16]


def test_messages_between_two_members(run_ranks):
    first, second = run_ranks("""
dist.init_process_group("tensord")
other, answers = 1 - rank, {}
def x(value=1.0): return torch.full((2, 3), value + 10 * rank, device=device)
def empty(): return torch.zeros(2, 3, device=device)
if rank == 0:
    dist.send(x(), 1); dist.send(x(2.0), 1); dist.send(torch.arange(3), 1, tag=7)
    t = empty(); assert dist.recv(t) == 1; answers["any"] = t[0, 0].item()
else:
    late = torch.zeros(3, dtype=torch.int64); dist.recv(late, 0, tag=7); answers["tag"] = late.tolist()
    a, b = empty(), empty(); dist.recv(a, 0); assert dist.recv(b, src=0) == 0
    answers["order"] = [a[0, 0].item(), b[0, 0].item()]
    dist.send(x().t().contiguous().t(), 0)
if rank == 0:
    dist.send(torch.tensor(6.0, device=device), 1); dist.send(torch.arange(6.0, device=device), 1)
else:
    one, many = torch.zeros(1, device=device), torch.zeros(3, 2, device=device).t()
    dist.recv(one, 0); dist.recv(many, 0); answers["shapes"] = [one.tolist(), many.tolist()]
received = empty()
works = [dist.irecv(received, other), dist.isend(x(3.0), other)]  # each member receives before it sends
for work in works: work.wait()
answers["both"] = received.tolist(); assert all(work.is_completed() for work in works)
mine = x(4.0)
ops = [dist.P2POp(dist.irecv, received, other), dist.P2POp(dist.isend, mine, other)]
for work in dist.batch_isend_irecv(ops): work.wait()
mine.zero_()
answers["batch"] = received[1, 2].item()
if rank == 0:
    dist.send_object_list([{"a": 1}, "b"], 1)
else:
    objects = [None, None]; dist.recv_object_list(objects, 0); answers["objects"] = objects
if rank == 0:
    try:
        dist.send(x()[torch.tensor([9], device=device)], 1)
    except RuntimeError as error:
        answers["failed"] = str(error)
    dist.send(x(), 1)
else:
    try:
        dist.recv(torch.zeros(5, device=device), 0)
    except RuntimeError as error:
        answers["wrong"] = str(error)
dist.barrier()
dist.destroy_process_group()
print(json.dumps(answers))
""")
    assert first["any"] == 11 and second["tag"] == [0, 1, 2] and second["order"] == [1, 2]
    assert first["both"] == [[13] * 3] * 2 and second["both"] == [[3] * 3] * 2
    assert first["batch"] == 14 and second["batch"] == 4
    assert second["objects"] == [{"a": 1}, "b"]
    assert second["shapes"] == [[6], [[0, 1, 2], [3, 4, 5]]]
    assert "the message has the shape [2, 3]" in second["wrong"]
    assert first["failed"].startswith("x[index]: index 9 at [0]")


def test_receives_get_the_messages_in_the_order_of_the_calls(run_ranks):
    first, second = run_ranks("""
import datetime
dist.init_process_group("tensord", timeout=datetime.timedelta(seconds=120))
answers = {}
if rank == 0:
    for i in range(3): dist.send(torch.full((1,), float(i), device=device), 1)
else:
    received = [torch.zeros(1, device=device) for _ in range(3)]
    works = [dist.irecv(received[0]), dist.irecv(received[1], 0), dist.irecv(received[2])]  # two from any member
    for work in reversed(works): work.wait()
    answers["order"] = [each.item() for each in received]
dist.barrier()
dist.destroy_process_group()
print(json.dumps(answers))
""")
    assert second["order"] == [0, 1, 2]


def test_a_receive_from_any_member_ends_at_the_timeout(run_ranks):
    (message,) = run_ranks(
        """
import datetime
dist.init_process_group("tensord", timeout=datetime.timedelta(seconds=3))
try:
    dist.recv(torch.zeros(1, device=device), tag=3)
except RuntimeError as error:
    print(json.dumps(str(error)))
dist.destroy_process_group()
""",
        size=1,
    )
    assert "recv: no member has sent a message with the tag 3 in time" in message


def test_a_rank_outside_the_group_is_an_error(run_ranks):
    (messages,) = run_ranks(
        """
dist.init_process_group("tensord")
x = torch.zeros(1, device=device)
messages = []
for call in (
    lambda: dist.send(x, 7), lambda: dist.irecv(x, 7), lambda: dist.broadcast(x, 7),
    lambda: dist.reduce(x, 7), lambda: dist.gather(x, dst=7), lambda: dist.scatter(x, src=7),
):
    try:
        call()
    except ValueError as error:
        messages.append(str(error))
dist.destroy_process_group()
print(json.dumps(messages))
""",
        size=1,
    )
    assert len(messages) == 6
    assert all("the group has no member 7: ranks are from 0 to 0" in message for message in messages)


def test_a_receive_continues_after_a_timeout(run_ranks):
    first, second = run_ranks("""
import datetime
dist.init_process_group("tensord")
answer = None
if rank == 0:
    received = torch.zeros(1, device=device)
    work = dist.irecv(received, 1, tag=4)
    try:
        work.wait(datetime.timedelta(milliseconds=50))
    except RuntimeError as error:
        answer = str(error)
    try:
        work.wait(5)
    except TypeError as error:
        assert "must be a datetime.timedelta, not int" in str(error)
    assert not work.is_completed()
    dist.barrier()
    work.wait()
    assert received.item() == 5 and work.is_completed()
else:
    dist.barrier()  # the receiver has stopped waiting
    dist.send(torch.full((1,), 5.0, device=device), 0, tag=4)
dist.destroy_process_group()
print(json.dumps(answer))
""")
    assert "recv: member 1 has not sent a message with the tag 4 in time" in first


def test_a_receive_that_fails_is_not_complete(run_ranks):
    first, second = run_ranks("""
import tensord
dist.init_process_group("tensord")
errors = []
if rank == 0:
    received = torch.zeros(1, device=device)
    work = dist.irecv(received, 1)
    current_connection, tensord.current_connection = tensord.current_connection, lambda: None
    for _ in range(2):
        try:
            work.wait()
        except RuntimeError as error:
            errors.append(str(error))
    assert not work.is_completed()
    tensord.current_connection = current_connection
    work.wait()
    assert received.item() == 5 and work.is_completed()
else:
    dist.send(torch.full((1,), 5.0, device=device), 0)
dist.destroy_process_group()
print(json.dumps(errors))
""")
    assert len(first) == 2 and all("this process has no connection" in error for error in first)


def test_operations_write_to_parameters(run_ranks):
    first, second = run_ranks("""
dist.init_process_group("tensord")
def parameter(): return nn.Parameter(torch.tensor([1.0 + rank], device=device))
a, b, c = parameter(), parameter(), parameter()
dist.all_reduce(a); dist.broadcast(b, 1)
if rank == 0: dist.send(c, 1)
else: dist.irecv(c, 0).wait()
squared = a ** 2; squared.backward()
dist.barrier()
dist.destroy_process_group()
print(json.dumps([a.item(), b.item(), c.item(), a.grad.item()]))
""")
    assert first == second == [3, 2, 1, 6]


def test_a_message_outlives_the_call_that_sends_it(run_ranks):
    # The sender's process ends at once after destroy_process_group().
    first, second = run_ranks("""
dist.init_process_group("tensord")
if rank == 0:
    t = torch.zeros(3, device=device); dist.recv(t, 1)
    print(json.dumps(t.tolist()))
else:
    dist.send(torch.ones(3, device=device), 0)
    print(json.dumps(None))
dist.destroy_process_group()
""")
    assert first == [1, 1, 1]


@pytest.mark.parametrize("end", ["dist.destroy_process_group()", "", "raise SystemExit(0)"])
def test_a_member_that_drops_its_results_and_leaves_takes_none_from_the_others(run_ranks, end):
    first, second = run_ranks(
        """
dist.init_process_group("tensord")
store = dist.distributed_c10d._get_default_store()
x = torch.ones(1000, device=device)
dist.barrier()
results = []
if rank == 0:
    store.wait(["called"])  # the other member has called all operations, and is leaving
for _ in range(10):
    y = torch.empty(2000, device=device)
    dist.all_gather_into_tensor(y, x)
    if rank == 0: results.append(y)
    del y
if rank == 1: store.set("called", "")
print(json.dumps(sum(each.sum() for each in results).item() if rank == 0 else None), flush=True)
"""
        + end
    )
    assert first == 20000


def test_a_message_that_the_receiver_drops_is_not_an_error(run_ranks):
    answers = run_ranks("""
dist.init_process_group("tensord")
for _ in range(5):
    x = torch.ones(16, device=device)
    work = dist.isend(x, 1) if rank == 0 else dist.irecv(x, 0)
    work.wait()
    del x, work
    torch.tensord.synchronize()
dist.destroy_process_group()
print(json.dumps("done"))
""")
    assert answers == ["done", "done"]


def test_operations_keep_the_versions_of_tensors(run_ranks):
    first, second = run_ranks("""
dist.init_process_group("tensord")
def x(): return torch.tensor([1.0 + rank, 3.0], device=device)
changed = []
def check(name, tensors, call):
    versions = [tensor._version for tensor in tensors]
    work = call()
    if work is not None: work.wait()
    if versions != [tensor._version for tensor in tensors]: changed.append(name)
t, parts, double, half = x(), [x(), x()], torch.zeros(4, device=device), torch.zeros(1, device=device)
check("all_reduce", [t], lambda: dist.all_reduce(t))
check("broadcast", [t], lambda: dist.broadcast(t, 0))
check("reduce", [t], lambda: dist.reduce(t, 0))
check("all_gather", parts + [t], lambda: dist.all_gather(parts, t))
check("all_gather_into_tensor", [double, t], lambda: dist.all_gather_into_tensor(double, t))
check("reduce_scatter", [half], lambda: dist.reduce_scatter(half, list(t.split(1))))
check("reduce_scatter_tensor", [half, t], lambda: dist.reduce_scatter_tensor(half, t))
check("gather", parts, lambda: dist.gather(t, parts if rank == 0 else None, dst=0))
check("scatter", [t], lambda: dist.scatter(t, parts if rank == 0 else None, src=0))
check("all_to_all", parts, lambda: dist.all_to_all(parts, [x(), x()]))
check("all_to_all_single", [t], lambda: dist.all_to_all_single(t, x()))
check("all_to_all_single with sizes", [t], lambda: dist.all_to_all_single(t, x(), [1, 1], [1, 1]))
check("recv", [t], lambda: dist.recv(t, 1) and None if rank == 0 else dist.send(x(), 0))
check("irecv", [t], lambda: dist.irecv(t, 1) if rank == 0 else dist.isend(x(), 0))
cpu = torch.ones(2); check("all_reduce on the CPU", [cpu], lambda: dist.all_reduce(cpu))
w = x().requires_grad_()
y = w.exp()                         # backward() reads y
dist.all_reduce(y.detach(), async_op=True).wait()
y.sum().backward()
with torch.inference_mode(): dist.all_reduce(torch.ones(2, device=device))
dist.barrier()
dist.destroy_process_group()
print(json.dumps([changed, (w.grad - y).abs().max().item()]))
""")
    assert first == second == [[], 0]


def test_works_report_their_state_and_results(run_ranks):
    first, second = run_ranks("""
dist.init_process_group("tensord")
x = torch.full((2,), 1.0 + rank, device=device)
work = dist.all_reduce(x, async_op=True)
assert work.wait() and work.is_completed()
half = work.get_future().then(lambda future: future.value()[0] / 2).wait()
answers = [half.tolist(), work.result()[0].tolist()]
received = [torch.zeros(1, device=device) for _ in range(2)]
works = [dist.irecv(each, 1 - rank, tag=5) for each in received]
assert not works[0].is_completed()
dist.barrier()
for i in range(2): dist.isend(torch.full((1,), 10.0 * rank + i, device=device), 1 - rank, tag=5)
while not works[0].is_completed(): pass
works[1].get_future().wait()
assert works[1].is_completed() and works[0].wait()
answers.append([each.item() for each in received])
dist.barrier()
dist.destroy_process_group()
print(json.dumps(answers))
""")
    assert first == [[1.5, 1.5], [3, 3], [10, 11]] and second == [[1.5, 1.5], [3, 3], [0, 1]]


def test_invalid_arguments_are_errors_and_the_group_continues(run_ranks):
    first, second = run_ranks("""
dist.init_process_group("tensord")
def x(*shape, **options): return torch.ones(*shape, device=device, **options)
errors = []
for call in (
    lambda: dist.all_gather_into_tensor(x(3), x(2)),
    lambda: dist.all_gather_into_tensor(x(4, dtype=torch.int64), x(2)),
    lambda: dist.all_gather([x(2), x(1)], x(2)),
    lambda: dist.all_gather([x(2)], x(2)),
    lambda: dist.reduce_scatter_tensor(x(3), x(4)),
    lambda: dist.reduce_scatter(x(2), [x(2)]),
    lambda: dist.all_to_all([x(2)], [x(2)]),
    lambda: dist.all_to_all_single(x(2, dtype=torch.int64), x(2)),
):
    try:
        call()
        errors.append("none")
    except (TypeError, ValueError) as error:
        errors.append(type(error).__name__)
t = x(2); dist.all_reduce(t); assert t.tolist() == [2, 2]
group = dist.new_group([0, 1])
dist.all_reduce(t, group=group); assert t.tolist() == [4, 4]
dist.destroy_process_group(group)
for call in (lambda: group.allreduce([t]), lambda: dist.all_reduce(t, group=group)):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        errors.append(str(error))
try:
    dist.split_group(split_ranks=[[0, 1]])
except RuntimeError as error:
    errors.append(str(error))
dist.barrier()
dist.destroy_process_group()
print(json.dumps(errors))
""")
    for errors in (first, second):
        assert errors[:8] == [
            "ValueError",
            "TypeError",
            "ValueError",
            "ValueError",
            "ValueError",
            "ValueError",
            "ValueError",
            "ValueError",
        ]
        assert errors[8] == "torch.distributed: allreduce: the process group was destroyed"
        assert "is not initialized" in errors[9]
        assert ("does not support splitting" if torch.__version__ >= (2, 12) else "split") in errors[10]


def test_objects_and_coalesced_operations(run_ranks):
    first, second = run_ranks("""
from torch.distributed.distributed_c10d import _coalescing_manager
dist.init_process_group("tensord")
answers = {}
objects = [rank, {"rank": rank}]; dist.broadcast_object_list(objects, 1); answers["broadcast"] = objects
objects = [None, None] if rank == 0 else None; dist.gather_object(rank, objects, dst=0); answers["gather"] = objects
objects = [None]; dist.scatter_object_list(objects, ["a", "b"] if rank == 0 else None, src=0); answers["scatter"] = objects
a, b, c = torch.ones(2, device=device), torch.ones(3, device=device), torch.zeros(4, device=device)
with _coalescing_manager(async_ops=True) as works:
    dist.all_reduce(a); dist.all_reduce(b)
works.wait()
with _coalescing_manager(device=device, async_ops=True) as works:
    dist.all_gather_into_tensor(c, a * (rank + 1))
works.wait()
answers["coalesced"] = [a.tolist(), b.tolist(), c.tolist()]
dist.barrier(device_ids=[rank]); dist.barrier(async_op=True).wait()
dist.destroy_process_group()
print(json.dumps(answers))
""")
    for answers in (first, second):
        assert answers["broadcast"] == [1, {"rank": 1}]
        assert answers["coalesced"] == [[2, 2], [2, 2, 2], [2, 2, 4, 4]]
    assert (first["gather"], second["gather"]) == ([0, 1], None)
    assert (first["scatter"], second["scatter"]) == (["a"], ["b"])


def test_all_to_all_sends_a_part_from_each_member_to_each(run_ranks):
    first, second = run_ranks("""
dist.init_process_group("tensord")
answers = {}
x = torch.arange(8.0, device=device).view(4, 2) + 100 * rank
t = torch.zeros(4, 2, device=device); dist.all_to_all_single(t, x); answers["equal"] = t[:, 0].tolist()
sizes = ([1, 3], [2, 2])[rank]
t = torch.zeros([3, 5][rank], 2, device=device)
dist.all_to_all_single(t, x, output_split_sizes=[[1, 2], [3, 2]][rank], input_split_sizes=sizes)
answers["split"] = t[:, 0].tolist()
parts = [torch.zeros(2, 3, device=device), torch.zeros(rank + 1, device=device)] if rank == 0 else \
        [torch.zeros(1, device=device), torch.zeros(2, device=device)]
given = [torch.ones(2, 3, device=device) * 5, torch.ones(1, device=device) * 6] if rank == 0 else \
        [torch.ones(1, device=device) * 7, torch.ones(2, device=device) * 8]
dist.all_to_all(parts, given); answers["lists"] = [part.tolist() for part in parts]
try:
    dist.all_to_all_single(torch.zeros(3, device=device), torch.zeros(3, device=device))
except ValueError as error:
    answers["odd"] = str(error)
try:
    dist.all_to_all_single(torch.zeros(4, device=device), torch.zeros(5, device=device), [2, 2])
except ValueError as error:
    answers["sum"] = str(error)
a = torch.zeros(2, 2, device=device); dist.gather(x[0], [a[0], a[1]] if rank == 1 else None, dst=1)
answers["gather"] = a.tolist()
dist.barrier()
dist.destroy_process_group()
print(json.dumps(answers))
""")
    assert first["equal"] == [0, 2, 100, 102] and second["equal"] == [4, 6, 104, 106]
    assert first["split"] == [0, 100, 102] and second["split"] == [2, 4, 6, 104, 106]
    assert first["lists"] == [[[5] * 3] * 2, [7]] and second["lists"] == [[6], [8, 8]]
    assert "must be the same multiple of the 2 members" in first["odd"]
    assert "the sizes of the parts, [2, 2], must have the sum 5" in first["sum"]
    assert first["gather"] == [[0, 0], [0, 0]] and second["gather"] == [[0, 1], [100, 101]]


def test_data_parallel_training_is_that_of_one_process_with_the_whole_batch(run_ranks):
    first, second = run_ranks(
        TRAINING
        + """
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
"""
    )
    losses, weights, alone, compiled_losses = first
    assert losses == pytest.approx(alone, rel=1e-5)
    assert compiled_losses == pytest.approx(alone, rel=1e-5)
    assert weights == second[1]


def test_another_backend_refuses_the_device(run_ranks):
    (message,) = run_ranks(
        """
dist.init_process_group("gloo")
try:
    dist.all_reduce(torch.zeros(1, device=device))
    print(json.dumps("no error"))
except Exception as error:
    print(json.dumps(str(error)))
""",
        size=1,
    )
    assert "tensord" in message
