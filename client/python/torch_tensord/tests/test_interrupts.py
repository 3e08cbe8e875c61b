"""Ctrl-C during a wait. The server is stopped, so that it doesn't answer."""

import pytest
import torch  # noqa: F401  Before pytest puts the folder of the source on the path.

# A thread of the program sends the signal when the main thread sends no more commands. The wait can't end by itself.
PROGRAM = """
import threading, time
import torch, tensord

# A process that a shell started in the background ignores SIGINT.
signal.signal(signal.SIGINT, signal.default_int_handler)
client = tensord.connect(os.environ["ADDRESS"], {options})
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

def wait_for_the_last_command():
    seen = []
    while len(seen) < 6 or len(set(seen[-6:])) > 1:
        seen.append(client.stats["commands_sent"])
        time.sleep(0.05)

def interrupt():
    begun.wait()
    wait_for_the_last_command()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    {before_wait}
    {wait}
except KeyboardInterrupt:
    print("interrupted")
os.kill(server, signal.SIGCONT)
event.synchronize()
print(y.sum().item(), big.sum().item() == 3 << 20, event.query())
{after}
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

    def run_wait(wait, options="", before_wait="begun.set()", after=""):
        address, pid = start_daemon("--devices=cpu")
        program = stop_server + PROGRAM.format(wait=wait, options=options, before_wait=before_wait, after=after)
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


# The loops block when the queue is full. The server still runs the ops that were sent before.
IN_PLACE = {
    "whole": "y.mul_(1)",
    "part": "y[1:3].mul_(1)",
    "comparison": "y.ge_(1)",
    "list": "torch._foreach_mul_([y], 1.0)",
    "fused": "adam.step()",
    "fused_sgd": "sgd.step()",
    "scaled": "scaled.step()",
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_ctrl_c_in_an_op_in_place_leaves_the_tensors_usable(run, name):
    setup = """
    y = torch.full((4,), 3.0, device="tensord")
    p = torch.nn.Parameter(torch.ones(4, device="tensord"))
    p.grad = torch.zeros_like(p)
    adam, sgd = torch.optim.Adam([p], fused=True), torch.optim.SGD([p], momentum=0.9, fused=True)
    scaled = torch.optim.Adam([p], fused=True, amsgrad=True)
    scaled.grad_scale, scaled.found_inf = torch.tensor(2.0, device="tensord"), torch.tensor(0.0, device="tensord")
    begun.set()"""
    loop = f"""
    while True:
        {IN_PLACE[name]}"""
    after = """
for optimizer in (adam, sgd, scaled):
    optimizer.step()
    print(*{value.numel() for value in optimizer.state[p].values() if torch.isfinite(value).all()})
print(p.sum().item())
"""
    done = run(loop, "max_pending_commands=64", setup, after)
    total = "4.0" if name == "comparison" else "12.0"
    expected = ["interrupted", total, "True", "True", "1", "4", "4", "1", "4", "4.0"]
    assert done.stdout.split() == expected, done.stdout + done.stderr


def test_ctrl_c_ends_the_wait_for_an_op_in_place_of_another_thread(run):
    setup = """
    def change():
        while True:
            y.mul_(1)

    threading.Thread(target=change, daemon=True).start()
    wait_for_the_last_command()  # the thread has taken the value, and waits for room in the queue
    begun.set()"""
    done = run("y + 1", "max_pending_commands=8", setup, after="print(flush=True); os._exit(0)")
    assert done.stdout.split()[:2] == ["interrupted", "12.0"], done.stdout + done.stderr


def test_ctrl_c_ends_the_wait_for_an_event_for_which_another_thread_waits(run):
    setup = """
    threading.Thread(target=event.synchronize, daemon=True).start()
    wait_for_the_last_command()
    begun.set()"""
    done = run("event.synchronize()", before_wait=setup)
    assert done.stdout.split() == ["interrupted", "12.0", "True", "True"], done.stdout + done.stderr


HANDLERS = {
    "reads": ("print(y.sum().item())", "12.0"),
    "changes": ("y.add_(1)", "RuntimeError: tensord: a signal's handler can't change a tensor in place while the op"),
}


@pytest.mark.parametrize("name", HANDLERS)
def test_a_handler_that_uses_the_tensor_of_the_interrupted_op_does_not_hang(run, name):
    handler, expected = HANDLERS[name]
    setup = f"""
    class Ended(Exception):
        pass

    def handle(*unused):
        os.kill(server, signal.SIGCONT)
        {handler}
        raise Ended

    y = torch.full((4,), 3.0, device="tensord")
    signal.signal(signal.SIGINT, handle)
    begun.set()"""
    wait = """
    try:
        while True:
            y.mul_(1)
    except Ended:
        pass"""
    done = run(wait, "max_pending_commands=8", setup)
    assert expected in done.stdout + done.stderr
    if name == "reads":
        assert done.stdout.split() == ["12.0", "12.0", "True", "True"], done.stdout + done.stderr


# A port that accepts connections, and says nothing.
CONNECTING = """
import os, signal, socket, threading
import torch

signal.signal(signal.SIGINT, signal.default_int_handler)
silent = socket.create_server(("127.0.0.1", 0))
os.environ["TENSORD_SERVERS"] = "127.0.0.1:%d" % silent.getsockname()[1]

def interrupt():
    kept = silent.accept()
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait()

threading.Thread(target=interrupt, daemon=True).start()
try:
    {call}
except KeyboardInterrupt:
    print("interrupted")
os.environ["TENSORD_SERVERS"] = os.environ["TENSORD_SERVER"]
print(torch.ones(3, device="tensord").sum().item())
"""
CONNECTS = {
    "op": "torch.ones(3, device='tensord')",
    "device_count": "torch.tensord.device_count()",
    "is_available": "torch.tensord.is_available()",
    "accelerator": "torch.accelerator.is_available()",
    "init": "torch.tensord.init()",
    "synchronize": "torch.tensord.mem_get_info()",
}


@pytest.mark.parametrize("call", CONNECTS.values(), ids=list(CONNECTS))
def test_ctrl_c_ends_connecting(run_python, call):
    done = run_python(CONNECTING.format(call=call))
    assert done.stdout.split() == ["interrupted", "3.0"], done.stdout + done.stderr


# The other member of the group doesn't exist.
GROUP = """
import os, signal, sys, threading
import torch
import torch.distributed as dist

sys.setswitchinterval(1000)  # the main thread releases the interpreter's lock only in a wait
signal.signal(signal.SIGINT, signal.default_int_handler)
dist.init_process_group("tensord", store=dist.{store}, rank=0, world_size=2)
x = torch.ones(3, device="tensord")
begun = threading.Event()

def interrupt():
    begun.wait()
    os.kill(os.getpid(), signal.SIGINT)

threading.Thread(target=interrupt, daemon=True).start()
try:
    begun.set()
    {call}
except KeyboardInterrupt:
    print("interrupted")
print(x.sum().item())
"""


@pytest.mark.parametrize("store", ["HashStore()", "TCPStore('127.0.0.1', 0, 2, True, wait_for_workers=False)"])
@pytest.mark.parametrize("call", ["dist.all_reduce(x)", "dist.barrier()", "dist.recv(x, 1)", "dist.recv(x)"])
def test_ctrl_c_ends_the_wait_for_another_member(run_python, store, call):
    done = run_python(GROUP.format(store=store, call=call))
    assert done.stdout.split() == ["interrupted", "3.0"], done.stdout + done.stderr
