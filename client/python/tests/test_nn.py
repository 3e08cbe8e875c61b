"""Layers, programs, files and groups."""

import concurrent.futures
import math
import pathlib
import threading

import numpy as np
import pytest
import tensord
from tensord import nn

DATA = pathlib.Path(__file__).parents[3] / "tests" / "data"


class Block(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.norm = nn.LayerNorm(size)
        self.layers = nn.Sequential(nn.Linear(size, 2 * size), nn.GELU(), nn.Linear(2 * size, size, bias=False))
        self.scale = nn.Parameter(tensord.ones(size))

    def forward(self, x):
        return x + self.layers(self.norm(x)) * self.scale


def test_the_digits_network():
    digits = tensord.load_safetensors(DATA / "digits.safetensors")
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 10))
    model.load_state_dict(tensord.load_safetensors(DATA / "digits_mlp.safetensors"))
    images = digits["images"].to(tensord.float32)[1200:] / 16
    guess = model(images).argmax(axis=1)
    assert (guess == digits["labels"][1200:]).sum().item() / len(images) > 0.9


def test_module_structure():
    block = Block(4)
    names = [name for name, _ in block.named_parameters()]
    assert names == ["scale", "norm.weight", "norm.bias", "layers.0.weight", "layers.0.bias", "layers.2.weight"]
    assert [type(m).__name__ for m in block.modules()] == [
        "Block",
        "LayerNorm",
        "Sequential",
        "Linear",
        "GELU",
        "Linear",
    ]
    assert "Linear(in_features=4, out_features=8, bias=True)" in repr(block)
    assert block.eval().training is block.layers[1].training is False
    with pytest.raises(AttributeError, match="no_such"):
        block.no_such
    with pytest.raises(AttributeError, match=r"super\(\)"):
        type("Bad", (nn.Module,), {"__init__": lambda self: setattr(self, "x", 1)})()


def test_forward_agrees_with_numpy():
    block = Block(4)
    x = np.random.default_rng(0).random((3, 4), dtype=np.float32)
    state = {name: value.numpy() for name, value in block.state_dict().items()}
    mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    hidden = (x - mean) / np.sqrt(var + 1e-5) @ state["layers.0.weight"].T + state["layers.0.bias"]
    gelu = tensord.gelu(tensord.asarray(hidden)).numpy()
    np.testing.assert_allclose(block(tensord.asarray(x)).numpy(), x + gelu @ state["layers.2.weight"].T, atol=1e-5)


def test_state_dicts():
    a, b = Block(4), Block(4)
    state = a.state_dict()
    b.load_state_dict(state)
    x = tensord.rand(2, 4)
    assert (a(x) == b(x)).all()
    b.scale += 1
    assert state["scale"].tolist() == [1] * 4 == a.scale.tolist()
    before = b(x).tolist()
    wrong = {**state, "scale": tensord.ones(5), "new": tensord.ones(1)}
    del wrong["norm.bias"]
    with pytest.raises(ValueError) as caught:
        b.load_state_dict(wrong)
    assert all(text in str(caught.value) for text in ("scale has shape", "new is unknown", "norm.bias is missing"))
    assert b(x).tolist() == before


def test_moving_and_converting_a_module(client):
    block = Block(4)
    weight = block.norm.weight
    assert block.to(client.devices[1]) is block and block.norm.weight is weight
    assert all(p.device == client.devices[1] for p in block.parameters())
    assert block.to(tensord.float64)(tensord.rand(2, 4, dtype="float64", device="cpu:1")).dtype is tensord.float64


def test_seeds_and_dropout():
    assert (nn.Linear(3, 2, generator=5).weight == nn.Linear(3, 2, generator=5).weight).all()
    assert nn.Linear(9, 200).weight.abs().max().item() <= 1 / 3
    dropout = nn.Dropout(0.5, generator=1)
    x = tensord.ones(1000)
    assert (dropout(x) == 0).any() and (dropout.eval()(x) == x).all()


