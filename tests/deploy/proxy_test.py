"""Runs tensord behind HAProxy with deploy/proxy/haproxy.cfg.

usage: proxy_test.py --daemon PATH --tensorctl PATH --transfer-client PATH --source FOLDER

If HAProxy is missing, prints the reason and exits with 77 (skipped). The attacks come from 127.0.0.2, so that the
proxy's limits for each address separate them from the other clients.
"""

import os
import resource
import shutil
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

import path_options

SKIPPED = 77
PATIENCE_SECONDS = 60
ATTACKER = "127.0.0.2"
TRANSFERRED_MIB = 64
# HAProxy may stop answering on a connection that has sent a flood. The test waits this long for an answer.
STOPPED_SECONDS = 5
# The limit that haproxy.cfg sets.
MAX_CONNECTIONS_PER_ADDRESS = 64
# The number of file descriptors that maxconn of haproxy.cfg needs.
NEEDED_DESCRIPTORS = 9000
MAX_GROWTH_BYTES = 64 << 20

DATA, HEADERS, RST_STREAM, SETTINGS, CONTINUATION = 0, 1, 3, 4, 9
END_STREAM, END_HEADERS, ACK = 1, 4, 1
LIST_DEVICES = "/tensord.v1.TensorService/ListDevices"
WRITE = "/tensord.v1.TensorService/Write"
NEWEST_ENTRY = b"\xbe"  # a header that refers to the newest entry of the dynamic HPACK table

OPTIONS: Any


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


def hpack_length(length):
    if length < 127:
        return bytes([length])
    rest, coded = length - 127, b"\x7f"
    while rest >= 128:
        coded += bytes([rest & 127 | 128])
        rest >>= 7
    return coded + bytes([rest])


def hpack(name, value):
    return b"\0" + hpack_length(len(name)) + name.encode() + hpack_length(len(value)) + value.encode()


def headers_of(token, *more, path=LIST_DEVICES):
    pairs = [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", path),
        (":authority", "tensord"),
        ("te", "trailers"),
        ("content-type", "application/grpc"),
    ]
    if token:
        pairs.append(("authorization", f"Bearer {token}"))
    return b"".join(hpack(name, value) for name, value in [*pairs, *more])


class RawConnection:
    """A connection that sends arbitrary HTTP/2 frames over TLS, from the attacker's address."""

    def __init__(self, proxy, acknowledges_settings=True):
        self.socket = proxy.tls.wrap_socket(proxy.connect(ATTACKER), server_hostname="127.0.0.1")
        self.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
        if acknowledges_settings:
            self.send(frame(SETTINGS, ACK, 0))
        self.received = b""

    def send(self, data):
        self.socket.sendall(data)

    def answer(self, stream):
        """Returns the encoded headers of the answer on a stream. Returns None if the connection ends or stops."""
        while True:
            while len(self.received) >= 9 and len(self.received) >= 9 + int.from_bytes(self.received[:3], "big"):
                end = 9 + int.from_bytes(self.received[:3], "big")
                kind, number = self.received[3], int.from_bytes(self.received[5:9], "big")
                payload, self.received = self.received[9:end], self.received[end:]
                if kind == HEADERS and number == stream:
                    return payload
            try:
                more = self.socket.recv(65536)
            except (ConnectionError, ssl.SSLError, TimeoutError):
                return None
            if not more:
                return None
            self.received += more

    def call(self, stream, block):
        """Sends a call with these headers and an empty message. Returns the headers of the answer."""
        self.send(frame(HEADERS, END_HEADERS, stream, block) + frame(DATA, END_STREAM, stream, bytes(5)))
        return self.answer(stream)

    def close(self):
        self.socket.close()


