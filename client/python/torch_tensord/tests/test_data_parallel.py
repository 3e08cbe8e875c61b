"""torch.nn.parallel on several devices: values and gradients are those of one device."""

import contextlib

import pytest
import torch
import torch_tensord
from torch import nn
from torch.nn.parallel import comm, gather, parallel_apply, replicate, scatter

DEVICES = [torch.device("tensord:0"), torch.device("tensord:1")]


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
        self.register_buffer("scale", torch.full((2,), 1.5))

    def forward(self, x, *, shift=None):
        y = self.last(torch.relu(self.first(x))) * self.scale
        return {"y": y if shift is None else y + shift, "mean": y.mean()}


def train(model, parallel, x, shift, target, steps=3):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = ((parallel(x, shift=shift)["y"] - target) ** 2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("named", ["tensord", "cuda"])
@pytest.mark.parametrize("device_ids", [None, [1], [1, 0], DEVICES], ids=str)
@pytest.mark.filterwarnings("ignore:.*asked to gather along dimension 0")
def test_data_parallel_trains_as_one_device(named, device_ids):
    context = torch_tensord.as_cuda() if named == "cuda" else contextlib.nullcontext()
    first = 1 if device_ids in ([1], [1, 0]) else 0
    torch.manual_seed(2)
    model = Model()
    reference = Model()
    reference.load_state_dict(model.state_dict())
    data = torch.randn(5, 3), torch.randn(5, 1), torch.randn(5, 2)  # the second device gets fewer rows
    expected = train(reference, reference, *data)
    with context:
        model.to(f"{named}:{first}")
        parallel = nn.DataParallel(model, device_ids)
        used = set()
        model.first.register_forward_hook(lambda module, given, made: used.add(made.device.index))
        x, shift, target = (each.to(f"{named}:{first}") for each in data)
        assert train(model, parallel, x, shift, target) == pytest.approx(expected, rel=1e-4)
        made = parallel(data[0], shift=data[1])["y"]  # DataParallel copies inputs from the CPU
        assert made.device == torch.device("tensord", first)
    torch.testing.assert_close(made.cpu(), reference(data[0], shift=data[1])["y"])
    for ours, theirs in zip(model.parameters(), reference.parameters()):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-6)
        assert ours.device == torch.device("tensord", first)
    assert used == ({0, 1} if device_ids is None or len(device_ids) == 2 else {1})


@pytest.mark.filterwarnings("ignore:.*asked to gather along dimension 0")
def test_data_parallel_gathers_the_loss_of_each_device():
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0)).to(DEVICES[0])

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, x):
            return self.model(x).mean()

    x = torch.randn(4, 3)
    losses = nn.DataParallel(Loss())(x)
    assert losses.shape == (2,) and losses.device == DEVICES[0]
    expected = model(x.to(DEVICES[0])).mean()
    assert losses.mean().item() == pytest.approx(expected.item(), rel=1e-5)
    losses.mean().backward()
    torch.testing.assert_close(model[0].weight.grad.cpu(), x.mean(0, keepdim=True))


def test_the_first_replica_updates_the_buffers_of_the_module():
    norm = nn.BatchNorm1d(2).to(DEVICES[0])
    x = torch.randn(6, 2)
    nn.DataParallel(norm)(x.to(DEVICES[0]))
    reference = nn.BatchNorm1d(2)
    reference(x[:3])
    torch.testing.assert_close(norm.running_mean.cpu(), reference.running_mean)
    torch.testing.assert_close(norm.running_var.cpu(), reference.running_var)
    assert norm.num_batches_tracked.item() == 1


def test_an_error_in_a_replica_names_it():
    with pytest.raises(RuntimeError, match="in replica 0 on device 0"):
        nn.DataParallel(nn.Linear(3, 2).to(DEVICES[0]))(torch.ones(4, 5, device=DEVICES[0]))


def test_data_parallel_without_gradients_and_of_the_function():
    model = nn.Linear(3, 2).to(DEVICES[0])
    x = torch.randn(4, 3, device=DEVICES[0])
    with torch.no_grad():
        torch.testing.assert_close(nn.DataParallel(model, output_device=1)(x).cpu(), model(x).cpu())
        assert nn.DataParallel(model, output_device=1)(x).device == DEVICES[1]
    made = torch.nn.parallel.data_parallel(model, x, [0, 1])
    torch.testing.assert_close(made, model(x))


