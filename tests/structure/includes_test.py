#!/usr/bin/env python3
"""Checks the #include lines of the tree against the layer list in server/README.md.

usage: includes_test.py --source FOLDER

Checks five rules:
  1. No file includes itself, directly or through other files.
  2. A file includes only files of its own entry, or of an entry in a lower line of the layer list. Files that no
     entry covers fail, so the list is complete. Because each file obeys this rule, none reaches a higher line through
     other files either.
  3. Only server/rpc, client/internal and client/cli/health_probe include generated proto.
  4. The installed headers of client/ and common/ include neither gRPC, Protocol Buffers nor server/.
  5. A file declares no type that only a higher line defines, except those of the list ```opaque in server/README.md.
"""

import argparse
import collections
import pathlib
import re
import sys
import unittest

SOURCE: pathlib.Path
TOP_FOLDERS = ("client", "common", "server")
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
DECLARATION = re.compile(r"^(?:class|struct) (\w+);", re.MULTILINE)
DEFINITION = re.compile(r"^(?:class|struct) (?:[A-Z_]+(?:\([^)]*\))? )?(\w+)\b[^;{(]*\{", re.MULTILINE)
INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)


def source_files():
    """Returns the paths of the product's source files, relative to the source folder."""
    return sorted(
        str(path.relative_to(SOURCE))
        for top in TOP_FOLDERS
        for path in (SOURCE / top).rglob("*")
        if path.suffix in SUFFIXES
    )


def all_includes(path):
    return INCLUDE.findall((SOURCE / path).read_text())


def own_includes(path):
    """Returns the files of this tree that the file includes. Generated code counts as the folder proto."""
    names = [name for name in all_includes(path) if name.startswith("tensord/") or name.endswith(".pb.h")]
    return ["proto/" + name if name.endswith(".pb.h") else name.removeprefix("tensord/") for name in names]


def read_list(name):
    """Returns the words of each line of a block in server/README.md."""
    text = (SOURCE / "server" / "README.md").read_text()
    block = re.search(rf"^```{name}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    if block is None:
        raise AssertionError(f"server/README.md has no block ```{name}")
    return [line.split() for line in block.group(1).splitlines()]


def read_layers():
    """Returns the layer list: for each line, its entries. An entry is a folder, or a path without its suffix."""
    return read_list("layers")


def entry_of(path, layers):
    """Returns (number of the line, entry) of the longest entry that covers the file, or None."""
    stem = str(pathlib.PurePath(path).with_suffix(""))
    covering = [
        (number, entry)
        for number, line in enumerate(layers)
        for entry in line
        if stem == entry or stem.startswith(entry + "/")
    ]
    return max(covering, key=lambda found: len(found[1]), default=None)


class IncludesTest(unittest.TestCase):
    def test_no_file_includes_itself(self):
        graph = {path: own_includes(path) for path in source_files()}
        state = collections.defaultdict(int)  # 1: on the path, 2: done

        def visit(path, trail):
            if state[path] == 2:
                return
            self.assertEqual(state[path], 0, " -> ".join(trail + [path]))
            state[path] = 1
            for included in graph.get(path, []):
                visit(included, trail + [path])
            state[path] = 2

        self.assertGreater(len(graph), 100)
        for path in graph:
            visit(path, [])

    def test_includes_follow_the_layers(self):
        layers = read_layers()
        wrong = []
        for path in source_files():
            own = entry_of(path, layers)
            if own is None:
                wrong.append(f"{path}: no entry of the layer list covers it")
                continue
            for included in own_includes(path):
                other = entry_of(included, layers)
                if other is None:
                    wrong.append(f"{path} includes {included}, which no entry covers")
                elif other != own and other[0] <= own[0]:
                    wrong.append(f"{path} ({own[1]}) includes {included} ({other[1]})")
        self.assertEqual(wrong, [], "\n" + "\n".join(wrong))

    def test_only_the_protocol_layers_include_proto(self):
        wrong = [
            path
            for path in source_files()
            if not path.startswith(("server/rpc/", "client/internal/", "client/cli/health_probe."))
            and any(name.startswith("proto/") for name in own_includes(path))
        ]
        self.assertEqual(wrong, [])

    def test_declared_types_of_higher_layers_are_listed(self):
        layers = read_layers()
        homes = collections.defaultdict(set)  # the entries that define a type
        for path in source_files():
            for name in DEFINITION.findall((SOURCE / path).read_text()):
                homes[name].add(entry_of(path, layers))
        declared = set()
        for path in source_files():
            own = entry_of(path, layers)
            for name in DECLARATION.findall((SOURCE / path).read_text()):
                if homes[name] and all(home != own and home[0] <= own[0] for home in homes[name]):
                    declared.add((path, name))
        listed = {(path, name) for path, *names in read_list("opaque") for name in names}
        self.assertEqual(declared, listed)

    def test_every_entry_exists(self):
        files = source_files()
        stems = {str(pathlib.PurePath(path).with_suffix("")) for path in files}
        for line in read_layers():
            for entry in line:
                exists = entry in stems or any(path.startswith(entry + "/") for path in files)
                self.assertTrue(exists or entry == "proto", f"the layer list names {entry}, which doesn't exist")

    def test_installed_headers_need_no_grpc(self):
        reached = collections.deque(path for path in source_files() if re.fullmatch(r"client/[^/]+\.h", path))
        self.assertIn("client/tensord.h", reached)
        seen = set(reached)
        while reached:
            path = reached.popleft()
            self.assertFalse(
                path.startswith(("server/", "client/internal/", "proto/")), f"a public header of client/ reaches {path}"
            )
            for name in all_includes(path):
                self.assertNotRegex(name, r"^(grpc|google/protobuf)", f"{path} includes <{name}>")
            for included in own_includes(path):
                if included not in seen:
                    seen.add(included)
                    reached.append(included)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--source", type=pathlib.Path, required=True)
    arguments, rest = parser.parse_known_args()
    SOURCE = arguments.source
    unittest.main(argv=[sys.argv[0]] + rest)
