#!/usr/bin/env python3
"""Tests tests/checks/run with one file at a time: good files of each kind pass, and bad ones fail.

usage: commit_checks_test.py --source FOLDER

Exits with 77 if the tools are missing (deploy/setup --checks installs them).
"""

import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE: pathlib.Path
GOOD = ("deploy/build", "tests/gpu/parts.sh", "client/python/tensord/__init__.py", "client/client.cc", "README.md")
# For each file, the text and the check that fails.
BAD = {
    "indented_by_three.sh": ("#!/bin/bash\nif true; then\n   echo\nfi\n", "shell"),
    "unquoted_word": ("#!/bin/bash\nrm $1\n", "shell"),
    "unused_import.py": ("import os\n", "python"),
    "unformatted_program": ("#!/usr/bin/env python3\nx  =  1\n", "python"),
    "unformatted.cc": ("int  x  =  1;\n", "format"),
}


def check(path):
    """Returns whether the checks pass, and what they print."""
    command = [SOURCE / "tests/checks/run", "format", "python", "shell", "--", path]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    return run.returncode == 0, run.stdout + run.stderr


class CommitChecksTest(unittest.TestCase):
    def test_good_files_pass(self):
        for path in GOOD:
            passed, output = check(path)
            self.assertTrue(passed, f"{path}: {output}")

    def test_bad_files_fail(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, (text, failed) in BAD.items():
                path = pathlib.Path(folder, name)
                path.write_text(text, encoding="utf-8")
                passed, output = check(path)
                self.assertFalse(passed, f"{name}: {output}")
                self.assertIn(name, output)
                self.assertIn(f"{failed}: FAILED", output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    SOURCE = parser.parse_args().source.resolve()
    tools = ("build/checks/bin/ruff", "build/checks/bin/clang-format")
    if not all((SOURCE / each).exists() for each in tools) or shutil.which("shellcheck") is None:
        print("skipped: the tools of tests/checks/run aren't installed: deploy/setup --checks")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