@pytest.mark.parametrize("devices", [[0, 1], DEVICES, ["tensord:0", "tensord:1"]], ids=str)
def test_replicas_run_on_their_devices(devices):
    model = nn.Linear(3, 2).to(DEVICES[0])
    replicas = replicate(model, devices)
    assert [each.weight.device for each in replicas] == DEVICES
    x = torch.randn(4, 3)
    parts = scatter(x, devices)
    assert [each.device for each in parts] == DEVICES and [len(each) for each in parts] == [2, 2]
    made = parallel_apply(replicas, parts, devices=devices)
    joined = gather(made, devices[1])
    assert joined.device == DEVICES[1]
    torch.testing.assert_close(joined.cpu(), model(x.to(DEVICES[0])).cpu())
    joined.sum().backward()
    assert model.weight.grad.device == DEVICES[0]
    torch.testing.assert_close(model.weight.grad.cpu(), x.sum(0).expand(2, 3))


@pytest.mark.parametrize("source", ["cpu", "tensord:0", "tensord:1"])
def test_copies_have_the_values_and_devices_that_the_program_names(source):
    x = torch.arange(12.0).view(4, 3).to(source)
    copies = comm.broadcast(x, [0, 1])
    assert [each.device for each in copies] == DEVICES and all(torch.equal(each.cpu(), x.cpu()) for each in copies)
    out = [torch.zeros(4, 3, device=each) for each in DEVICES]
    assert all(a is b for a, b in zip(comm.broadcast(x, out=out), out))
    assert all(torch.equal(each.cpu(), x.cpu()) for each in out)
    for dim, sizes in ((0, None), (0, [1, 3]), (1, None), (-1, [2, 1])):
        parts = comm.scatter(x, [1, 0], sizes, dim)
        expected = x.cpu().chunk(2, dim) if sizes is None else x.cpu().split_with_sizes(sizes, dim)
        assert [each.device for each in parts] == DEVICES[::-1]
        assert all(torch.equal(each.cpu(), part) for each, part in zip(parts, expected))
    out = [torch.zeros(3, 3, device=DEVICES[1]), torch.zeros(1, 3, device=DEVICES[0])]
    comm.scatter(x, out=out)
    assert torch.equal(torch.cat([each.cpu() for each in out]), x.cpu())


def test_gathered_tensors_are_joined():
    parts = [torch.arange(6.0, device=DEVICES[0]).view(2, 3), torch.ones(1, 3, device=DEVICES[1])]
    expected = torch.cat([each.cpu() for each in parts])
    wanted = {0: DEVICES[0], DEVICES[1]: DEVICES[1], "cpu": torch.device("cpu"), None: DEVICES[0]}
    for destination, device in wanted.items():
        made = comm.gather(parts, 0, destination)
        assert made.device == device and torch.equal(made.cpu(), expected)
    for device in (*DEVICES, "cpu"):
        out = torch.zeros(3, 3, device=device)
        assert comm.gather(parts, out=out) is out and torch.equal(out.cpu(), expected)
    with torch.tensord.device(1):
        assert comm.gather(parts).device == DEVICES[1]
    tensors = [parts[0], torch.ones(2, device=DEVICES[0], dtype=torch.int64)]
    copies = comm.broadcast_coalesced(tensors, DEVICES)
    assert [[each.device for each in row] for row in copies] == [[device] * 2 for device in DEVICES]
    sums = comm.reduce_add_coalesced(copies, 1)
    assert [each.device for each in sums] == [DEVICES[1]] * 2
    assert torch.equal(sums[0].cpu(), parts[0].cpu() * 2) and sums[1].tolist() == [2, 2]
    assert comm.reduce_add([each[0] for each in copies], 0).device == DEVICES[0]


def test_sizes_and_devices_that_do_not_fit_are_errors():
    x = torch.ones(4, 3, device=DEVICES[0])
    with pytest.raises(RuntimeError, match="2 devices, but 3 sizes"):
        comm.scatter(x, [0, 1], [1, 1, 2])
    with pytest.raises(RuntimeError, match="sum"):
        comm.scatter(x, [0, 1], [1, 1])
    with pytest.raises(RuntimeError, match="size"):
        comm.gather([x, torch.ones(4, 2, device=DEVICES[1])])
    with pytest.raises(RuntimeError, match="tensord:7 doesn't exist"):
        comm.broadcast(x, [0, 7])
