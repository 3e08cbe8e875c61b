"""Errors: no server, tensors of the package tensord, device memory, and the debug modes."""

import numpy
import pytest
import tensord
import torch
import torch_tensord

DEVICE = "tensord"


def test_exhausted_memory_is_an_exception_with_its_cause(run_python, start_daemon):
    address, _ = start_daemon("--devices=cpu=64MiB")
    program = """
import torch
x = torch.ones(1 << 20, device="tensord")
try:
    y = torch.cat([x] * 32).sum()
    print(y.item())
except torch.OutOfMemoryError as e:
    print("memory:", e)
print((x + 1).sum().item())
"""
    done = run_python(program, TENSORD_SERVER=address)
    lines = done.stdout.splitlines()
    assert lines[0].startswith("memory: ") and "concat" in lines[0] and "its limit is" in lines[0], (
        done.stdout + done.stderr
    )
    assert lines[-1] == str(float(2 << 20))


UNREACHABLE = """
import sys, warnings
import torch
try:
    torch.ones(2, device="tensord")
except RuntimeError as e:
    print(type(e).__name__, e)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    print(torch.tensord.device_count(), torch.tensord.is_available(), torch.tensord.is_available(), len(caught))
print({str(w.message) for w in caught})
try:
    import torch_tensord
    torch_tensord.resume()
except Exception as e:
    print(type(e).__name__, e)
"""


@pytest.mark.parametrize("wrong", ["127.0.0.1:1", "nowhere.invalid:50051"])
def test_an_unreachable_server_is_one_clear_error(run_python, wrong):
    done = run_python(UNREACHABLE, TENSORD_SERVERS=wrong)
    error, counts, warning, resumed = done.stdout.splitlines()
    host = wrong.split(":")[0]
    assert host in error and host in warning and host in resumed and "tensord has no devices: " in warning, done.stdout
    assert counts == "0 False False 1"  # device_count() warns, and is_available() doesn't
    for text in (done.stdout, done.stderr):
        assert "Exception raised from" not in text and ".cc:" not in text and "frame #" not in text


def test_a_forbidden_private_server_is_one_clear_error(run_python):
    done = run_python(UNREACHABLE, TENSORD_SERVER="", TENSORD_LOCAL="0")
    if "127.0.0.1:50051" not in done.stdout:  # a server that isn't of this test
        assert "TENSORD_LOCAL=0 forbids a private one" in done.stdout.splitlines()[0], done.stdout + done.stderr


def test_a_tensor_of_the_package_tensord_is_refused_with_its_conversion():
    x = tensord.ones(2, 3)
    y = torch.ones(2, 3, device=DEVICE)
    for call in (
        lambda: torch.relu(x),
        lambda: torch.add(y, x),
        lambda: torch.add(x, y),
        lambda: torch.cat([y, x]),
        lambda: torch.nn.functional.linear(y, x),
        lambda: torch.nn.Linear(3, 3)(x),
    ):
        with pytest.raises(TypeError, match=r"tensord\.Tensor.*torch_tensord\.as_torch\(x\)"):
            call()


@pytest.mark.parametrize(
    "call, words",
    [
        (lambda x: torch.fft.fft(x), "tensord has no complex tensors"),
        (lambda x: torch.linalg.eig(x), "tensord has no complex tensors"),
        (lambda x: torch.complex(x, x), "tensord has no dtype ComplexFloat: keep complex tensors on the CPU"),
        (lambda x: x.to(torch.complex64), "tensord has no dtype ComplexFloat: keep complex tensors on the CPU"),
        (lambda x: torch.zeros(2, dtype=torch.complex64).to(DEVICE), "tensord has no dtype ComplexFloat"),
        (lambda x: x * 1j, "tensord has no dtype ComplexDouble: keep complex tensors on the CPU"),
        (lambda x: x.fill_(1j), "tensord has no dtype ComplexDouble: keep complex tensors on the CPU"),
        (lambda x: x.to(torch.float8_e4m3fn), "no dtype Float8_e4m3fn: convert the tensor"),
        (lambda x: x.to_sparse(), "tensord has no sparse tensors"),
        (lambda x: torch.eye(2).to_sparse().to(DEVICE), "tensord has no sparse tensors"),
        (lambda x: torch.eye(2).to_sparse_csr().to(DEVICE) @ x, "tensord has no sparse tensors"),
        (lambda x: torch.sparse.mm(torch.eye(2).to_sparse(), x), "tensord has no sparse tensors"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.quint8), "tensord has no quantized tensors"),
        (lambda x: torch.nested.as_nested_tensor([x, x.requires_grad_()]), "tensord has no nested tensors"),
        (lambda x: torch.linalg.svd(x), "isn't implemented on tensord: copy its inputs to the CPU"),
    ],
)  # fmt: skip
def test_errors_of_unsupported_tensors_and_ops_name_a_workaround(call, words):
    with pytest.raises(NotImplementedError) as error:
        call(torch.eye(2, device=DEVICE))
    message = str(error.value)
    assert words in message
    assert ("TENSORD_CPU_FALLBACK" in message) == ("isn't implemented" in message)
    assert "x.cpu()" in message or "keep" in message