def test_a_program_computes_what_its_function_does():
    w = tensord.asarray([[1.0, 2], [3, 4]])
    calls = []

    def step(x, y):
        calls.append(1)
        return tensord.relu(x @ w - 2 * y), (x + y).sum(axis=0)

    x, y = tensord.asarray([[1.0, -1], [2, 0.5]]), tensord.ones(2, 2)
    program = tensord.Program(step, x, y)
    expected = step(x, y)
    for _ in range(3):
        result = program(x, y)
        assert isinstance(result, tuple)
        assert all((a == b).all() for a, b in zip(result, expected, strict=True))
    assert len(calls) == 2 and program.num_ops >= 4
    assert program.inputs[0] == ((2, 2), tensord.float32) and program.outputs[1][0] == (2,)
    assert tensord.Program(lambda x: x + 1, x)(x).tolist() == (x + 1).tolist()


def test_errors_of_a_program():
    x = tensord.ones(2)
    with pytest.raises(ZeroDivisionError):
        tensord.Program(lambda x: 1 / 0, x)
    with pytest.raises(tensord.FailedPreconditionError, match="program"):
        tensord.Program(lambda x: x * x.sum().item(), x)
    with pytest.raises(TypeError):
        tensord.Program(lambda x: 3, x)
    with pytest.raises(ValueError):
        tensord.Program(lambda: x)
    with pytest.raises(ValueError):
        tensord.Program(lambda x: x + 1, x)(tensord.ones(3))


def test_safetensors(tmp_path):
    path = tmp_path / "x.safetensors"
    tensors = {"a": tensord.arange(6).reshape(2, 3), "b": tensord.asarray([True, False])}
    tensord.save_safetensors(tensors, path, {"by": "test"})
    file = tensord.SafetensorsFile(path)
    assert sorted(file.keys()) == ["a", "b"] and "a" in file and "c" not in file and len(file) == 2
    assert file.metadata == {"by": "test"} and file.spec("a") == ((2, 3), tensord.int64)
    assert file.load("b", "cpu:1").tolist() == [True, False]
    reports = []
    loaded = tensord.load_safetensors(str(path), progress=lambda *report: reports.append(report))
    assert {name: x.tolist() for name, x in loaded.items()} == {name: x.tolist() for name, x in tensors.items()}
    assert reports and reports[-1] == (50, 50)
    with pytest.raises(tensord.NotFoundError):
        tensord.load_safetensors(tmp_path / "none")
    with pytest.raises(tensord.NotFoundError):
        file.load("c")
    (tmp_path / "bad").write_bytes(b"nonsense")
    with pytest.raises(tensord.InvalidArgumentError):
        tensord.SafetensorsFile(tmp_path / "bad")


def test_groups(client):
    group = tensord.Group(client.devices)
    inputs = [tensord.asarray([1.0, 2], device=client.devices[0]), tensord.asarray([3.0, 5], device=client.devices[1])]
    assert [x.tolist() for x in group.all_reduce(inputs)] == [[4, 7]] * 2
    assert [x.tolist() for x in group.all_reduce(inputs, "max")] == [[3, 5]] * 2
    assert [x.tolist() for x in group.all_gather(inputs)] == [[1, 2, 3, 5]] * 2
    assert [x.tolist() for x in group.reduce_scatter(inputs, "mean")] == [[2], [3.5]]
    assert [x.device for x in group.broadcast(inputs[0])] == group.devices == client.devices
    group.barrier()
    assert group.size == 2
    with pytest.raises(ValueError):
        group.all_reduce(inputs, "median")
    with pytest.raises(ValueError):
        group.all_reduce(inputs[:1])


def test_threads_share_a_group_while_the_queue_of_commands_is_full(run_python):
    program = """
import os
import threading

import tensord

client = tensord.connect(os.environ["TENSORD_SERVER"], max_pending_commands=8)
group = tensord.Group(client.devices)
inputs = [tensord.ones(3, device=device) for device in client.devices]

def work():
    for _ in range(200):
        group.all_reduce(inputs)

threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
for each in threads:
    each.start()
for each in threads:
    each.join(timeout=30)
print([each.is_alive() for each in threads], [x.tolist() for x in group.all_reduce(inputs)])
"""
    done = run_python(program, timeout=120)
    assert done.stdout.strip() == f"{[False] * 3} {[[2.0] * 3] * 2}", done.stderr


