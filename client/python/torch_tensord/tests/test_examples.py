"""The examples run, and do what their texts say."""

import os
import pathlib
import socket
import subprocess
import sys

import pytest
import torch

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def run(address, name, *arguments, module=None, timeout=240):
    command = [sys.executable, *(["-m", *module] if module else []), str(EXAMPLES / name), *map(str, arguments)]
    variables = {**os.environ, "TENSORD_SERVER": address, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=timeout)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_training_continues_from_the_checkpoint(address, tmp_path):
    first = run(address, "train_digits.py", "--epochs=3", f"--checkpoint={tmp_path / 'digits.pt'}")
    assert "epoch 2: loss" in first and "continues" not in first
    assert [path.name for path in tmp_path.iterdir()] == ["digits.pt"]
    second = run(address, "train_digits.py", "--epochs=5", f"--checkpoint={tmp_path / 'digits.pt'}", "--compile")
    assert "continues with epoch 3" in second and "epoch 2" not in second
    right, _, total, *_ = second.splitlines()[-1].split()
    assert int(right) / int(total) > 0.85


def test_generation_and_a_model_on_two_devices(address):
    options = ("--layers=2", "--width=48", "--heads=4", "--vocabulary=100", "--tokens=6")
    here = run(address, "generate.py", *options)
    on_cpu = run(address, "generate.py", *options, "--device=cpu")
    assert here.splitlines()[0] == on_cpu.splitlines()[0] and len(here.splitlines()[0].split()) == 6
    split = run(address, "several_devices.py")
    assert "tensord:1 is" in split
    losses = [float(line.split()[-1]) for line in split.splitlines() if line.startswith("step")]
    assert losses == sorted(losses, reverse=True) and losses[-1] < 0.5 * losses[0]


@pytest.mark.skipif(not torch.distributed.is_available(), reason="PyTorch without torch.distributed")
def test_data_parallel_training_by_torchrun(address):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    launcher = ["torch.distributed.run", "--nproc-per-node=2", f"--master-port={port}"]
    output = run(address, "data_parallel.py", "--steps=10", module=launcher)
    lines = sorted(line for line in output.splitlines() if line.startswith("rank"))
    assert len(lines) == 2 and "cpu:0" in lines[0] and "cpu:1" in lines[1]
    assert lines[0].split(": ")[1] == lines[1].split(": ")[1]  # the same loss and the same weights


def fail(name, **environment):
    """Runs an example that must fail, and returns its standard error."""
    variables = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], env=variables, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr[-3000:]
    return done.stderr


def test_examples_without_a_server_or_device_say_what_to_do(address):
    message = fail("several_devices.py", TENSORD_SERVERS="127.0.0.1:1")
    assert "there is no server" in message and "TENSORD_SERVERS=" in message
    message = fail("data_parallel.py", TENSORD_SERVER=address, RANK="2", WORLD_SIZE="3")
    assert "needs the device tensord:2, but the number of devices is 2" in message
    variables = {name: value for name, value in os.environ.items() if name != "RANK"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "data_parallel.py")], env=variables, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1 and "start it with torchrun" in done.stderr
