"""Connections: addresses, the private server, the end of the process, fork, errors."""

import os
import threading
import time

import pytest
import tensord

NO_SERVER = {"TENSORD_SERVER": "", "TENSORD_SERVERS": ""}


def test_connect_to_one_server(client, address):
    assert [d.name for d in client.devices] == ["cpu:0", "cpu:1"]
    assert client.address == address and client.connected and client.info["version"]
    assert client.device("cpu:1") == client.device(1) == client.devices[1]
    assert client.devices[0] != client.devices[1] and len({*client.devices, client.device("cpu")}) == 2
    assert "cpu:0" in repr(client) and repr(client.devices[0]) == "Device('cpu:0')"
    with pytest.raises(tensord.NotFoundError):
        client.device("cuda:0")
    with pytest.raises(IndexError):
        client.device(9)


def test_connect_to_several_servers(start_daemon, address, client):
    second = start_daemon("--devices=cpu")
    try:
        with tensord.connect([address, second]) as cluster:
            assert [s["state"] for s in cluster.servers] == ["connected"] * 2
            a, b = cluster.device(f"{address}/cpu:0"), cluster.device(f"{second}/cpu:0")
            x = tensord.ones(3, device=a).to(b) + 1
            assert x.device == b and x.tolist() == [2, 2, 2]
            assert cluster.server(second).address == second
    finally:
        tensord.connect(address)


def test_the_default_device(client):
    tensord.connect(client.address)
    assert tensord.zeros(1).device.name == "cpu:0"
    tensord.set_default_device("cpu:1")
    assert tensord.zeros(1).device.name == tensord.asarray([1]).device.name == "cpu:1"
    tensord.set_default_device(None)
    assert tensord.default_device().name == "cpu:0"


def test_close_ends_the_session(address):
    other = tensord.connect(address)
    x = tensord.ones(2)
    other.close()
    other.close()
    with pytest.raises(tensord.FailedPreconditionError):
        x.item() if x.size == 1 else x.tolist()
    with pytest.raises(tensord.FailedPreconditionError):
        x + 1
    assert "error" in repr(x)
    tensord.connect(address)


def test_closing_a_connection_makes_the_one_before_it_current(address, start_daemon, run_python):
    second = start_daemon("--devices=cpu")
    program = f"""
import tensord
with tensord.connect({address!r}) as outer:
    tensord.set_default_device("cpu:1")
    with tensord.connect({second!r}) as inner:
        assert tensord.zeros(1).device == inner.devices[0]
        with tensord.connect([{address!r}, {second!r}]) as cluster:
            assert tensord.zeros(1).device == cluster.devices[0]
        assert tensord.current_connection().address == {second!r}
    x = tensord.zeros(1)
    assert x.device == outer.devices[0], x.device
    tensord.connect({second!r})  # stays current without a name
    assert tensord.zeros(1).tolist() == [0] and tensord.current_connection().address == {second!r}
    tensord.current_connection().close()
    assert tensord.current_connection().address == {address!r}
print(tensord.current_connection())
"""
    done = run_python(program)
    assert done.stdout.strip() == "None", done.stderr


def test_published_tensors(client, address):
    with tensord.connect(address) as other:
        client.publish(tensord.asarray([1, 2], device=client.devices[0]), "test.weights")
        assert other.open("test.weights").tolist() == [1, 2]
        client.unpublish("test.weights")
        with pytest.raises(tensord.NotFoundError) as caught:
            other.open("test.weights")
        assert caught.value.code == "NOT_FOUND" and isinstance(caught.value, LookupError)
    tensord.connect(address)


def test_reports(client):
    x = tensord.ones(1000, device=client.devices[1])
    x.wait()
    assert client.memory(client.devices[1])["used_bytes"] >= 4000
    assert [d["name"] for d in client.list_devices()] == ["cpu:0", "cpu:1"]
    assert any(t["shape"] == (1000,) and t["dtype"] is tensord.float32 for t in client.list_tensors())
    assert client.stats["commands_sent"] > 0 and client.stats["waits"] > 0
    assert "float32[1000]" in x.describe()


