#!/usr/bin/env python3
"""Checks that server/FLAGS.md lists the flags that `tensord --help` describes.

The tables between the page's two markers are made from the help text. With --write, the script
writes them.

usage: flags_page_test.py --daemon PATH --source FOLDER [--write]
"""

import argparse
import pathlib
import re
import subprocess
import sys

BEGIN = "<!-- flags: made from tensord --help by tests/structure/flags_page_test.py --write -->\n"
END = "<!-- end of flags -->\n"
NOT_LISTED = {"--version", "--fault-socket"}  # the second one is for tests
MIN_FLAGS = 40
PATIENCE_SECONDS = 60

# A flag, its value, its default, and its description. By its version, CLI11 writes "=4" or " [4]",
# indents flags by 2 or by 10, and wraps descriptions.
FLAG = re.compile(
    r" {2,12}(--[a-z-]+)(?: ([A-Z]+)(?:,\.\.\.)?)?(?:=(\S+)| (\[\S*\]))?(?: +\.\.\.)?"
    r"(?: +(\S.*))?"
)
GROUP = re.compile(r"([A-Z][A-Za-z ]+):")


class Flag:
    def __init__(self, match):
        self.name, self.value, default, bracketed, self.text = match.groups(default="")
        self.default = (default or bracketed).strip("[]")

    def row(self):
        name = f"{self.name}={self.value}" if self.value else self.name
        default = f"`{self.default}`" if self.default else ""
        return f"| `{name}` | {default} | {self.text.replace('*', chr(92) + '*')} |\n"


def groups_of(help_text):
    """Returns the flags of each group by its name, in the order of the help text."""
    groups, flag = {}, None
    for line in help_text.partition("Examples:")[0].splitlines():
        if group := GROUP.fullmatch(line):
            flags, flag = groups.setdefault(group[1], []), None
        elif match := FLAG.fullmatch(line.rstrip()):
            flag = Flag(match)
            if flag.name not in NOT_LISTED:
                flags.append(flag)
        elif flag and line.startswith(" " * 20):
            flag.text = f"{flag.text} {line.strip()}".strip()
        elif line.strip().startswith("--"):
            sys.exit(f"this script doesn't understand a line of tensord --help: {line}")
        else:
            flag = None
    return {name: flags for name, flags in groups.items() if flags}


def tables(groups):
    text = ""
    for name, flags in groups.items():
        heading = "Serving" if name.lower() == "options" else name
        text += f"\n## {heading}\n\n| flag | default | |\n|---|---|---|\n"
        text += "".join(flag.row() for flag in flags)
    return text + "\n"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--daemon", required=True)
    parser.add_argument("--source", required=True, type=pathlib.Path)
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    help_text = subprocess.run(
        [options.daemon, "--help"], stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=True
    ).stdout
    groups = groups_of(help_text)
    number = sum(len(flags) for flags in groups.values())
    if number < MIN_FLAGS:
        sys.exit(f"found only {number} flags in the output of tensord --help")
    page = options.source / "server" / "FLAGS.md"
    text = page.read_text(encoding="utf-8")
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    wanted = head + BEGIN + tables(groups) + END + tail
    if options.write:
        page.write_text(wanted, encoding="utf-8")
    elif text != wanted:
        missing = set(wanted.splitlines()) - set(text.splitlines())
        rows = "\n".join(sorted(missing))
        sys.exit(f"{page} differs from tensord --help. Repeat with --write. Missing rows:\n{rows}")


if __name__ == "__main__":
    main()
