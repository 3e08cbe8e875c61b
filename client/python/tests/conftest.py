"""A daemon of two CPU devices for all tests, and a connection for each test module."""

import os
import pathlib
import subprocess
import sys
import time

import pytest
import tensord

START_SECONDS = 60


def daemon_binary():
    """Returns the daemon to test: TENSORD_BINARY, or the one beside the interpreter."""
    return os.environ.get("TENSORD_BINARY") or str(pathlib.Path(sys.executable).parent / "tensord")


@pytest.fixture(scope="session")
def start_daemon(tmp_path_factory):
    """Returns a function that starts a daemon and returns its address."""
    processes = []

    def start(*flags):
        folder = tmp_path_factory.mktemp("daemon")
        port_file = folder / "port"
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                [daemon_binary(), "--until-eof", "--listen=127.0.0.1:0", f"--port-file={port_file}", *flags],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )
        processes.append(process)
        vars(start)["last_process"] = process
        deadline = time.monotonic() + START_SECONDS
        while not port_file.exists():
            assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
            time.sleep(0.005)
        return port_file.read_text().strip()

    yield start
    for process in processes:
        process.stdin.close()
        process.wait(timeout=120)


@pytest.fixture(scope="session")
def address(start_daemon):
    return start_daemon("--devices=cpu,cpu")


@pytest.fixture(autouse=True, scope="module")
def client(address):
    """The current connection of every test."""
    with tensord.connect(address) as connection:
        yield connection


@pytest.fixture
def run_python(address):
    """Returns a function that runs a program in a process of its own, and returns the finished process."""

    def run(program, timeout=240, **environment):
        variables = {**os.environ, "TENSORD_SERVER": address, **environment}
        return subprocess.run(
            [sys.executable, "-c", program], env=variables, capture_output=True, text=True, timeout=timeout
        )

    return run