def test_errors_of_the_server_are_raised_by_waits():
    y = tensord.ones(1 << 44) + 1  # more elements than any machine can hold
    for wait in (tensord.synchronize, y.wait, y.sum().item, lambda: bool(y.sum())):
        with pytest.raises(tensord.OutOfMemoryError) as caught:
            wait()
        assert caught.value.code == "RESOURCE_EXHAUSTED" and isinstance(caught.value, MemoryError)
    tensord.ones(1).wait()


def test_an_address_without_a_server():
    with pytest.raises(tensord.UnavailableError) as caught:
        tensord.connect("127.0.0.1:1", timeout=0.3)
    assert isinstance(caught.value, ConnectionError) and "127.0.0.1:1" in str(caught.value)
    with pytest.raises(TypeError, match="no option"):
        tensord.connect("127.0.0.1:1", colour="red")


def test_waits_release_the_interpreter_lock():
    """While one thread waits for a long op, another one runs Python code."""
    x = tensord.uniform(1500, 1500)
    for _ in range(4):
        x = x @ x / 1500
    y = x.sum()
    begun, ticks, finished = threading.Event(), 0, threading.Event()

    def wait():
        begun.set()
        y.item()
        finished.set()

    thread = threading.Thread(target=wait)
    thread.start()
    begun.wait()
    while not finished.is_set():
        ticks += 1
        time.sleep(0)
    thread.join()
    assert ticks > 10


