"""A plugin of pytest that writes GoogleTest's report, so that tests/run counts each case of a run.

If GTEST_OUTPUT is "xml:PATH", writes the report to PATH, in the lines that tests/cases.awk reads. As with a
GoogleTest program, the report exists only if the run has ended.
"""

import collections
import os
import pathlib
from xml.sax.saxutils import escape


def attribute(name, text):
    """Returns an attribute in double quotes, on one line, as the script expects it."""
    return f'{name}="{escape(" ".join(text.split()), {chr(34): "&quot;"})}"'


class Report:
    def __init__(self, path):
        self.path = path
        self.cases = {}  # by node: the state, and the reason of a skip or the text of a failure
        self.seconds = collections.Counter()  # by node

    def pytest_runtest_logreport(self, report):
        self.seconds[report.nodeid] += report.duration
        if report.failed:
            self.cases[report.nodeid] = ("failed", str(report.longrepr))
        elif report.skipped:
            # An expected failure counts as a skip. Its mark may have no reason.
            expected = hasattr(report, "wasxfail")
            reason = report.wasxfail or "fails as expected" if expected else report.longrepr[-1]
            self.cases[report.nodeid] = ("skipped", reason.removeprefix("Skipped: "))
        elif report.when == "call":
            self.cases.setdefault(report.nodeid, ("passed", ""))

    def pytest_sessionfinish(self):
        lines = ['<?xml version="1.0" encoding="UTF-8"?>', "<testsuites>"]
        for node, (state, text) in self.cases.items():
            file, _, name = node.partition("::")
            names = f"{attribute('name', name)} {attribute('classname', pathlib.Path(file).stem)}"
            result = "skipped" if state == "skipped" else "completed"
            time = f'time="{self.seconds[node]:.3f}"'
            lines.append(f'    <testcase {names} status="run" result="{result}" {time}>')
            if state != "passed":
                tag = "failure" if state == "failed" else "skipped"
                lines.append(f"      <{tag} {attribute('message', text)}/>")
            lines.append("    </testcase>")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("\n".join([*lines, "</testsuites>", ""]), encoding="utf-8")


def pytest_configure(config):
    kind, _, path = os.environ.get("GTEST_OUTPUT", "").partition(":")
    if kind == "xml" and not hasattr(config, "workerinput"):  # pytest-xdist's workers report to one process
        config.pluginmanager.register(Report(pathlib.Path(path)))
