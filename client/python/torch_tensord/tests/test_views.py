"""Views, and ops in place: random programs give what they give on the CPU."""

import os
import random

import pytest
import torch

LONG = os.environ.get("TENSORD_TEST_LONG", "0") not in ("", "0")
PROGRAMS = 100_000 if LONG else 3000
STEPS = 8


def make_view(rng, x):
    """Returns a function that makes a random view of tensors of this shape."""
    choices = ["transpose", "select", "slice", "unsqueeze", "flatten", "expand", "diagonal", "unfold", "permute"]
    kind = rng.choice(choices)
    dims = x.dim()
    if kind == "transpose" and dims >= 2:
        a, b = rng.sample(range(dims), 2)
        return lambda t: t.transpose(a, b)
    if kind == "permute" and dims >= 2:
        order = rng.sample(range(dims), dims)
        return lambda t: t.permute(order)
    if kind == "select" and dims >= 1 and x.numel():
        d = rng.randrange(dims)
        i = rng.randrange(x.size(d))
        return lambda t: t.select(d, i)
    if kind == "slice" and dims >= 1:
        d = rng.randrange(dims)
        start = rng.randrange(x.size(d))
        stop = rng.randint(start + 1, x.size(d))
        step = rng.choice([1, 1, 2])
        return lambda t: t[(slice(None),) * d + (slice(start, stop, step),)]
    if kind == "unsqueeze" and dims < 4:
        d = rng.randint(0, dims)
        return lambda t: t.unsqueeze(d)
    if kind == "flatten" and x.is_contiguous():
        return lambda t: t.view(-1)
    if kind == "diagonal" and dims >= 2:
        return lambda t: t.diagonal(0, 0, 1)
    if kind == "unfold" and dims >= 1 and x.size(-1) >= 2:
        return lambda t: t.unfold(-1, 2, 2)
    return lambda t: t.detach()


def write(rng, x, others):
    """Returns a function that changes a tensor of this shape in place."""
    kind = rng.choice(["add", "mul", "fill", "copy", "zero", "set", "mask", "sub", "relu", "clamp", "index", "where"])
    number = rng.choice([2, 0.5, -1.0, 3])
    same = [i for i, o in enumerate(others) if o.shape == x.shape]
    if kind == "copy" and same:
        i = rng.choice(same)
        return lambda t, ts: t.copy_(ts[i].clone())
    if kind == "sub" and same:
        i = rng.choice(same)
        return lambda t, ts: t.sub_(ts[i].clone(), alpha=number)
    if kind == "add" and same and rng.random() < 0.5:
        i = rng.choice(same)
        return lambda t, ts: t.add_(ts[i].clone())
    if kind == "mul":
        return lambda t, ts: t.mul_(number)
    if kind == "fill":
        return lambda t, ts: t.fill_(number)
    if kind == "zero":
        return lambda t, ts: t.zero_()
    if kind == "mask":
        return lambda t, ts: t.masked_fill_(t > 0, number)
    if kind == "relu":
        return lambda t, ts: t.relu_()
    if kind == "clamp":
        return lambda t, ts: t.clamp_(-2, 2)
    if kind == "where":
        return lambda t, ts: t.copy_(torch.where(t > 1, t, -t))
    if kind == "set" and x.dim() >= 1:
        return lambda t, ts: t.__setitem__(0, number)
    if kind == "index" and x.dim() >= 1 and x.size(0) >= 2:
        return lambda t, ts: t.__setitem__(torch.tensor([0, 1], device=t.device), number)
    return lambda t, ts: t.add_(number)


def run_program(seed):
    rng = random.Random(seed)
    shape = rng.choice([(4,), (3, 4), (2, 3, 4), (4, 4), (1, 5), (2, 2, 2, 2)])
    base = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    if rng.random() < 0.2 and base.dim() == 4:
        base = base.to(memory_format=torch.channels_last)
    cpu = [base, torch.ones(shape)]
    ours = [x.to("tensord") for x in cpu]
    for _ in range(STEPS):
        i = rng.randrange(len(cpu))
        action = rng.random()
        if action < 0.45:
            view = make_view(rng, cpu[i])
            if view(cpu[i]).numel() == 0:
                continue
            cpu.append(view(cpu[i]))
            ours.append(view(ours[i]))
        elif action < 0.9:
            change = write(rng, cpu[i], cpu)
            change(cpu[i], cpu)
            change(ours[i], ours)
        else:
            cpu.append(cpu[i] * 2 + 1)
            ours.append(ours[i] * 2 + 1)
    for a, b in zip(cpu, ours):
        assert a.shape == b.shape and a.stride() == b.stride() and a.storage_offset() == b.storage_offset(), seed
        torch.testing.assert_close(b.cpu(), a, msg=lambda text: f"program {seed}: {text}")


@pytest.mark.parametrize("part", range(6))
def test_random_programs_of_views_and_writes(part):
    for seed in range(part, PROGRAMS, 6):
        run_program(seed)


def test_a_write_to_a_view_is_seen_by_all_aliases():
    x = torch.zeros(3, 4, device="tensord")
    column, flat = x[:, 1], x.view(-1)
    column += 5
    assert flat.tolist()[1::4] == [5, 5, 5]
    assert x.t()[1].tolist() == [5, 5, 5]
    assert column._version == x._version


def test_a_copy_shares_nothing_that_a_write_changes():
    x = torch.arange(4.0, device="tensord")
    y = x.clone()
    z = torch.empty_like(x).copy_(x)
    x.add_(1)
    assert x.tolist() == [1, 2, 3, 4] and y.tolist() == [0, 1, 2, 3] and z.tolist() == [0, 1, 2, 3]


def test_memory_formats_keep_their_strides():
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = x.to("tensord")
    for f in (torch.exp, lambda t: t + t, lambda t: t * 2.0, torch.relu):
        assert f(y).stride() == f(x).stride()
        torch.testing.assert_close(f(y).cpu(), f(x))


def test_storages_are_resized_and_seen_as_another_dtype():
    x = torch.arange(4.0, device="tensord")
    assert x.view(torch.int32).tolist() == torch.arange(4.0).view(torch.int32).tolist()
    y = torch.arange(6.0, device="tensord")
    y.resize_(8)
    assert y[:6].tolist() == [0, 1, 2, 3, 4, 5]
    y.untyped_storage().resize_(0)
    assert y.untyped_storage().nbytes() == 0
    z = torch.zeros(2, device="tensord")
    z.set_(x)
    assert z.data_ptr() == x.data_ptr() and z.tolist() == x.tolist()


def test_resizing_to_the_same_sizes_keeps_strides():
    x = torch.zeros(3, 2, device="tensord")
    torch.ones(3, out=x[:, 1])
    assert x.tolist() == [[0, 1]] * 3
    assert x[:, 1].resize_(3).stride() == (2,)


def test_a_write_to_an_expanded_tensor_is_refused():
    x = torch.zeros(1, device="tensord").expand(3)
    with pytest.raises(RuntimeError, match="more than one element"):
        x.add_(1)


def test_unwritten_memory_is_zero():
    assert torch.empty(3, device="tensord").tolist() == [0, 0, 0]
