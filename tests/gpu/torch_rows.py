"""Compares PyTorch on a device of tensord with PyTorch on CUDA: speed, losses and outputs.

usage: torch_rows.py [--daemon PROGRAM] [--library-path PATH] [--devices LIST] [--reference cuda|cpu]
                     [--seconds N] [--row-seconds N] [--rounds N] [--tiny] [--smoke] [--only FILE]
                     [--json FILE] [--table FILE] [--repeat FILE] [--log FILE]
       torch_rows.py --peer tensord|cuda|cpu

The program starts the daemon and two peers, one for tensord and one for CUDA, because one process can't run backward()
on both. A round runs the same work in one peer, then in the other. If a row fails or takes longer than --row-seconds,
the program ends both peers and the daemon, and starts them again for the next row. --library-path is the daemon's
LD_LIBRARY_PATH. The reference of an emulated daemon is PyTorch on the CPU, if --reference names no other.

When a row ends, the program prints it in GoogleTest's format, and replaces --json, --table and --repeat. --repeat lists
the rows that fell short: a ratio below 1, values that differ, a failure, or no start. --only runs the rows of such a
list.

A peer prints "ready {JSON}" with its versions and the names of the rows. It reads "load ROW TINY" and "run COUNT", and
answers "ok {JSON}" or "error TEXT". Only peers import PyTorch, so that the time limits include its import.
"""

import argparse
import importlib
import json
import math
import os
import pathlib
import platform
import select
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

SMOKE_ROWS = ["train_mlp_float32"]
CHECKED_STEPS = 3  # after the first one
SAMPLE_SECONDS = 0.2
MAX_REPETITIONS = 1000


class Failure(Exception):
    """A row can't be measured."""


# --- A peer: runs rows on one device.


def versions(kind):
    import torch

    cuda = kind == "cuda"
    return {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "cudnn": torch.backends.cudnn.version() if cuda else None,
        "device": torch.cuda.get_device_name() if cuda else kind,
        "python": platform.python_version(),
    }


def settings():
    """Returns the settings of PyTorch that choose between algorithms."""
    import torch

    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    return {
        "cudnn.allow_tf32": cudnn.allow_tf32,
        "cudnn.deterministic": cudnn.deterministic,
        "cudnn.benchmark": cudnn.benchmark,
        "matmul.allow_tf32": matmul.allow_tf32,
    }


def answer(work, words, kind):
    """Executes a command. Returns the work that is loaded after it, and the answer."""
    import torch_work

    if words[0] == "load":
        return torch_work.make(words[1], kind, tiny=words[2] == "1"), {"flags": settings()}
    start = time.perf_counter()
    values = work(int(words[1]))
    return work, {"seconds": time.perf_counter() - start, "values": values}


def run_peer(kind):
    if kind == "tensord":
        importlib.import_module("torch_tensord")
    import torch_work

    torch_work.choose_repeatable_kernels()
    print("ready " + json.dumps({"versions": versions(kind), "rows": list(torch_work.ROWS)}), flush=True)
    work = None
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "load":
                work = None  # frees its memory
            work, result = answer(work, words, kind)
            print("ok " + json.dumps(result), flush=True)
        except Exception as error:  # only this row fails
            print("error " + " ".join(f"{type(error).__name__}: {error}".split())[:500], flush=True)


# --- The program that measures.


class Process:
    """A child process that answers lines. Its standard error goes to a file."""

    def __init__(self, command, log, **environment):
        self.process: Any = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            bufsize=0,
            env={**os.environ, **environment},
        )
        self.buffer = b""
        self.daemon = None  # the process without which no answer comes

    def read(self, deadline):
        while b"\n" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise Failure("took longer than its time limit")
            if not select.select([self.process.stdout], [], [], min(left, 0.5))[0]:
                if self.daemon and self.daemon.poll() is not None:
                    raise Failure(f"the daemon ended with {self.daemon.returncode}")
                continue
            data = os.read(self.process.stdout.fileno(), 1 << 16)
            if not data:
                raise Failure(f"the process ended with {self.process.wait()}")
            self.buffer += data
        line, _, self.buffer = self.buffer.partition(b"\n")
        return line.decode(errors="replace")

    def ask(self, text, deadline):
        try:
            self.process.stdin.write(text.encode() + b"\n")
        except BrokenPipeError:
            raise Failure(f"the process ended with {self.process.wait()}") from None
        state, _, rest = self.read(deadline).partition(" ")
        if state == "error":
            raise Failure(rest)
        return json.loads(rest)

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


