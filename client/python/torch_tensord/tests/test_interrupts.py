"""Ctrl-C during a wait. The server is stopped, so that it doesn't answer."""

import pytest
import torch  # noqa: F401  Before pytest puts the folder of the source on the path.

# A thread of the program sends the signal when the main thread is about to wait. The wait can't end by itself.
PROGRAM = """
import threading
import torch, tensord

# A process that a shell started in the background ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
tensord.connect(os.environ["ADDRESS"], {options})
y = torch.ones(4, device="tensord") + 1
big = torch.ones(1 << 20, device="tensord", dtype=torch.float64) + 1
host = torch.ones(1 << 24)
event = torch.tensord.Event()
torch.tensord.synchronize()
big.cpu()  # opens the shared memory
y, big = y + 1, big + 1
stop_server()
event.record()
begun = threading.Event()

def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    begun.set()
    {wait}
except KeyboardInterrupt:
    print("interrupted")
os.kill(server, signal.SIGCONT)
event.synchronize()
print(y.sum().item(), big.sum().item() == 3 << 20, event.query())
"""

WAITS = {
    "item": "y.sum().item()",
    "bool": "bool((y > 0).all())",
    "cpu": "y.cpu()",
    "cpu_large": "big.cpu()",
    "tolist": "y.tolist()",
    "print": "print(y)",
    "nonzero": "y.nonzero()",
    "mask": "y[y > 0]",
    "synchronize": "torch.tensord.synchronize()",
    "accelerator": "torch.accelerator.synchronize()",
    "stream": "torch.tensord.current_stream().synchronize()",
    "event": "event.synchronize()",
    "upload": "host.to('tensord')",
    "memory": "torch.tensord.mem_get_info()",
}


@pytest.fixture
def run(run_python, start_daemon, stop_server):
    """Returns a function that runs the program with a wait, and returns the finished process."""

    def run_wait(wait, options=""):
        address, pid = start_daemon("--devices=cpu")
        program = stop_server + PROGRAM.format(wait=wait, options=options)
        return run_python(program, ADDRESS=address, SERVER_PID=str(pid))

    return run_wait


@pytest.mark.parametrize("wait", WAITS.values(), ids=list(WAITS))
def test_ctrl_c_ends_a_wait_and_the_ops_go_on(run, wait):
    done = run(wait)
    assert done.stdout.split() == ["interrupted", "12.0", "True", "True"], done.stdout + done.stderr


@pytest.mark.parametrize("wait", ["big.cpu()", "host.to('tensord')"], ids=["cpu_large", "upload"])
def test_ctrl_c_ends_a_transfer_without_shared_memory(run, wait):
    done = run(wait, "shared_memory=False")
    assert done.stdout.split() == ["interrupted", "12.0", "True", "True"], done.stdout + done.stderr


def test_ctrl_c_ends_a_wait_for_room_in_the_queue(run):
    done = run("while True: y + y", "max_pending_commands=8")
    assert done.stdout.split() == ["interrupted", "12.0", "True", "True"], done.stdout + done.stderr


def test_a_handler_of_another_signal_raises_its_exception(run_python, start_daemon, stop_server):
    address, pid = start_daemon("--devices=cpu")
    program = """
import torch

class Expired(Exception):
    pass

def expire(*unused):
    raise Expired("of the program")

y = torch.ones(4, device="tensord")
torch.tensord.synchronize()
stop_server()
signal.signal(signal.SIGALRM, expire)
try:
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    (y + 1).sum().item()
except Expired as e:
    print(type(e).__name__, e)
os.kill(server, signal.SIGCONT)
print(y.sum().item())
"""
    done = run_python(stop_server + program, TENSORD_SERVER=address, SERVER_PID=str(pid))
    assert done.stdout.splitlines() == ["Expired of the program", "4.0"], done.stdout + done.stderr
