"""Compares PyTorch on a device of tensord with PyTorch on CUDA: speed, losses and outputs.

usage: torch_rows.py [--daemon PROGRAM] [--library-path PATH] [--devices LIST] [--reference cuda|cpu]
                     [--seconds N] [--row-seconds N] [--rounds N] [--tiny] [--smoke] [--only FILE]
                     [--json FILE] [--table FILE] [--repeat FILE] [--log FILE]
       torch_rows.py --peer tensord|cuda|cpu

The program starts the daemon and two peers, one for tensord and one for CUDA, because one process can't run backward()
on both. A round runs the same work in one peer, then in the other. If a row fails or takes longer than --row-seconds,
the program ends both peers and the daemon, and starts them again for the next row. --library-path is the daemon's
LD_LIBRARY_PATH. The reference of an emulated daemon is PyTorch on the CPU, if --reference names no other.

The program prints each row in GoogleTest's format, and writes it to --json and --table when it ends. --repeat lists the
rows that fell short: a ratio below 1, values that differ, a failure, or no start. --only runs the rows of such a list.

A peer prints "ready {JSON}". It reads "load ROW TINY" and "run COUNT", and answers "ok {JSON}" or "error TEXT".
"""

import argparse
import json
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

import torch_work

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


def answer(work, words, device):
    """Executes a command. Returns the work that is loaded after it, and the answer."""
    if words[0] == "load":
        return torch_work.make(words[1], device, tiny=words[2] == "1"), {"flags": settings()}
    start = time.perf_counter()
    values = work(int(words[1]))
    return work, {"seconds": time.perf_counter() - start, "values": values}


def run_peer(kind):
    import torch

    if kind == "tensord":
        import torch_tensord  # noqa: F401

    print("ready " + json.dumps(versions(kind)), flush=True)
    work = None
    torch_work.set_flags()
    for line in sys.stdin:
        words = line.split()
        try:
            if words[0] == "load":
                work = None  # frees its memory
            work, result = answer(work, words, torch.device(kind))
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
            libraries = {"LD_LIBRARY_PATH": options.library_path} if options.library_path else {}
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
            self.versions[kind] = json.loads(line[len("ready ") :])

    def end(self):
        for child in reversed(self.children):
            child.end()


def compare_values(row, ours, reference):
    """Returns why the values differ, or None."""
    if len(ours) != len(reference):
        return f"{len(ours)} values, the reference has {len(reference)}"
    tolerance = torch_work.tolerance(row)
    for i, (a, b) in enumerate(zip(ours, reference)):
        if not abs(a - b) <= tolerance * max(1.0, abs(b)):  # also if one is NaN
            return f"value {i} is {a:.7g}, the reference {b:.7g}; permitted: {tolerance:g}"
    return None


def measure(session, options, row, deadline):
    peers = session.peers
    used, results = {}, []
    for kind, peer in peers.items():
        used[kind] = peer.ask(f"load {row} {int(options.tiny)}", deadline)["flags"]
        results.append(peer.ask("run 1", deadline))
    difference = compare_values(row, results[0]["values"], results[1]["values"])
    once = max(peer.ask("run 1", deadline)["seconds"] for peer in peers.values())
    count = 1 if options.tiny else max(1, min(MAX_REPETITIONS, int(SAMPLE_SECONDS / once)))
    rounds = []
    for _ in range(options.rounds):
        rounds.append([peer.ask(f"run {count}", deadline)["seconds"] / count for peer in peers.values()])
    return {
        "row": row,
        "ours": statistics.median(a for a, _ in rounds),
        "reference": statistics.median(b for _, b in rounds),
        "ratio": statistics.median(b / a for a, b in rounds),
        "values": [result["values"] for result in results],
        "difference": difference,
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
    return text + (f"  differs: {result['difference']}" if result["difference"] else "  equal")


def fell_short(result):
    return "failure" in result or result["difference"] is not None or result["ratio"] < 1


def has_failed(result):
    return "failure" in result or result["difference"] is not None


class Report:
    """The files and what is printed. `waiting`: the rows that haven't ended."""

    def __init__(self, options, waiting):
        self.options = options
        self.waiting = list(waiting)
        self.versions, self.results, self.table = {}, [], []
        self.write()

    def write(self):
        """Replaces the files, so that a program that is ended leaves whole files."""
        again = [result["row"] for result in self.results if fell_short(result)] + self.waiting
        lines = [f"{kind}: {json.dumps(each)}" for kind, each in self.versions.items()]
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


def selected_rows(options):
    rows = torch_work.SMOKE if options.smoke else list(torch_work.ROWS)
    if not options.only:
        return rows
    wanted = pathlib.Path(options.only).read_text(encoding="utf-8").split("\n")
    return [row for row in rows if row in wanted]


def run_rows(options):
    options.reference = options.reference or ("cpu" if "emulated" in options.daemon else "cuda")
    rows = selected_rows(options)
    end = time.monotonic() + options.seconds
    report, session = Report(options, rows), None
    with open(options.log, "ab") as log:
        for row in rows:
            print(f"[ RUN      ] {row}", flush=True)
            if time.monotonic() >= end:
                report.skip(row, f"the time limit for rows, {options.seconds:g} s, is over")
                continue
            session, result = run_row(options, session, row, log, end)
            report.versions = session.versions if session else report.versions
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
    parser.add_argument("--library-path")
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
    pathlib.Path(options.log).touch()
    return run_rows(options)


if __name__ == "__main__":
    sys.exit(main())