def test_members_of_several_programs(client):
    # Each thread stands for a process.
    exchanged, ready = [{}, {}], threading.Barrier(2)

    def exchange(rank):
        rounds = iter(exchanged)

        def all_gather(own):
            texts = next(rounds)
            texts[rank] = own
            ready.wait(timeout=60)
            return [texts[0], texts[1]]

        return all_gather

    def run(rank):
        member = tensord.GroupMember(client.devices[rank], rank, 2, exchange(rank))
        x = tensord.asarray([1.0 + rank, 4.0 * rank], device=member.device)
        assert member.all_reduce(x).tolist() == [3, 4] and member.all_reduce(x, "max").tolist() == [2, 4]
        assert member.all_gather(x).tolist() == [1, 0, 2, 4] and member.broadcast(x, 1).tolist() == [2, 4]
        assert member.reduce_scatter(x, "mean").tolist() == [[1.5], [2]][rank]
        member.barrier()
        return member.rank, member.size

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert list(pool.map(run, range(2))) == [(0, 2), (1, 2)]

    def fail(own):
        raise KeyError("store")

    with pytest.raises(KeyError, match="store"):
        tensord.GroupMember(client.devices[0], 0, 2, fail)
    with pytest.raises(ValueError, match="sequence of bytes"):
        tensord.GroupMember(client.devices[0], 0, 1, lambda own: [1])


def test_copy_reports_and_progress(client):
    x = tensord.ones(1 << 20)
    report = x.to(client.devices[1]).copy_report()
    assert report["path"] == "peer" and report["bytes"] == 4 << 20
    seen = []
    a = tensord.asarray(
        x.numpy(progress=lambda done, total: seen.append(done)), progress=lambda *_: seen.append(0)
    ).numpy()
    assert a.sum() == 1 << 20 and (4 << 20) in seen and 0 in seen
    assert x.numpy(progress=True).size == 1 << 20
    with pytest.raises(TypeError):
        x.numpy(progress=3)


def test_the_examples_run(run_python, address):
    folder = pathlib.Path(__file__).parents[1] / "examples"
    outputs = {}
    for example in folder.glob("*.py"):
        done = run_python(f"import runpy; runpy.run_path({str(example)!r}, run_name='__main__')")
        assert done.returncode == 0, done.stderr
        outputs[example.stem] = done.stdout
    assert "cpu:1" in outputs["use_gpu"] and "x + y: add" in outputs["use_gpu"]
    right, _, total, *_ = outputs["train_digits"].splitlines()[-1].split()
    assert int(right) / int(total) > 0.85


def test_buffers_belong_to_the_state_but_not_to_the_parameters():
    norm = nn.BatchNorm1d(3)
    assert [name for name, _ in norm.named_parameters()] == ["weight", "bias"]
    assert [name for name, _ in norm.named_buffers()] == ["running_mean", "running_var", "num_batches_tracked"]
    assert list(norm.state_dict()) == ["weight", "bias", "running_mean", "running_var", "num_batches_tracked"]
    norm.to(tensord.float64)
    assert norm.running_var.dtype is tensord.float64 and norm.num_batches_tracked.dtype is tensord.int64
    norm(tensord.rand(4, 3, dtype="float64"))
    assert norm.num_batches_tracked.item() == 1 and (norm.running_mean > 0).all()
    before = norm.running_mean.tolist()
    norm.eval()(tensord.rand(4, 3, dtype="float64"))
    assert norm.running_mean.tolist() == before


def test_a_convolution_with_a_kernel_of_one_is_a_linear_layer():
    layer, x = nn.Conv2d(3, 4, 1), tensord.rand(2, 3, 5, 6)
    weight = layer.weight.reshape(4, 3)
    expected = tensord.linear(x.permute(0, 2, 3, 1), weight, layer.bias).permute(0, 3, 1, 2)
    np.testing.assert_allclose(layer(x).numpy(), expected.numpy(), atol=1e-5)


