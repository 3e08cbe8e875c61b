"""Runs deploy/slurm/tensord.sbatch with two daemons on loopback and stand-ins for Slurm's programs.

usage: slurm_test.py --daemon PATH --tensorctl PATH --source FOLDER
"""

import json
import os
import stat
import subprocess
import tempfile
import unittest
from typing import Any

import path_options

OPTIONS: Any
PATIENCE_SECONDS = 120

# Two names of this machine stand for two nodes.
SCONTROL = """#!/usr/bin/env bash
[[ $1 == show && $2 == hostnames && $3 == "nodes[1-2]" ]] || exit 1
printf '%s\\n' localhost 127.0.0.1
"""

# Starts one task for each node. Like srun, it forwards SIGUSR1, kills its tasks on SIGTERM, and exits when all
# tasks have ended.
SRUN = """#!/usr/bin/env bash
set -um
while [[ $1 == --* ]]; do
  echo "srun: $1"
  shift
done
tasks=()
trap 'kill -USR1 "${tasks[@]}" 2>/dev/null' USR1
trap 'for task in "${tasks[@]}"; do kill -KILL -- "-$task"; done 2>/dev/null' TERM
for node in localhost 127.0.0.1; do
  SLURMD_NODENAME=$node "$@" &
  tasks+=("$!")
done
code=0
for task in "${tasks[@]}"; do
  while kill -0 "$task" 2>/dev/null; do wait "$task"; code=$?; done
done
exit "$code"
"""

# The job's program: prints its environment, and exits with code 7.
PROGRAM = """
set -u
folder=${TENSORD_TOKEN_FILE%/*}
echo "arguments: $1, $2"
echo "servers: $TENSORD_SERVERS"
echo "folder: $folder"
echo "umask: $(umask)"
echo "mode: $(stat -c %a "$folder")"
echo "others may read: $(find "$folder" -perm /077 -printf '%f ')"
echo "authority's key: $(find "$folder" -name ca.key)"
TENSORD_TOKEN_FILE= tensorctl devices >/dev/null 2>&1 && echo "let in without a token"
echo "devices: $(tensorctl devices --json | tr -d '\\n')"
echo "check: $(tensorctl cluster check --json | tr -d '\\n')"
exit 7
"""


class SlurmTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="tensord_slurm.")
        self.addCleanup(self.folder.cleanup)
        self.shared = self.path("shared")
        os.mkdir(self.shared)
        os.mkdir(self.path("bin"))
        for name, text in (("scontrol", SCONTROL), ("srun", SRUN)):
            with open(self.path("bin", name), "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(file.name, stat.S_IRWXU)
        os.symlink(OPTIONS.daemon, self.path("bin", "tensord"))
        os.symlink(OPTIONS.tensorctl, self.path("bin", "tensorctl"))

    def path(self, *parts):
        return os.path.join(self.folder.name, *parts)

    def run_job(self, *program, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TENSORD_", "SLURM"))}
        environment.update(
            PATH=self.path("bin") + ":" + os.environ["PATH"],
            SLURM_JOB_ID="1234",
            SLURM_JOB_NODELIST="nodes[1-2]",
            SLURM_SUBMIT_DIR=OPTIONS.source,
            TENSORD_SHARED=self.shared,
            TENSORD_PORT="0",
            TENSORD_LISTEN="127.0.0.1",
            TENSORD_LOG=self.path("log"),
            TENSORD_OPTIONS="--devices=cpu=256MiB --cpu-threads=1",
        )
        environment.update(variables)
        return subprocess.run(
            [os.path.join(OPTIONS.source, "deploy/slurm/tensord.sbatch"), *program],
            env=environment,
            cwd=self.folder.name,
            stdin=subprocess.DEVNULL,
            text=True,
            capture_output=True,
            timeout=PATIENCE_SECONDS,
            umask=0o022,
            check=False,
        )

    def assert_nothing_is_left(self):
        self.assertEqual(os.listdir(self.shared), [], "the script deletes the folder with the secrets")
        for process in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{process}/cmdline", encoding="utf-8", errors="replace") as file:
                    self.assertNotIn(self.folder.name, file.read(), "the script stops the servers")
            except (FileNotFoundError, ProcessLookupError):
                pass  # the process has just ended

    def test_a_program_finds_its_servers(self):
        job = self.run_job("bash", "-c", PROGRAM, "program", "one", "and two", SLURM_CPUS_PER_TASK="3")
        self.assertEqual(job.returncode, 7, job.stdout + job.stderr)
        said = dict(line.split(": ", 1) for line in job.stdout.splitlines())
        self.assertEqual(said["arguments"], "one, and two")
        self.assertRegex(said["servers"], r"^localhost:\d+,127\.0\.0\.1:\d+$")
        self.assertTrue(said["folder"].startswith(self.shared))
        self.assertEqual(said["umask"], "0022", "the program has the caller's umask")
        self.assertEqual(said["mode"], "700")
        self.assertEqual(said["others may read"].strip(), "")
        self.assertEqual(said["authority's key"], "")
        devices = json.loads(said["devices"])["devices"]
        self.assertEqual([device["name"] for device in devices], ["localhost/cpu:0", "127.0.0.1/cpu:0"])
        check = json.loads(said["check"])
        self.assertEqual(check["problems"], [])
        self.assertEqual([pair["state"] for pair in check["pairs"]], ["ok", "ok"])
        with open(self.path("log"), encoding="utf-8") as log:
            said_by_servers = log.read()
        self.assertEqual(said_by_servers.count("draining"), 2, "the script doesn't kill the servers")
        self.assertIn("srun: --cpus-per-task=3\n", said_by_servers)
        self.assertNotIn("killed", job.stderr)
        self.assert_nothing_is_left()

    def test_servers_that_dont_start_say_why(self):
        job = self.run_job("true", TENSORD_OPTIONS="--devices=abacus")
        self.assertEqual(job.returncode, 1)
        self.assertIn("abacus", job.stderr)
        self.assert_nothing_is_left()

    def test_servers_that_dont_reach_each_other(self):
        options = "--devices=cpu=256MiB --cpu-threads=1 --advertise=127.0.0.1:1"
        lenient = self.run_job("echo", "ran", TENSORD_OPTIONS=options)
        self.assertEqual(lenient.returncode, 0, lenient.stderr)
        self.assertEqual(lenient.stdout, "ran\n")
        self.assertIn("--advertise", lenient.stderr)
        strict = self.run_job("echo", "ran", TENSORD_OPTIONS=options, TENSORD_STRICT="1")
        self.assertEqual(strict.returncode, 1)
        self.assertEqual(strict.stdout, "")
        self.assertIn("TENSORD_STRICT", strict.stderr)
        self.assert_nothing_is_left()

    def test_mistakes_of_the_caller(self):
        self.assertEqual(self.run_job().returncode, 2)
        self.assertIn("sbatch [--nodes=N]", self.run_job("--help").stdout)
        outside = self.run_job("true", SLURM_JOB_ID="")
        self.assertEqual(outside.returncode, 1)
        self.assertIn("start the script with sbatch", outside.stderr)
        self.assertEqual(os.listdir(self.shared), [])


if __name__ == "__main__":
    OPTIONS = path_options.parse("daemon", "tensorctl", "source")
    unittest.main(verbosity=2)