class Session:
    """The daemon and the two peers."""

    def __init__(self, options, log, deadline):
        self.children = []
        try:
            self.start(options, log, deadline)
        except BaseException:
            self.end()
            raise

    def start(self, options, log, deadline):
        with tempfile.TemporaryDirectory() as folder:
            port_file = pathlib.Path(folder, "port")
            flags = ["--until-eof", "--listen=127.0.0.1:0", f"--port-file={port_file}", f"--devices={options.devices}"]
            libraries = {"LD_LIBRARY_PATH": options.libraries} if options.libraries else {}
            self.daemon = Process([options.daemon, *flags], log, **libraries)
            self.children.append(self.daemon)
            while not port_file.exists():
                if self.daemon.process.poll() is not None:
                    raise Failure(f"the daemon ended with {self.daemon.process.returncode}")
                if time.monotonic() > deadline:
                    raise Failure("the daemon didn't start in time")
                time.sleep(0.02)
            address = port_file.read_text().strip()
        self.peers = {}
        for kind in ("tensord", options.reference):
            command = [sys.executable, os.path.abspath(__file__), "--peer", kind]
            # The address is this machine's, so no proxy is asked.
            environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
            if kind == "tensord":
                environment |= {"TENSORD_SERVER": address, "no_grpc_proxy": "127.0.0.1"}
            self.peers[kind] = Process(command, log, **environment)
            self.peers[kind].daemon = self.daemon.process
            self.children.append(self.peers[kind])
        self.versions = {}
        for kind, peer in self.peers.items():
            line = peer.read(deadline)
            if not line.startswith("ready "):
                raise Failure(f"the peer for {kind} printed: {line}")
            greeting = json.loads(line[len("ready ") :])
            self.versions[kind], self.rows = greeting["versions"], greeting["rows"]

    def end(self):
        for child in reversed(self.children):
            child.end()


def tolerance(row):
    """Returns the largest permitted difference, relative to values above 1."""
    if "bfloat16" in row or "tf32" in row:
        return 3e-2
    return 5e-3 if row.startswith("train") else 1e-4


def largest_difference(ours, reference):
    """Returns the largest difference of two lists, relative to values above 1.

    If the lengths differ, or a value is NaN, returns infinity.
    """
    if len(ours) != len(reference):
        return math.inf
    differences = [abs(a - b) / max(1.0, abs(b)) for a, b in zip(ours, reference)]
    return math.inf if any(map(math.isnan, differences)) else max(differences)


def measure(session, options, row, deadline):
    """Compares the values, then the time. The values of later training steps depend on gradients and optimizers."""
    peers = session.peers
    used, values, once = {}, [], 0.0
    for kind, peer in peers.items():
        used[kind] = peer.ask(f"load {row} {int(options.tiny)}", deadline)["flags"]
        first, later = peer.ask("run 1", deadline), peer.ask(f"run {CHECKED_STEPS}", deadline)
        values.append(first["values"] + later["values"])
        once = max(once, later["seconds"] / CHECKED_STEPS)
    count = 1 if options.tiny else max(1, min(MAX_REPETITIONS, int(SAMPLE_SECONDS / once)))
    rounds = []
    for _ in range(options.rounds):
        rounds.append([peer.ask(f"run {count}", deadline)["seconds"] / count for peer in peers.values()])
    return {
        "row": row,
        "ours": statistics.median(a for a, _ in rounds),
        "reference": statistics.median(b for _, b in rounds),
        "ratio": statistics.median(b / a for a, b in rounds),
        "values": values,
        "difference": largest_difference(*values),
        "permitted": tolerance(row),
        "flags": used,
    }


def tail(log_path, start, lines=12):
    with open(log_path, "rb") as log:
        log.seek(start)
        return log.read().decode(errors="replace").splitlines()[-lines:]


def describe(result):
    """Returns the row's line of the table."""
    row = result["row"]
    if "failure" in result:
        return f"{row:<34} failed: {result['failure']}"
    text = f"{row:<34} {result['ours'] * 1e3:10.3f} {result['reference'] * 1e3:10.3f} {result['ratio']:7.2f}"
    ours, reference = result["flags"].values()
    if ours != reference:
        text += f"  flags differ: {ours} and {reference}"
    if has_failed(result):
        return f"{text}  failed: the values differ by {result['difference']:.1e}, permitted: {result['permitted']:.0e}"
    return f"{text}  equal within {result['difference']:.0e}"


