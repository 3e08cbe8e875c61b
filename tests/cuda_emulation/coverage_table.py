"""Prints which lines ran, from the gcov data in a build folder.

usage: coverage_table.py BUILD_FOLDER
"""

import collections
import gzip
import json
import pathlib
import subprocess
import sys
import tempfile

MEASURED = "server/device/cuda/"


def read_counts(build):
    """Returns {file: {line: number of executions}}, summed over all object files."""
    counts = collections.defaultdict(lambda: collections.defaultdict(int))
    data_files = [str(path.resolve()) for path in build.rglob("*.gcda")]
    with tempfile.TemporaryDirectory() as folder:
        for data in data_files:
            subprocess.run(
                ["gcov", "--json-format", data],
                cwd=folder,
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for result in pathlib.Path(folder).glob("*.gcov.json.gz"):
                report = json.loads(gzip.decompress(result.read_bytes()))
                result.unlink()
                for file in report["files"]:
                    path = pathlib.Path(report["current_working_directory"], file["file"]).resolve()
                    for line in file["lines"]:
                        counts[path][line["line_number"]] += line["count"]
    return counts


def ranges(lines):
    """Formats line numbers: returns "3-5 9" for [3, 4, 5, 9]."""
    parts = []
    for line in sorted(lines):
        if parts and parts[-1][1] == line - 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return " ".join(f"{a}" if a == b else f"{a}-{b}" for a, b in parts)


def main():
    root = pathlib.Path(__file__).resolve().parents[2]
    total = ran = 0
    for path, lines in sorted(read_counts(pathlib.Path(sys.argv[1])).items()):
        if not path.is_relative_to(root):
            continue
        name = str(path.relative_to(root))
        if not name.startswith(MEASURED):
            continue
        missed = [line for line, count in lines.items() if count == 0]
        total += len(lines)
        ran += len(lines) - len(missed)
        print(f"{100 * (1 - len(missed) / len(lines)):6.1f} %  {name}  {ranges(missed)}")
    print(f"{100 * ran / total:6.1f} %  {ran} of {total} lines")


if __name__ == "__main__":
    main()
