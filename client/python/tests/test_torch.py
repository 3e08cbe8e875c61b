"""PyTorch beside tensord: arrays by DLPack, and imports in every order. Skipped where torch is missing."""

import importlib.util
import itertools

import numpy
import pytest
import tensord

torch = pytest.importorskip("torch", reason="torch isn't installed; tests/run --torch installs it")

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"]


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_come_from_torch(name):
    source = torch.tensor([[0, 1, 2], [3, 4, 5]]).to(getattr(torch, name))
    for x in (tensord.from_dlpack(source), tensord.asarray(source)):
        assert x.dtype is getattr(tensord, name) and x.shape == (2, 3)
        wide = x if name.startswith("complex") else x.to("float64")
        expected = source if name.startswith("complex") else source.double()
        numpy.testing.assert_array_equal(wide.numpy(), expected.numpy())


@pytest.mark.parametrize("name", DTYPES)
def test_tensors_go_to_torch(name):
    x = tensord.asarray([[0, 1, 2], [3, 4, 5]], dtype="int64")
    x = tensord.asarray(numpy.ones((2, 3), "complex64")) if name == "complex64" else x.to(name)
    result = torch.from_dlpack(x)
    assert result.dtype is getattr(torch, name) and tuple(result.shape) == (2, 3)
    assert result.tolist() == x.tolist()


def test_the_export_is_a_copy():
    x = tensord.asarray([1.0, 2.0])
    result = torch.from_dlpack(x)
    result += 1
    assert result.tolist() == [2, 3] and x.tolist() == [1, 2]


def test_views_of_torch_keep_their_order():
    source = torch.arange(24, dtype=torch.float32).reshape(2, 3, 4)
    for view in (source.permute(2, 0, 1), source[:, ::2, 1:], source[1], source.expand(3, 2, 3, 4)):
        numpy.testing.assert_array_equal(tensord.from_dlpack(view).numpy(), view.numpy())


def test_an_empty_tensor_goes_both_ways():
    assert tensord.from_dlpack(torch.zeros(2, 0)).shape == (2, 0)
    assert tuple(torch.from_dlpack(tensord.zeros(0, 3)).shape) == (0, 3)


def test_a_tensor_with_a_gradient_is_refused():
    with pytest.raises(BufferError):
        tensord.from_dlpack(torch.ones(2, requires_grad=True))


def test_a_step_of_torch_and_its_network_give_the_same(client):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 3))
    net = tensord.nn.Sequential(tensord.nn.Linear(8, 16), tensord.nn.ReLU(), tensord.nn.Linear(16, 3))
    net.load_state_dict({name: tensord.from_dlpack(value.detach()) for name, value in layers.state_dict().items()})
    x = torch.randn(5, 8)
    result = net(tensord.from_dlpack(x)).numpy()
    numpy.testing.assert_allclose(result, layers(x).detach().numpy(), rtol=1e-5, atol=1e-6)


# Each imports its library, and uses it.
USES = {
    "torch": "import torch; assert (torch.ones(64, 64) @ torch.ones(64, 64)).sum() == 64 ** 3",
    "grpc": "import grpc; grpc.insecure_channel('127.0.0.1:1').close()",
    "tensord": "import tensord; assert tensord.ones(3).sum().item() == 3",
}


@pytest.mark.parametrize("order", list(itertools.permutations(USES)), ids="-".join)
def test_imports_in_every_order(run_python, order):
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("grpcio isn't installed")
    both = "import torch, tensord; assert torch.from_dlpack(tensord.ones(2) + 1).tolist() == [2, 2]"
    done = run_python("\n".join([*(USES[name] for name in order), both, "print('done')"]))
    assert done.returncode == 0 and done.stdout.strip() == "done", done.stderr


def test_a_channel_of_grpcio_works_beside_a_connection(run_python):
    if importlib.util.find_spec("grpc") is None:
        pytest.skip("grpcio isn't installed")
    program = """
import os, grpc, tensord
x = tensord.ones(4)
channel = grpc.insecure_channel(os.environ["TENSORD_SERVER"])
grpc.channel_ready_future(channel).result(timeout=30)
ask = channel.unary_unary("/tensord.v1.TensorService/GetServerInfo")
assert len(ask(b"", timeout=30)) > 0
channel.close()
print((x + 1).sum().item())
"""
    done = run_python(program)
    assert done.stdout.strip() == "8.0", done.stderr
