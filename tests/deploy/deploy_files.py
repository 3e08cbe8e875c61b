"""Functions that read the files in deploy/: manifests, compose files, scripts."""

import os
import re

import yaml


def read(source, path):
    with open(os.path.join(source, path), encoding="utf-8") as file:
        return file.read()


def kustomized(source, folder):
    """Returns the documents of a Kustomize folder that only lists resources."""
    documents = []
    for resource in yaml.safe_load(read(source, f"{folder}/kustomization.yaml"))["resources"]:
        path = os.path.normpath(os.path.join(folder, resource))
        if os.path.isdir(os.path.join(source, path)):
            documents += kustomized(source, path)
        else:
            documents += list(yaml.safe_load_all(read(source, path)))
    return documents


def flags_in(text):
    return re.findall(r"(?<![\w-])--[a-z][a-z0-9-]*", text)


def commands_in(text, program):
    """Returns the flags of each command line in a script or page that begins with `program`."""
    text = text.replace("\\\n", " ")
    lines = re.findall(rf"(?:^|[\s=/`(\"]){program} +(-[^\n|;>`)]*)", text)
    return [flags_in(line) for line in lines]


def flag_values(arguments):
    """Returns the values of "--name=value" arguments by name. A flag without a value has the value ""."""
    return dict(argument.partition("=")[::2] for argument in arguments)


def port_of(address):
    return int(address.rpartition(":")[2])