def test_the_error_of_dlpack_names_the_copy_to_the_cpu():
    x = torch.ones(2, device=DEVICE)
    for call in (
        lambda: x.__dlpack__(),
        lambda: x.__dlpack_device__(),
        lambda: torch.utils.dlpack.to_dlpack(x),
        lambda: torch.from_dlpack(x),
        lambda: numpy.from_dlpack(x),
    ):
        with pytest.raises(BufferError, match=r"its memory isn't in this process: copy it with x\.cpu\(\)"):
            call()
    host = x.cpu()
    assert torch.from_dlpack(host).tolist() == [1, 1]
    assert torch.from_dlpack(torch.utils.dlpack.to_dlpack(host)).tolist() == [1, 1]
    assert numpy.from_dlpack(host).tolist() == [1, 1]


DEBUG = """
import torch
x = torch.arange(3.0, device="tensord")
index = torch.tensor([7], device="tensord")
try:
    y = x[index]  # the line
    z = (y + 1).sum()
    z.item()  # the wait
except RuntimeError as e:
    print(e)
    print("raised in line", e.__traceback__.tb_lineno)
"""


def test_tracebacks_name_the_line_that_called_the_op(run_python, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(DEBUG)
    run = f"import runpy; runpy.run_path({str(path)!r})"
    done = run_python(run, TENSORD_DEBUG="tracebacks")
    assert f"The failed op was called at {path}:6, in <module>" in done.stdout, done.stdout + done.stderr
    assert "index 7" in done.stdout
    assert "The failed op" not in run_python(run).stdout


def test_the_mode_sync_raises_at_the_op(run_python):
    assert "raised in line 8" in run_python(DEBUG).stdout
    assert "raised in line 6" in run_python(DEBUG, TENSORD_DEBUG="sync").stdout


def test_tensors_are_shared_with_the_package_tensord():
    x = torch.arange(6.0, device=DEVICE).reshape(2, 3)
    y = torch_tensord.as_tensord(x.t())
    assert y.shape == (3, 2) and y.tolist() == x.t().tolist() and y.device.name == "cpu:0"
    z = torch_tensord.as_torch(y * 2)
    assert z.device == x.device and torch.equal(z, x.t() * 2)
    z.add_(1)
    assert (y * 2).tolist() == (z - 1).tolist()
    for call in (lambda: torch_tensord.as_torch(3), lambda: torch_tensord.as_tensord(torch.ones(2))):
        with pytest.raises(TypeError):
            call()


def test_an_assertion_of_a_tensor_raises_at_the_call():
    for device in ("cpu", DEVICE):
        truth, token = torch.ones(1, device=device) > 0, torch.tensor(3.0, device=device)
        torch._assert_async(truth)
        torch._assert_async(truth, "unused")
        assert torch._functional_assert_async(truth, "unused", token).item() == 3.0
        for call, words in (
            (lambda x: torch._assert_async(x), "Expected Tensor with single nonzero value, but got zero"),
            (lambda x: torch._assert_async(x, "x is too small"), "x is too small"),
            (lambda x: torch._functional_assert_async(x, "x is too small", x), "x is too small"),
        ):
            with pytest.raises(RuntimeError, match=words):
                call(~truth)
