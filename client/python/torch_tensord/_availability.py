"""Counts the devices that a connection would have. This process doesn't connect.

A connection starts threads, and after that a forked child can't use the device. So another process connects, and
prints the number.
"""

import json
import math
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import tensord
from tensord import _connect

_ASK_SECONDS = 120.0  # connecting takes up to 10 s, and a private server up to 30 s to start
# A failed question is asked again after _RETRY_SECONDS, or after _RETRY_FACTOR times its duration if this is longer. So
# a program that asks in each step, as PyTorch's optimizers do, spends at most a tenth of its time.
_RETRY_SECONDS = 10.0
_RETRY_FACTOR = 10

_PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
import tensord
try:
    answer = [len(tensord.connect().devices), ""]
except Exception as e:
    answer = [0, str(e)]
print(json.dumps(answer))
"""

_answers: dict[tuple[object, ...], tuple[float, Any]] = {}


def _once(ask: Callable[[], Any], succeeded: Callable[[Any], bool]) -> Any:
    """Returns ask(), or its earlier result for the same addresses. Takes no lock, because another thread may fork."""
    names = ("TENSORD_SERVERS", "TENSORD_SERVER", "TENSORD_LOCAL")
    key = (ask, *(os.environ.get(name) for name in names))
    begin = time.monotonic()
    expires, answer = _answers.get(key, (0.0, None))
    if begin >= expires:
        answer = ask()
        end = time.monotonic()
        wait = math.inf if succeeded(answer) else max(_RETRY_SECONDS, _RETRY_FACTOR * (end - begin))
        _answers[key] = end + wait, answer
    return answer


def _ask() -> tuple[int, str] | None:
    # In an application made of a program and an interpreter, sys.executable starts the application.
    if not sys.executable or getattr(sys, "frozen", False):
        return None
    packages = pathlib.Path(tensord.__file__).parent.parent
    command = [sys.executable, "-I", "-S", "-c", _PROGRAM, str(packages)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_ASK_SECONDS)
        count, reason = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return count, reason


def count_devices() -> tuple[int, str] | None:
    """Returns the number of devices, and if it is 0, the reason. If no other process can be started, returns None."""
    return _once(_ask, lambda answer: answer is None or answer[0] > 0)


def starts_private_server() -> bool:
    """Returns whether a connection would start a private server. Starts none."""
    return _once(_connect._starts_private_server, bool)
