"""A private server: a daemon on a Unix socket that ends with this process."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from . import _core
from ._errors import FailedPreconditionError, UnavailableError

_START_SECONDS = 30

_lock = threading.Lock()
_server: _PrivateServer | None = None


def _find_binary() -> str | None:
    """Returns the path of the daemon."""
    named = os.environ.get("TENSORD_BINARY")
    candidates = (
        [named]
        if named
        else [
            str(Path(__file__).parent / "bin" / "tensord"),
            str(Path(sys.executable).parent / "tensord"),
            shutil.which("tensord") or "",
        ]
    )
    return next((path for path in candidates if path and os.access(path, os.X_OK)), None)


def _is_allowed() -> bool:
    return os.environ.get("TENSORD_LOCAL") != "0"


def can_start() -> bool:
    """Returns whether address() would start a private server, or has started one."""
    return _is_allowed() and _find_binary() is not None


def _binary() -> str:
    """Returns the path of the daemon. If there is none, raises FailedPreconditionError."""
    found = _find_binary()
    if found is None:
        named = os.environ.get("TENSORD_BINARY")
        raise FailedPreconditionError(
            "there is no server to connect to: give connect() an address, set TENSORD_SERVERS, or put the program "
            "tensord on PATH, so that a private server can be started"
            + (f" (TENSORD_BINARY is {named})" if named else "")
        )
    return found


class _PrivateServer:
    """The daemon reads its standard input, which is a pipe that only this process holds. It ends at the end of file,
    so also if this process is killed."""

    def __init__(self) -> None:
        binary = _binary()
        self.pid = os.getpid()
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._folder = Path(tempfile.mkdtemp(prefix="tensord-"))  # mode 0700
        except OSError as e:
            raise UnavailableError(f"the private server {binary} can't be started: {e}") from e
        self.address = f"unix:{self._folder / 'socket'}"
        try:
            self._process = self._start(binary)
            self._await_ready(binary, self._process)
        except BaseException:  # also KeyboardInterrupt
            if self._process is not None:
                self._process.kill()
            self.stop()  # without the process, which ends at the end of its standard input, removes the folder
            raise
        print(
            f"tensord: started a private server (pid {self._process.pid}, {binary}); it ends with this process."
            " To use another one, call tensord.connect(address) or set TENSORD_SERVERS",
            file=sys.stderr,
        )

    def _start(self, binary: str) -> subprocess.Popen[bytes]:
        arguments = [binary, "--until-eof", f"--listen={self.address}", f"--port-file={self._folder / 'ready'}"]
        devices = os.environ.get("TENSORD_LOCAL_DEVICES")
        if devices:
            arguments.append(f"--devices={devices}")
        try:
            with (self._folder / "log").open("wb") as log:
                return subprocess.Popen(
                    arguments,
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C in a terminal is for this process alone
                )
        except OSError as e:
            raise UnavailableError(f"the private server {binary} can't be started: {e}") from e

    def _await_ready(self, binary: str, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not (self._folder / "ready").exists():
            if process.poll() is not None or time.monotonic() > deadline:
                text = (self._folder / "log").read_text(errors="replace").strip()
                raise UnavailableError(f"the private server {binary} didn't start: {text or 'no output'}")
            time.sleep(0.002)

    def alive(self) -> bool:
        return self.pid == os.getpid() and self._process is not None and self._process.poll() is None

    def stop(self) -> None:
        if self.pid != os.getpid():
            return  # a forked child: the server is the parent's
        if self._process is not None:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)


def address() -> str:
    """Returns the address of this process's private server. Starts it at the first call."""
    global _server
    if not _is_allowed():
        raise FailedPreconditionError(
            "there is no server to connect to, and TENSORD_LOCAL=0 forbids a private one: give connect() an address, or"
            " set TENSORD_SERVERS"
        )
    with _lock:
        if _server is None or not _server.alive():
            _server = _PrivateServer()
        return _server.address


def _stop() -> None:
    _core._close_at_exit()  # first, because sessions of a server that has ended close only after a time limit
    if _server is not None:
        _server.stop()


atexit.register(_stop)