def test_threads_share_a_connection():
    results = [None] * 8

    def compute(i):
        x = tensord.zeros(4)
        for _ in range(200):
            x = x + i
        results[i] = x.sum().item()

    threads = [threading.Thread(target=compute, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [800.0 * i for i in range(8)]


def test_threads_that_connect_at_once_share_a_connection(run_python):
    program = """
import threading
import tensord

start = threading.Barrier(8)
made = []

def work():
    start.wait()
    made.append(tensord.ones(3))

threads = [threading.Thread(target=work) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
total = made[0]
for each in made[1:]:
    total = total + each  # tensors of two connections can't be added
print(total.tolist())
"""
    done = run_python(program)
    assert done.stdout.strip() == "[8.0, 8.0, 8.0]", done.stderr


def test_the_environment_names_the_server(run_python, address):
    done = run_python("import tensord; print(tensord.connect().address, tensord.ones(2).sum().item())")
    assert done.stdout.split() == [address, "2.0"] and done.stderr == ""


def test_without_connect_the_first_function_connects(run_python):
    done = run_python("import tensord; print((tensord.arange(3) + 1).tolist())")
    assert done.stdout.strip() == "[1, 2, 3]", done.stderr


def test_the_private_server_ends_with_the_process(run_python):
    program = """
import os, tensord
with tensord.connect("local") as client:
    folder = os.path.dirname(client.address.removeprefix("unix:"))
    print(folder, oct(os.stat(folder).st_mode & 0o777), tensord.ones(3).sum().item())
    print(tensord.connect("local").address == client.address)
    {end}
"""
    for end in ("pass", "os.kill(os.getpid(), 9)"):
        done = run_python(program.replace("{end}", "import sys; sys.stdout.flush(); " + end), **NO_SERVER)
        folder, mode, total, same = done.stdout.split()
        assert (mode, total, same) == ("0o700", "3.0", "True"), done.stderr
        assert done.stderr.count("\n") == 1 and "private server (pid " in done.stderr
        pid = int(done.stderr.split("pid ")[1].split(",")[0])
        deadline = time.monotonic() + 30
        while os.path.exists(f"/proc/{pid}"):
            assert time.monotonic() < deadline, "the private server still runs"
            time.sleep(0.02)
        if end == "pass":
            assert not os.path.exists(folder)


def test_the_environment_may_forbid_a_private_server(run_python):
    done = run_python("import tensord; tensord.connect('local')", TENSORD_LOCAL="0", **NO_SERVER)
    assert "FailedPreconditionError" in done.stderr and "TENSORD_LOCAL=0" in done.stderr
    done = run_python("import tensord; tensord.connect('local')", TENSORD_BINARY="/no/such/file", **NO_SERVER)
    assert "FailedPreconditionError" in done.stderr and "/no/such/file" in done.stderr


@pytest.mark.parametrize("end", ["pass", "import os; os._exit(0)", "raise SystemExit(0)", "x = y = None"])
def test_the_process_ends_cleanly_with_live_tensors(run_python, end):
    program = f"import tensord, threading; x = tensord.ones(3); y = [x, x + 1]; print(y[1].sum().item()); {end}"
    done = run_python(program)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "6.0", "")


def test_a_daemon_thread_may_wait_at_the_end(run_python):
    program = """
import tensord, threading
x = tensord.uniform(1500, 1500)
for _ in range(20): x = x @ x / 1500
threading.Thread(target=x.tobytes, daemon=True).start()
"""
    done = run_python(program)
    assert done.returncode == 0, done.stderr


def test_a_forked_child_gets_a_clear_error_and_harms_nothing(run_python):
    program = """
import os, sys, tensord
x = tensord.ones(3)
x.wait()
pid = os.fork()
if pid == 0:
    for use in (lambda: x + 1, lambda: x.tolist(), lambda: tensord.connect()):
        try:
            use()
            print("no error")
        except tensord.FailedPreconditionError as error:
            assert "fork" in str(error), error
    del x
    sys.exit(0)
_, status = os.waitpid(pid, 0)
print(os.waitstatus_to_exitcode(status), (x + 1).tolist())
"""
    done = run_python(program)
    assert done.stdout.strip() == "0 [2.0, 2.0, 2.0]", done.stderr


def test_spawned_workers_compute(run_python, tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import multiprocessing, tensord
def work(x):
    return x * 2
if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print([x.tolist() for x in pool.map(work, [tensord.asarray([i, 1]) for i in range(3)])])
""")
    done = run_python(f"import runpy; runpy.run_path({str(program)!r}, run_name='__main__')")
    assert done.stdout.strip() == "[[0, 2], [2, 2], [4, 2]]", done.stderr


def test_debug_mode_raises_at_the_op(run_python):
    program = """
import tensord
x = tensord.asarray([1, 2])
try:
    y = x[tensord.asarray([7])]
    print("later")
    y.numpy()
except ValueError as error:
    print("now")
"""
    assert run_python(program).stdout.split() == ["later", "now"]
    assert run_python(program, TENSORD_DEBUG="sync").stdout.split() == ["now"]


def test_debug_mode_names_the_line_of_the_op(run_python):
    program = """
import tensord
x = tensord.asarray([1.0, 2.0])
y = tensord.softplus(x[tensord.asarray([7])])
z = y + 1
z.tolist()
"""
    assert ", in <module>" not in run_python(program).stderr.splitlines()[-1]
    assert (
        "The failed op was called at <string>:4, in <module>" in run_python(program, TENSORD_DEBUG="tracebacks").stderr
    )


def test_an_op_that_waits_for_room_releases_the_interpreter_lock(run_python):
    """Other threads run, and may change the operands, while the command queue is full."""
    program = """
import tensord, threading
tensord.connect(max_pending_commands=4)
x = tensord.uniform(700, 700)
y, ticks, done = tensord.ones(700, 700), 0, threading.Event()
def compute():
    global y
    for _ in range(60):
        y = y @ x / 350
    done.set()
threading.Thread(target=compute).start()
while not done.is_set():
    ticks += 1
    x *= 1.0
    x[0] = x[1]
print(ticks > 1, y.isfinite().all().item())
"""
    assert run_python(program).stdout.split() == ["True", "True"]


def test_awaiting_a_tensor(run_python):
    program = """
import asyncio, tensord
from tensord import aio
async def main():
    x = tensord.ones(3) + 1
    await aio.wait(x)
    a, b = await asyncio.gather(x.anumpy(), aio.numpy(x * 2))
    await aio.synchronize()
    print(a.tolist(), b.tolist())
asyncio.run(main())
"""
    done = run_python(program)
    assert done.stdout.strip() == "[2.0, 2.0, 2.0] [4.0, 4.0, 4.0]", done.stderr


def test_notebooks_show_devices_as_a_table(client):
    assert "<table>" in client._repr_html_() and "<td>cpu:1</td>" in client._repr_html_()
