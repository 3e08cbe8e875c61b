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
CPP = r"\.(c|cc|cpp|h|hpp|cu|cuh)"
PYTHON = r"(|\.pyi?)"  # also scripts without an extension
KINDS = {
    "clang: functions without lock analysis": (CPP, r"NO_THREAD_SAFETY_ANALYSIS", 2),
    "clang: locks that the analysis must assume": (CPP, r"ABSL_ASSERT_(EXCLUSIVE|SHARED)_LOCK", 1),
    "compilers: ignored warnings": (CPP, r"#pragma (GCC|clang) diagnostic ignored", 3),
    "clang-tidy: NOLINT": (CPP, r"NOLINT", 33),
    "clang-format: off": (CPP, r"clang-format off", 2),
    "ruff: noqa": (PYTHON, r"# (ruff: )?noqa", 3),
    "ruff: format off": (PYTHON, r"# fmt: off", 0),
    "mypy: ignore": (PYTHON, r"# (type: ignore|mypy: )", 2),
    "ShellCheck: disable": (r"(|\.sh|\.sbatch)", r"# shellcheck .*disable=", 1),
    "buf: ignore": (r"\.proto", r"buf:lint:ignore", 0),
    "sanitizers: functions without instrumentation": (CPP, r"no_sanitize", 1),
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
                    for match in re.finditer(pattern, text, re.MULTILINE):
                        line = text.count("\n", 0, match.start()) + 1
                        found[kind].append(f"{path.relative_to(source)}:{line}")
    wrong = False
    for kind, (_, _, permitted) in KINDS.items():
        number = len(found[kind])
        print(f"{kind}: {number}")
        if number > permitted:
            wrong = True
            print(f"  at most {permitted} are permitted: mend the cause. They are in {', '.join(found[kind])}")
        elif number < permitted:
            wrong = True
            print(f"  {permitted} are permitted: lower this number in {pathlib.Path(__file__).name}")
    sys.exit(wrong)


if __name__ == "__main__":
    main()