class Proxy:
    """A daemon and an HAProxy in front of it, in a folder of their own."""

    def __init__(self, *flags):
        self.folder = tempfile.TemporaryDirectory(prefix="tensord_proxy.")
        self.processes = []
        certs = self.path("certs")
        subprocess.run(
            [os.path.join(OPTIONS.source, "deploy/certs"), certs, "localhost", "127.0.0.1"],
            stdout=subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS,
            check=True,
        )
        with open(self.path("haproxy.pem"), "w", encoding="utf-8", opener=private) as both:
            for part in ("server.pem", "server.key"):
                with open(os.path.join(certs, part), encoding="utf-8") as file:
                    both.write(file.read())
        self.tls = ssl.create_default_context(cafile=os.path.join(certs, "ca.pem"))
        self.tls.set_alpn_protocols(["h2"])
        made = subprocess.run(
            [OPTIONS.tensorctl, "token", "alice", "--add", self.path("tokens")],
            timeout=60,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=True,
            umask=0o077,
        )
        self.token = made.stdout.strip()
        with open(self.path("alice.token"), "w", encoding="utf-8", opener=private) as file:
            file.write(self.token)
        self.start_daemon(flags or ["--token-file=" + self.path("tokens")])
        self.start_haproxy()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def start(self, *command, environment=None):
        with open(self.path("log"), "ab") as log:
            self.processes.append(
                subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def start_daemon(self, flags):
        self.start(
            OPTIONS.daemon,
            "--listen=127.0.0.1:0",
            "--devices=cpu=512MiB,cpu=512MiB",
            *flags,
            "--port-file=" + self.path("port"),
        )
        self.wait("the daemon serves", lambda: os.path.exists(self.path("port")))
        with open(self.path("port"), encoding="utf-8") as file:
            self.server = file.read().strip()

    def start_haproxy(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.address = f"127.0.0.1:{self.port}"
        self.start(
            "haproxy",
            "-db",
            "-f",
            os.path.join(OPTIONS.source, "deploy/proxy/haproxy.cfg"),
            environment=dict(
                os.environ,
                TENSORD_PROXY_UNPRIVILEGED="1",
                TENSORD_PROXY_LISTEN=self.address,
                TENSORD_PROXY_SERVER=self.server,
                TENSORD_PROXY_CERTIFICATE=self.path("haproxy.pem"),
                TENSORD_PROXY_SOCKET=f"tensord-proxy-test-{os.getpid()}-{self.port}",
            ),
        )

    def wait(self, what, condition):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                raise AssertionError(f"waited for: {what}; log: {self.log()}")
            time.sleep(0.05)

    def daemon_peak_bytes(self):
        """Returns the peak of the daemon's resident memory."""
        with open(f"/proc/{self.processes[0].pid}/status", encoding="utf-8") as file:
            return next(int(line.split()[1]) * 1024 for line in file if line.startswith("VmHWM:"))

    def log(self):
        with open(self.path("log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def connect(self, source):
        return socket.create_connection(("127.0.0.1", self.port), PATIENCE_SECONDS, (source, 0))

    def run(self, *command, token=True):
        """Runs a client of the proxy that doesn't use shared memory."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TENSORD_")}
        environment.update(
            TENSORD_TLS_CA=self.path("certs/ca.pem"), TENSORD_SERVER=self.address, TENSORD_SHARED_MEMORY="0"
        )
        if token:
            environment["TENSORD_TOKEN_FILE"] = self.path("alice.token")
        return subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=2 * PATIENCE_SECONDS,
            text=True,
            check=False,
        )

    def tensorctl(self, *words, **options):
        return self.run(OPTIONS.tensorctl, *words, **options)

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(timeout=PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.cleanup()


def private(path, flags):
    return os.open(path, flags, 0o600)


class ProxyTest(unittest.TestCase):
    proxy: Proxy

    @classmethod
    def setUpClass(cls):
        cls.proxy = Proxy()
        cls.addClassCleanup(cls.proxy.stop)
        cls.proxy.wait("the proxy serves", lambda: cls.proxy.tensorctl("health").returncode == 0)

    def attack(self, **options):
        connection = RawConnection(self.proxy, **options)
        self.addCleanup(connection.close)
        return connection

    def assert_serves(self):
        for ran in (self.proxy.tensorctl("health"), self.proxy.tensorctl("devices")):
            self.assertEqual(ran.returncode, 0, ran.stdout)

    def assert_transfers(self, mib):
        ran = self.proxy.run(OPTIONS.transfer_client, self.proxy.address, str(mib))
        self.assertEqual(ran.returncode, 0, ran.stdout)
        print(ran.stdout)

    def test_large_tensors_arrive(self):
        self.assert_transfers(TRANSFERRED_MIB)

    def test_the_tour_runs(self):
        ran = self.proxy.tensorctl("tour", "--data", os.path.join(OPTIONS.source, "tests/data"))
        self.assertEqual(ran.returncode, 0, ran.stdout)

    def test_calls_without_a_token_are_refused_and_logged(self):
        ran = self.proxy.tensorctl("devices", token=False)
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("the proxy refuses the call: send a token", ran.stdout)
        self.assertIn(b"grpc-status\x0216", self.attack().call(1, headers_of("")))
        self.proxy.wait("the log names the caller", lambda: ATTACKER + ":" in self.proxy.log())
        self.assertIn(
            b"grpc-status\x0216", self.attack().call(1, headers_of("unknown")), "tensord refuses unknown tokens"
        )

    def test_rapid_reset_is_refused_while_other_clients_work(self):
        for token in ("unknown", self.proxy.token):
            connection = self.attack()
            stream = 1
            for _ in range(50):
                flood = b""
                for _ in range(100):
                    flood += frame(HEADERS, END_HEADERS, stream, headers_of(token))
                    flood += frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
                    stream += 2
                connection.send(flood)
            connection.socket.settimeout(STOPPED_SECONDS)
            answer = connection.call(stream, headers_of(token))
            self.assertTrue(answer is None or b"this connection has cancelled too many calls" in answer, answer)
            self.assert_serves()
            self.assert_transfers(1)

    def test_connections_beyond_the_limit_are_closed(self):
        for _ in range(3):  # If the machine is so slow that the first connections expire, the test tries again.
            held = [self.proxy.connect(ATTACKER)]
            try:
                self.assertTrue(self.connections_are_refused(held))
                held[0].setblocking(False)
                try:
                    held[0].recv(1)
                except BlockingIOError:
                    self.assert_serves()
                    return
            finally:
                for connection in held:
                    connection.close()
        self.fail("the first connections were closed, too")

    def connections_are_refused(self, held):
        """Connects more often than the limit permits. Returns whether the proxy closes the newest connection."""
        try:
            for _ in range(MAX_CONNECTIONS_PER_ADDRESS + 20):
                held.append(self.proxy.connect(ATTACKER))
            return held[-1].recv(1) == b""
        except ConnectionError:
            return True

    def test_large_and_endless_headers_are_refused(self):
        answer = self.attack().call(1, headers_of(self.proxy.token, *[("x-much", "x" * 1000)] * 9))
        self.assertIn(b"its headers have more than 8 KiB", answer)
        connection = self.attack()
        connection.send(frame(HEADERS, 0, 1, headers_of(self.proxy.token)))
        with self.assertRaises((ConnectionError, ssl.SSLError)):
            for _ in range(64 * 1024):  # half a gigabyte
                connection.send(frame(CONTINUATION, 0, 1, hpack("x-much", "x" * 8000)))
        self.assert_serves()

    def test_endless_indexed_headers_beside_an_open_call_are_refused(self):
        # Without the proxy, this attack makes the daemon use 2 GiB more (tests/attack/README.md, Open).
        peak_bytes = self.proxy.daemon_peak_bytes()
        connection = self.attack(acknowledges_settings=False)
        self.assertIsNotNone(connection.call(1, headers_of(self.proxy.token)))
        connection.send(frame(HEADERS, END_HEADERS, 3, headers_of(self.proxy.token, path=WRITE)))
        connection.send(frame(HEADERS, 0, 5, b"\x40" + hpack("x", "y")[1:]))
        with self.assertRaises((ConnectionError, ssl.SSLError)):
            for _ in range(2048):  # 32 MiB
                connection.send(frame(CONTINUATION, 0, 5, NEWEST_ENTRY * 16384))
        self.assert_serves()
        self.assertLess(self.proxy.daemon_peak_bytes() - peak_bytes, MAX_GROWTH_BYTES)


class UnsafeServerTest(unittest.TestCase):
    """Servers that would serve the proxy's clients without a token, as callers from their own machine."""

    def assert_not_used(self, *flags):
        proxy = Proxy(*flags)
        self.addCleanup(proxy.stop)
        proxy.wait("the proxy's check fails", lambda: "is DOWN, reason: Layer7 wrong status" in proxy.log())
        ran = proxy.tensorctl("devices")
        self.assertNotEqual(ran.returncode, 0, ran.stdout)

    def test_server_without_tokens_isnt_used(self):
        self.assert_not_used("--grace-seconds=1")

    def test_server_with_anonymous_callers_isnt_used(self):
        with tempfile.TemporaryDirectory() as folder:
            tokens = os.path.join(folder, "tokens")
            subprocess.run(
                [OPTIONS.tensorctl, "token", "bob", "--add", tokens],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=PATIENCE_SECONDS,
                check=True,
                umask=0o077,
            )
            self.assert_not_used("--token-file=" + tokens, "--allow-anonymous-local")


def reason_to_skip():
    if shutil.which("haproxy") is None:
        return "haproxy isn't installed"
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < NEEDED_DESCRIPTORS:
        return f"the limit of open files is {hard}; the proxy needs {NEEDED_DESCRIPTORS}"
    if soft != resource.RLIM_INFINITY and soft < NEEDED_DESCRIPTORS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (NEEDED_DESCRIPTORS, hard))
    return None


if __name__ == "__main__":
    OPTIONS = path_options.parse("daemon", "tensorctl", "transfer-client", "source")
    WHY = reason_to_skip()
    if WHY is not None:
        print(f"skipped: {WHY}")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
