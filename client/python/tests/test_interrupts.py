"""Ctrl-C during a wait, and the time limit of repr. The server is stopped, so that it doesn't answer."""

import os
import signal

import pytest

# A thread of the program sends the signal when the main thread has released the interpreter's lock. With this
# switch interval, the main thread releases it only in the wait.
PROGRAM = """
import os, signal, sys, threading
import tensord

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
y = tensord.ones(4) + 1
big = tensord.ones(1 << 20, dtype="float64") + 1
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


@pytest.fixture
def stopped_server(start_daemon):
    """A server that the program stops, as its address and its process."""
    address = start_daemon("--devices=cpu")
    process = start_daemon.last_process
    yield address, process.pid
    os.kill(process.pid, signal.SIGCONT)


def run(run_python, server, wait, options="", before_wait="begun.set()"):
    address, pid = server
    program = PROGRAM.format(wait=wait, options=options, before_wait=before_wait)
    return run_python(program, ADDRESS=address, SERVER_PID=str(pid))


@pytest.mark.parametrize("wait", WAITS.values(), ids=list(WAITS))
@pytest.mark.parametrize("options", ["", "shared_memory=False"], ids=["shared_memory", "connection"])
def test_ctrl_c_ends_a_wait_and_the_op_goes_on(run_python, stopped_server, wait, options):
    done = run(run_python, stopped_server, wait, options)
    assert done.stdout.split() == ["interrupted", "12.0", "True"], done.stderr


def test_ctrl_c_ends_a_wait_for_room_in_the_queue(run_python, stopped_server):
    loop = "for _ in range(100): y + y"
    done = run(run_python, stopped_server, loop, "max_pending_commands=8")
    assert done.stdout.split() == ["interrupted", "12.0", "True"], done.stderr


def test_a_handler_that_does_not_raise_does_not_end_the_wait(run_python, stopped_server):
    handler = "signal.signal(signal.SIGINT, lambda *_: os.kill(server, signal.SIGCONT)); print(y.sum().item())"
    done = run(run_python, stopped_server, handler)
    assert done.stdout.split() == ["12.0", "12.0", "True"], done.stderr


def test_repr_waits_for_a_limited_time(run_python, stopped_server):
    done = run(run_python, stopped_server, "print(repr(y))", before_wait="pass")
    first, second = done.stdout.splitlines()
    assert first == "tensor(<waiting>, shape=[4], device='cpu:0', dtype=float32)", done.stderr
    assert second == "12.0 True"
