"""Ctrl-C during a wait, and the time limit of repr. The server is stopped, so that it doesn't answer."""

import os
import signal
import stat

import pytest

# A thread of the program sends the signal when the main thread has released the interpreter's lock. With this
# switch interval, the main thread releases it only in the wait.
PROGRAM = """
import asyncio, os, signal, sys, threading, time
import tensord, tensord.aio

server = int(os.environ["SERVER_PID"])

def state(thread):
    try:
        with open(f"/proc/{{server}}/task/{{thread}}/stat") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "T"  # the thread has ended

# A process that a shell started in the background ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
tensord.connect(os.environ["ADDRESS"], {options})
client = tensord.current_connection()
y = tensord.ones(4) + 1
big = tensord.ones(1 << 20, dtype="float64") + 1
{setup}
tensord.synchronize()
big.numpy()  # opens the shared memory
y, big = y + 1, big + 1
os.kill(server, signal.SIGSTOP)
while any(state(thread) != "T" for thread in os.listdir(f"/proc/{{server}}/task")):
    pass
sys.setswitchinterval(1000)
begun = threading.Event()

def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    {before_wait}
    {wait}
except KeyboardInterrupt:
    print("interrupted")
os.kill(server, signal.SIGCONT)
print(y.sum().item(), big.sum().item() == 3 << 20)
"""

WAITS = {
    "item": "y.sum().item()",
    "numpy": "y.numpy()",
    "numpy_large": "big.numpy()",
    "tobytes": "big.tobytes()",
    "wait": "y.wait()",
    "synchronize": "tensord.synchronize()",
    "upload": "tensord.asarray(bytearray(64 << 20))",
    "print": "print(y)",
    "mask": "y[y > 0]",
}
CALLS = {
    "upload_of_a_list": "tensord.asarray([0.5] * (1 << 20))",
    "list_devices": "client.list_devices()",
    "memory": "client.memory(y.device)",
    "list_tensors": "client.list_tensors()",
    "publish": "client.publish(y, 'y')",
    "unpublish": "client.unpublish('y')",
    "open": "client.open('y')",
    "copy_report": "y.to(client.devices[1]).copy_report()",
    "group": "tensord.Group(client.devices)",
    "group_member": "tensord.GroupMember(y.device, 0, 1, lambda own: [own])",
    "barrier": "group.barrier()",
    "save": "tensord.save_safetensors({'y': big}, os.environ['FILE'])",
    "load": "tensord.load_safetensors(os.environ['FILE'])",
    "load_one": "tensord.SafetensorsFile(os.environ['FILE']).load('big')",
    "connect": "tensord.connect(os.environ['ADDRESS'])",
    "aio": "asyncio.run(tensord.aio.wait(y))",
    "anumpy": "asyncio.run(big.anumpy())",
    "aio_synchronize": "asyncio.run(tensord.aio.synchronize())",
}
SETUPS = {
    "barrier": "group = tensord.Group(client.devices)",
    "load": "tensord.save_safetensors({'big': big}, os.environ['FILE'])",
    "load_one": "tensord.save_safetensors({'big': big}, os.environ['FILE'])",
}


@pytest.fixture
def stopped_server(start_daemon):
    """A server that the program stops, as its address and its process."""
    address = start_daemon("--devices=cpu,cpu")
    process = start_daemon.last_process
    yield address, process.pid
    os.kill(process.pid, signal.SIGCONT)


def run(run_python, server, wait, options="", before_wait="begun.set()", setup="", **environment):
    address, pid = server
    program = PROGRAM.format(wait=wait, options=options, before_wait=before_wait, setup=setup)
    return run_python(program, ADDRESS=address, SERVER_PID=str(pid), **environment)


@pytest.mark.parametrize("wait", WAITS.values(), ids=list(WAITS))
@pytest.mark.parametrize("options", ["", "shared_memory=False"], ids=["shared_memory", "connection"])
def test_ctrl_c_ends_a_wait_and_the_op_goes_on(run_python, stopped_server, wait, options):
    done = run(run_python, stopped_server, wait, options)
    assert done.stdout.split() == ["interrupted", "12.0", "True"], done.stderr


@pytest.mark.parametrize("name", CALLS)
def test_ctrl_c_ends_a_call_that_waits_for_the_server(run_python, stopped_server, tmp_path, name):
    file = str(tmp_path / "file")
    done = run(run_python, stopped_server, CALLS[name], setup=SETUPS.get(name, ""), FILE=file)
    assert done.stdout.split() == ["interrupted", "12.0", "True"], done.stderr


def test_ctrl_c_ends_a_wait_for_room_in_the_queue(run_python, stopped_server):
    loop = "for _ in range(100): y + y"
    done = run(run_python, stopped_server, loop, "max_pending_commands=8")
    assert done.stdout.split() == ["interrupted", "12.0", "True"], done.stderr


