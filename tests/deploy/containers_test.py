"""Tests two containers of an image of deploy/Dockerfile that copy tensors to each other.

usage: containers_test.py --tensorctl PATH
Environment:
  TENSORD_TEST_IMAGE      the image; if it isn't set, the test is skipped
  TENSORD_TEST_CONTAINERS the container program with its arguments; default: docker
  TENSORD_TEST_RUN        more arguments for the program's command "run"
"""

import json
import os
import shlex
import subprocess
import sys
import time
import unittest
import uuid

import path_options

SKIPPED = 77
PATIENCE_SECONDS = 60
# The subnet of both containers, from the range for network tests (RFC 2544).
SUBNET = "198.18.213.0/24"
ADDRESSES = ["198.18.213.11", "198.18.213.12"]
PORT = 50051
COPIED_MIB = 64

OPTIONS = None


def containers(*words, check=True):
    program = shlex.split(os.environ.get("TENSORD_TEST_CONTAINERS", "docker"))
    done = subprocess.run(program + list(words), capture_output=True, timeout=PATIENCE_SECONDS, text=True, check=False)
    if check and done.returncode != 0:
        raise AssertionError(f"{words}: {done.stderr}")
    return done


class ContainersTest(unittest.TestCase):
    def setUp(self):
        self.network = f"tensord-test-{uuid.uuid4().hex[:8]}"
        containers("network", "create", "--subnet", SUBNET, self.network)
        self.addCleanup(containers, "network", "rm", self.network, check=False)
        self.servers = [f"{address}:{PORT}" for address in ADDRESSES]
        self.names = [f"{self.network}-{i}" for i in range(len(ADDRESSES))]
        for name, address in zip(self.names, ADDRESSES):
            self.addCleanup(containers, "rm", "--force", name, check=False)
            containers(
                "run",
                "--detach",
                "--name",
                name,
                "--network",
                self.network,
                "--ip",
                address,
                "--read-only",
                "--cap-drop=ALL",
                "--security-opt=no-new-privileges",
                *shlex.split(os.environ.get("TENSORD_TEST_RUN", "")),
                os.environ["TENSORD_TEST_IMAGE"],
                f"--listen=0.0.0.0:{PORT}",
                "--allow-insecure-remote",
                "--devices=cpu=1GiB",
                f"--advertise={address}:{PORT}",
                f"--peers={','.join(self.servers)}",
                f"--collectives={address}",
            )
        for name, server in zip(self.names, self.servers):
            self.await_health(name, server)

    def await_health(self, name, server):
        end = time.monotonic() + PATIENCE_SECONDS
        while self.tensorctl("--server", server, "health").returncode != 0:
            if time.monotonic() > end:
                log = containers("logs", name, check=False)
                self.fail(f"{name} doesn't serve; its log: {log.stdout}{log.stderr}")
            time.sleep(0.2)

    def tensorctl(self, *words):
        return subprocess.run(
            [OPTIONS.tensorctl, *words], capture_output=True, timeout=PATIENCE_SECONDS, text=True, check=False
        )

    def test_each_copies_to_the_other_and_both_are_a_group(self):
        check = self.tensorctl(
            "--servers", ",".join(self.servers), "cluster", "check", "--json", f"--measure={COPIED_MIB}"
        )
        self.assertEqual(check.returncode, 0, check.stdout + check.stderr)
        result = json.loads(check.stdout)
        self.assertEqual(result["problems"], [])
        self.assertEqual(len(result["pairs"]), 2)
        for pair in result["pairs"]:
            self.assertEqual(pair["measured"]["path"], "network", pair)
            self.assertEqual(pair["measured"]["bytes"], COPIED_MIB << 20)
            print(f"{pair['from']} to {pair['to']}: {pair['measured']['bytes_per_second'] / 2**30:.2f} GiB/s")

    def test_the_image_can_check_itself(self):
        done = containers("exec", self.names[0], "tensorctl", "--servers", ",".join(self.servers), "cluster", "check")
        self.assertEqual(done.returncode, 0)


if __name__ == "__main__":
    OPTIONS = path_options.parse("tensorctl")
    if not os.environ.get("TENSORD_TEST_IMAGE"):
        print("skipped: TENSORD_TEST_IMAGE isn't set to an image of deploy/Dockerfile")
        sys.exit(SKIPPED)
    unittest.main(verbosity=2)
