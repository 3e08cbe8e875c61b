"""Several threads use one tensor."""

import threading

import pytest
import torch

DEVICE = "tensord"
WRITES = 300
READERS = 3


def run_threads(functions):
    """Runs the functions in threads, and raises the first exception of one."""
    errors = []

    def guarded(function):
        try:
            function()
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=guarded, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


IN_PLACE = {
    "whole": lambda x: x.add_(1),
    "tensor": lambda x: x.add_(torch.ones(8, device=DEVICE)),
    "unary": lambda x: x.abs_(),
    "part": lambda x: x[2:5].add_(1),
    "strided": lambda x: x[::2].mul_(1.001),
    "fill": lambda x: x.fill_(7),
    "copy": lambda x: x.copy_(torch.full((8,), 9.0, device=DEVICE)),
}


@pytest.mark.parametrize("write", IN_PLACE.values(), ids=list(IN_PLACE))
def test_readers_see_the_value_before_or_after_a_write(write):
    x = torch.ones(8, device=DEVICE)
    done = threading.Event()
    seen = [[] for _ in range(READERS)]

    def writer():
        for _ in range(WRITES):
            write(x)
        done.set()

    def reader(values):
        while not done.is_set():
            values.append(x + 0)
            values.append(x[2:6].sum() / 4)
            if len(values) > 2 * WRITES:
                values.clear()

    run_threads([writer, *(lambda v=v: reader(v) for v in seen)])
    for values in seen:
        assert all(value.min().item() >= 1 for value in values[-40:])
    assert x.min().item() >= 1


def test_writes_of_several_threads_are_all_done():
    x = torch.zeros(4, device=DEVICE)

    def add():
        for _ in range(WRITES):
            x.add_(1)

    run_threads([add] * READERS)
    assert x.tolist() == [WRITES * READERS] * 4


def test_writes_to_different_parts_are_all_done():
    x = torch.zeros(READERS, 2, device=DEVICE)

    def fill(row):
        for i in range(WRITES):
            x[row] = i

    run_threads([lambda row=row: fill(row) for row in range(READERS)])
    assert x.tolist() == [[WRITES - 1] * 2] * READERS


def test_the_first_write_is_not_lost_to_a_reader_of_an_empty_tensor():
    for _ in range(30):
        x = torch.empty(4, device=DEVICE)
        barrier = threading.Barrier(2)

        def write(x=x, barrier=barrier):
            barrier.wait()
            x.copy_(torch.ones(4, device=DEVICE))

        def read(x=x, barrier=barrier):
            barrier.wait()
            (x + 1).sum()

        run_threads([write, read])
        assert x.tolist() == [1] * 4


def test_an_op_that_fails_leaves_the_value():
    x = torch.ones(3, device=DEVICE)
    with pytest.raises(RuntimeError):
        x.add_(torch.ones(4, device=DEVICE))
    y = torch.ones(1, device=DEVICE)
    with pytest.raises(RuntimeError):
        y.add_(torch.ones(3, device=DEVICE))
    assert x.tolist() == [1, 1, 1] and y.tolist() == [1]


def test_threads_ask_for_the_stream_while_the_queue_of_commands_is_full(run_python):
    program = """
import os
import threading

import tensord
import torch

tensord.connect(os.environ["TENSORD_SERVER"], max_pending_commands=8)
x = torch.ones(64, 64, device="tensord")

def work():
    stream = torch.tensord.current_stream()
    for _ in range(300):
        x + 1
        stream.query()

threads = [threading.Thread(target=work, daemon=True) for _ in range(4)]
for each in threads:
    each.start()
for each in threads:
    each.join(timeout=60)
print([each.is_alive() for each in threads])
"""
    done = run_python(program)
    assert done.stdout.strip() == str([False] * 4), done.stderr