def test_ctrl_c_ends_the_wait_for_an_operation_of_another_thread_in_a_group(run_python, stopped_server):
    setup = """
group = tensord.Group(client.devices)
inputs = [tensord.ones(4, device=each) for each in client.devices]
"""
    # The thread holds the group's lock, and waits for room in the queue.
    before_wait = """
    def reduce():
        while True:
            group.all_reduce(inputs)

    threading.Thread(target=reduce, daemon=True).start()
    seen = []
    while len(seen) < 6 or len(set(seen[-6:])) > 1:
        seen.append(client.stats["commands_sent"])
        time.sleep(0.05)
    begun.set()"""
    options = "max_pending_commands=8"
    done = run(run_python, stopped_server, "group.all_reduce(inputs)", options, before_wait, setup)
    assert done.stdout.split()[:3] == ["interrupted", "12.0", "True"], done.stderr


def test_ctrl_c_while_closing_closes_the_connection(run_python, stopped_server):
    program = PROGRAM.format(wait="client.close()", options="", before_wait="begun.set()", setup="")
    program = (
        program[: program.rindex("print(")]
        + """
try:
    y + y
except tensord.FailedPreconditionError:
    print("closed")
tensord.connect(os.environ["ADDRESS"])
print(tensord.ones(3).sum().item())
"""
    )
    address, pid = stopped_server
    done = run_python(program, ADDRESS=address, SERVER_PID=str(pid))
    assert done.stdout.split() == ["interrupted", "closed", "3.0"], done.stderr


# A port that accepts connections, and says nothing.
CONNECTING = """
import os, signal, socket, sys, threading
import tensord

signal.signal(signal.SIGINT, signal.default_int_handler)
silent = socket.create_server(("127.0.0.1", 0))
address = "127.0.0.1:%d" % silent.getsockname()[1]
sys.setswitchinterval(1000)
accepted, begun = threading.Event(), threading.Event()

def interrupt():
    kept = silent.accept()
    accepted.set()
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()

threading.Thread(target=interrupt, daemon=True).start()
try:
    {wait}
except KeyboardInterrupt:
    print("interrupted")
tensord.connect(os.environ["TENSORD_SERVER"])
print(tensord.ones(3).sum().item())
"""
CONNECTS = {
    "one": "begun.set(); tensord.connect(address, timeout=200)",
    "several": "begun.set(); tensord.connect([address, os.environ['TENSORD_SERVER']], timeout=200)",
    "tls": "begun.set(); tensord.connect(address, tls=True, timeout=200)",
    "other_thread": """
    os.environ["TENSORD_SERVERS"] = address
    threading.Thread(target=tensord.default_device, daemon=True).start()
    accepted.wait()
    begun.set()
    tensord.ones(3)
""",
}


@pytest.mark.parametrize("wait", CONNECTS.values(), ids=list(CONNECTS))
def test_ctrl_c_ends_connecting_to_a_silent_port(run_python, wait):
    done = run_python(CONNECTING.format(wait=wait))
    assert done.stdout.split() == ["interrupted", "3.0"], done.stderr


def test_ctrl_c_ends_the_start_of_a_private_server(run_python, tmp_path):
    (tmp_path / "temporary").mkdir()
    server = tmp_path / "server"  # ends at the end of its standard input, and never becomes ready
    server.write_text(f"#!/bin/sh\necho $$ > {tmp_path / 'pid'}\nexec cat\n")
    server.chmod(server.stat().st_mode | stat.S_IXUSR)
    program = """
import os, pathlib, signal, threading, time
import tensord

signal.signal(signal.SIGINT, signal.default_int_handler)
pid = pathlib.Path(os.environ["PID_FILE"])

def interrupt():
    while not pid.exists() or not pid.read_text():
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    tensord.connect("local")
except KeyboardInterrupt:
    print("interrupted")

def ended():
    try:
        return pathlib.Path("/proc", pid.read_text().strip(), "stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True

while not ended():
    time.sleep(0.001)
print(os.listdir(os.environ["TMPDIR"]))
"""
    folder, pid = str(tmp_path / "temporary"), str(tmp_path / "pid")
    done = run_python(program, TENSORD_BINARY=str(server), TMPDIR=folder, PID_FILE=pid)
    assert done.stdout.split() == ["interrupted", "[]"], done.stderr


def test_a_handler_that_does_not_raise_does_not_end_the_wait(run_python, stopped_server):
    handler = "signal.signal(signal.SIGINT, lambda *_: os.kill(server, signal.SIGCONT)); print(y.sum().item())"
    done = run(run_python, stopped_server, handler)
    assert done.stdout.split() == ["12.0", "12.0", "True"], done.stderr


def test_repr_waits_for_a_limited_time(run_python, stopped_server):
    done = run(run_python, stopped_server, "print(repr(y))", before_wait="pass")
    first, second = done.stdout.splitlines()
    assert first == "tensor(<waiting>, shape=[4], device='cpu:0', dtype=float32)", done.stderr
    assert second == "12.0 True"
