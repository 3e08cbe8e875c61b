"""A daemon of two devices, and one connection for all tests. Without PyTorch nothing is collected.

TENSORD_TEST_DEVICES names the devices, such as cuda:0,cuda:1 (default: cpu,cpu), and TENSORD_BINARY the daemon.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import pytest

START_SECONDS = 60
RANK_SETUP = """
import json, os, sys
import torch
import torch.distributed as dist
from torch import nn
rank = int(os.environ["RANK"])
device = torch.device("tensord", rank)
torch.tensord.set_device(rank)
"""
# Runs programs in forks of a process that has imported PyTorch, which takes seconds. Each line of the input starts a
# program, or awaits its end: the answer is its process id, or its exit status.
FORK_SERVER = """
import json, os, select, sys
import torch, torch._dynamo, torch_tensord.distributed  # init_process_group() also imports these
for line in sys.stdin:
    request = json.loads(line)
    if "await" in request:
        pid = request["await"]
        descriptor = os.pidfd_open(pid)
        if not select.select([descriptor], [], [], request["seconds"])[0]:
            os.kill(pid, 9)
        os.close(descriptor)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
        continue
    pid = os.fork()
    if pid == 0:
        break
    print(pid, flush=True)
else:
    sys.exit()
os.environ.update(request["environment"])
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
for number, path in ((1, request["output"]), (2, request["errors"])):
    os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), number)
exec(compile(request["program"], "<program>", "exec"), {"__name__": "__main__"})
"""
if importlib.util.find_spec("torch") is None or importlib.util.find_spec("torch_tensord") is None:
    collect_ignore_glob = ["test_*.py"]


def daemon_binary():
    """Returns the daemon to test: TENSORD_BINARY, or the one beside the interpreter."""
    return os.environ.get("TENSORD_BINARY") or str(pathlib.Path(sys.executable).parent / "tensord")


@contextlib.contextmanager
def running_daemon():
    """Runs a daemon, and yields its address."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        port_file = folder / "port"
        devices = os.environ.get("TENSORD_TEST_DEVICES") or "cpu,cpu"
        flags = ["--until-eof", "--listen=127.0.0.1:0", f"--port-file={port_file}", f"--devices={devices}"]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen([daemon_binary(), *flags], stdin=subprocess.PIPE, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while not port_file.exists():
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.005)
        yield port_file.read_text().strip()
        process.stdin.close()
        process.wait(timeout=120)


_resources = contextlib.ExitStack()
_address = _connection = None


def pytest_sessionstart(session):
    """Starts the daemon and connects. PyTorch's database of ops asks for devices when tests are collected."""
    global _address, _connection
    collects = hasattr(session.config, "workerinput") or not session.config.getoption("numprocesses", None)
    if collects and importlib.util.find_spec("torch_tensord") is not None:
        import tensord

        _address = _resources.enter_context(running_daemon())
        _connection = _resources.enter_context(tensord.connect(_address))


def pytest_sessionfinish():
    _resources.close()


@pytest.fixture(scope="session")
def address():
    return _address


@pytest.fixture(scope="session")
def connection():
    return _connection


@pytest.fixture
def run_python(address):
    """Returns a function that runs a program in a process of its own, and returns the finished process."""

    def run(program, timeout=240, **environment):
        variables = {**os.environ, "TENSORD_SERVER": address, **environment}
        return subprocess.run(
            [sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=timeout
        )

    return run


@pytest.fixture
def stop_server():
    """Returns the text of a function for run_python: it stops the server of the process id SERVER_PID.

    It returns when all threads of the server have stopped, because the signal alone lets them run on for a while.
    """
    return """
import os, signal

server = int(os.environ["SERVER_PID"])

def state(thread):
    try:
        with open(f"/proc/{server}/task/{thread}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"  # the thread has ended

def stop_server():
    os.kill(server, signal.SIGSTOP)
    while any(state(thread) != "T" for thread in os.listdir(f"/proc/{server}/task")):
        pass
"""


@pytest.fixture
def start_daemon(tmp_path):
    """Returns a function that starts a server, and returns its address and process id. They end with the test."""
    started = []

    def start(*flags):
        number = len(started)
        port_file, log = tmp_path / f"port{number}", tmp_path / f"log{number}"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [daemon_binary(), "--until-eof", "--listen=127.0.0.1:0", f"--port-file={port_file}", *flags],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
            )
        started.append(process)
        while not port_file.exists():
            assert process.poll() is None, log.read_text()
        return port_file.read_text().strip(), process.pid

    yield start
    for process in started:
        process.kill()
        process.stdin.close()
        process.wait()


@pytest.fixture(scope="session")
def ask_fork_server():
    """Returns a function that sends a request to the process FORK_SERVER, and returns the answer."""
    command = [sys.executable, "-c", FORK_SERVER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:

        def ask(**request):
            server.stdin.write(json.dumps(request) + "\n")
            server.stdin.flush()
            return int(server.stdout.readline())

        yield ask


@pytest.fixture
def run_ranks(address, ask_fork_server, tmp_path):
    """Returns a function that runs a program as `size` processes, and returns what each printed as JSON."""

    def run(program, size=2, setup=RANK_SETUP):
        import torch

        # As torchrun does, this process has the store, on a port that no other process can take.
        store = torch.distributed.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        started = []
        for rank in range(size):
            environment = {
                **os.environ,
                "TENSORD_SERVER": address,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(store.port),
                "TORCHELASTIC_USE_AGENT_STORE": "True",
                "TORCHELASTIC_RESTART_COUNT": "0",
            }
            files = [tmp_path / f"{kind} {rank} {store.port}" for kind in ("output", "errors")]
            process = ask_fork_server(
                program=setup + program, environment=environment, output=str(files[0]), errors=str(files[1])
            )
            started.append((process, *files))
        statuses = [ask_fork_server(**{"await": process, "seconds": 240}) for process, _, _ in started]
        for status, (_, _, errors) in zip(statuses, started):
            assert status == 0, errors.read_text()[-3000:]
        return [json.loads(output.read_text().splitlines()[-1]) for _, output, _ in started]

    return run
