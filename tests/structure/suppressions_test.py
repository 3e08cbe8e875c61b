#!/usr/bin/env python3
"""Checks that the tree has no more comments that switch a check off than the table below permits.

The numbers may only fall. A change that removes such a comment also lowers the number here.

usage: suppressions_test.py --source FOLDER
"""

import argparse
import pathlib
import re
import sys

# What is counted -> the files, a pattern that begins with ^ for whole lines, and the permitted number.
KINDS = {
    "clang: functions without lock analysis": (r"\.(h|cc|cu)", r"NO_THREAD_SAFETY_ANALYSIS", 2),
    "clang: locks that the analysis must assume": (r"\.(h|cc|cu)", r"ABSL_ASSERT_(EXCLUSIVE|SHARED)_LOCK", 1),
    "clang-tidy: NOLINT": (r"\.(h|cc|cu)", r"NOLINT", 33),
    "clang-format: off": (r"\.(h|cc|cu|cuh)", r"clang-format off", 3),
    "ruff: noqa": (r"\.py", r"# (ruff: )?noqa", 4),
    "mypy: ignore": (r"\.py", r"# type: ignore", 2),
    "ShellCheck: disable": (r"(|\.sh|\.sbatch)", r"# shellcheck .*disable=", 2),
    "sanitizers: suppressed reports": (r"\.supp", r"^[a-z_]+:", 26),
}
FOLDERS = (".ci", "client", "common", "deploy", "proto", "server", "tests")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", required=True, type=pathlib.Path)
    source = parser.parse_args().source
    found = {kind: [] for kind in KINDS}
    for folder in FOLDERS:
        for path in sorted((source / folder).rglob("*")):
            if not path.is_file() or path.samefile(__file__):
                continue
            for kind, (suffix, pattern, _) in KINDS.items():
                if re.fullmatch(suffix, path.suffix):
                    text = path.read_text(encoding="utf-8", errors="replace")
                    number = len(re.findall(pattern, text, re.MULTILINE))
                    found[kind] += [str(path.relative_to(source))] * number
    wrong = False
    for kind, (_, _, permitted) in KINDS.items():
        number = len(found[kind])
        print(f"{kind}: {number}")
        if number > permitted:
            wrong = True
            files = ", ".join(sorted(set(found[kind])))
            print(f"  at most {permitted} are permitted: mend the cause. They are in {files}")
        elif number < permitted:
            wrong = True
            print(f"  {permitted} are permitted: lower this number in {pathlib.Path(__file__).name}")
    sys.exit(wrong)


if __name__ == "__main__":
    main()