def test_pools_and_errors_of_layers():
    x = tensord.arange(16, dtype="float32").reshape(1, 1, 4, 4)
    assert nn.MaxPool2d(2)(x).tolist() == [[[[5, 7], [13, 15]]]]
    assert nn.AdaptiveAvgPool2d(1)(x).item() == 7.5
    with pytest.raises(NotImplementedError, match="multiples of"):
        nn.AdaptiveAvgPool2d(3)(x)
    with pytest.raises(ValueError, match="must be multiples of the 2 groups"):
        nn.Conv1d(3, 4, 1, groups=2)
    with pytest.raises(ValueError, match="must end with"):
        nn.LayerNorm(3)(x)
    with pytest.raises(ValueError, match="2 or 3 dimensions"):
        nn.BatchNorm1d(1)(x)
    with pytest.raises(ValueError, match="the last of which is 2"):
        nn.LSTM(2, 3)(tensord.ones(4, 5))


def test_recurrent_layers_continue_from_a_state():
    layer, x = nn.LSTM(3, 4, num_layers=2), tensord.rand(6, 2, 3)
    y, (h, c) = layer(x)
    first, state = layer(x[:4])
    second, (last_h, last_c) = layer(x[4:], state)
    np.testing.assert_allclose(tensord.concat([first, second]).numpy(), y.numpy(), atol=1e-6)
    assert h.shape == c.shape == (2, 2, 4)
    np.testing.assert_allclose(last_c.numpy(), c.numpy(), atol=1e-6)


def test_attention_leaves_out_masked_keys():
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x, memory = tensord.rand(2, 3, 8), tensord.rand(2, 5, 8)
    expected = layer(x, memory[:, :4])
    last = tensord.arange(5) == 4
    np.testing.assert_allclose(layer(x, memory, attn_mask=last).numpy(), expected.numpy(), atol=1e-5)
    padding = tensord.broadcast_to(last, 2, 5)
    np.testing.assert_allclose(layer(x, memory, key_padding_mask=padding).numpy(), expected.numpy(), atol=1e-5)
    with pytest.raises(ValueError, match="multiple of 3 heads"):
        nn.MultiheadAttention(8, 3)


def test_attention_adds_floating_masks():
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = tensord.normal(2, 3, 8)
    padding = tensord.asarray([[False, False, True], [False, True, False]])
    causal = tensord.asarray([[False, True, True], [False, False, True], [False, False, False]])

    def added(mask):
        return tensord.where(mask, -math.inf, tensord.zeros(*mask.shape))

    expected = layer(x, attn_mask=causal, key_padding_mask=padding).numpy()
    for a in (causal, added(causal)):
        for b in (padding, added(padding)):
            np.testing.assert_allclose(
                layer(x, attn_mask=a, key_padding_mask=b).numpy(), expected, rtol=1e-5, atol=1e-6
            )


def test_attention_refuses_sizes_that_do_not_fit():
    with pytest.raises(ValueError, match="embed_dim is 0, and must be a positive multiple of 1 heads"):
        nn.MultiheadAttention(0, 1)
    layer = nn.MultiheadAttention(8, 2, batch_first=True)
    x = tensord.zeros(2, 3, 8)
    with pytest.raises(ValueError, match="All batches must be equal"):
        layer(x, tensord.zeros(1, 3, 8))
    with pytest.raises(ValueError, match="the same number of rows"):
        layer(x, x, tensord.zeros(2, 4, 8))
    with pytest.raises(ValueError, match=r"key_padding_mask has shape \(3, 2\), and must have shape \(2, 3\)"):
        layer(x, key_padding_mask=tensord.zeros(3, 2, dtype="bool"))


def test_an_attribute_takes_the_place_of_a_parameter():
    layer = nn.Linear(2, 3)
    layer.bias = None
    assert layer.bias is None and list(layer.state_dict()) == ["weight"]
    layer.weight = nn.Linear(2, 3)
    assert list(layer.state_dict()) == ["weight.weight", "weight.bias"]
    norm = nn.BatchNorm1d(3)
    norm.running_mean = None
    assert norm.running_mean is None and "running_mean" not in norm.state_dict()


def test_a_state_dict_may_have_arrays_of_numpy():
    layer = nn.Linear(3, 2)
    weight = np.arange(6, dtype="float64").reshape(2, 3)
    layer.load_state_dict({"weight": weight, "bias": np.zeros(2)})
    assert layer.weight.dtype is tensord.float32 and layer.weight.tolist() == weight.tolist()