def has_failed(result):
    return "failure" in result or result["difference"] > result["permitted"]


class Report:
    """Writes the files and prints the results. `waiting`: the rows that haven't ended."""

    def __init__(self, options, versions, waiting):
        self.options, self.versions = options, versions
        self.waiting = list(waiting)
        self.results, self.table = [], []
        self.write()

    def write(self):
        """Replaces each file as a whole. If the program is killed, the files are complete."""
        again = [result["row"] for result in self.results if self.fell_short(result)] + self.waiting
        lines = []
        for kind, versions in self.versions.items():
            lines.append(f"{kind}: " + ", ".join(f"{name} {version}" for name, version in versions.items()))
        lines.append(f"{'row':<34} {'ours ms':>10} {'ref. ms':>10} {'ratio':>7}")
        texts = {
            self.options.json: json.dumps({"versions": self.versions, "rows": self.results}, indent=1) + "\n",
            self.options.table: "\n".join(lines + self.table) + "\n",
            self.options.repeat: "".join(f"{row}\n" for row in again),
        }
        for path, text in texts.items():
            if path:
                pathlib.Path(path + ".part").write_text(text, encoding="utf-8")
                os.replace(path + ".part", path)

    def fell_short(self, result):
        return has_failed(result) or (result["ratio"] < 1 and not self.options.smoke)

    def add(self, result):
        self.waiting.remove(result["row"])
        self.results.append(result)
        self.table.append(describe(result))
        self.write()
        print("\n".join([self.table[-1], *result.get("log", [])]))
        print(f"[  FAILED  ] {result['row']}" if has_failed(result) else f"[       OK ] {result['row']}", flush=True)

    def skip(self, row, reason):
        print(f"torch_rows: Skipped\n{reason}\n\n[  SKIPPED ] {row}", flush=True)


def run_row(options, session, row, log, end):
    """Measures a row. Returns the session, or None if it has ended, and the result."""
    start = os.path.getsize(options.log)
    deadline = min(end, time.monotonic() + options.row_seconds)
    try:
        session = session or Session(options, log, deadline)
        return session, measure(session, options, row, deadline)
    except Failure as failure:
        if session:
            session.end()
        return None, {"row": row, "failure": str(failure), "log": tail(options.log, start)}


def select_rows(options, rows):
    if options.smoke:
        rows = SMOKE_ROWS
    if options.only:
        wanted = pathlib.Path(options.only).read_text(encoding="utf-8").split("\n")
        rows = [row for row in rows if row in wanted]
    return rows


def run_rows(options, log):
    options.reference = options.reference or ("cpu" if "emulated" in options.daemon else "cuda")
    start, end = os.path.getsize(options.log), time.monotonic() + options.seconds
    try:
        session = Session(options, log, end)
    except Failure as failure:
        print("\n".join([str(failure), *tail(options.log, start)]))
        return 1
    rows = select_rows(options, session.rows)
    report = Report(options, session.versions, rows)
    for row in rows:
        print(f"[ RUN      ] {row}", flush=True)
        if time.monotonic() >= end:
            report.skip(row, f"the time limit for rows, {options.seconds:g} s, is over")
            continue
        session, result = run_row(options, session, row, log, end)
        if "failure" in result and time.monotonic() >= end:
            report.skip(row, f"was running when the time limit for rows, {options.seconds:g} s, was over")
        else:
            report.add(result)
    if session:
        session.end()
    return 1 if any(map(has_failed, report.results)) or not report.results else 0


def main():
    folder = pathlib.Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--peer", choices=("tensord", "cuda", "cpu"))
    parser.add_argument("--daemon", default=str(folder / "bin/tensord"))
    parser.add_argument("--library-path", dest="libraries")
    parser.add_argument("--devices", default="cuda:0")
    parser.add_argument("--reference", choices=("cuda", "cpu"))
    parser.add_argument("--seconds", type=float, default=180)
    parser.add_argument("--row-seconds", type=float, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--log", default="torch.log")
    for name in ("--only", "--json", "--table", "--repeat"):
        parser.add_argument(name)
    for name in ("--tiny", "--smoke"):
        parser.add_argument(name, action="store_true")
    options = parser.parse_args()
    if options.peer:
        run_peer(options.peer)
        return 0
    with open(options.log, "ab") as log:
        return run_rows(options, log)


if __name__ == "__main__":
    sys.exit(main())
