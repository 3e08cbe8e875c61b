"""Reads what lies in deploy/: manifests, compose files, scripts, units."""

import os
import re

import yaml


def read(source, path):
    with open(os.path.join(source, path), encoding="utf-8") as file:
        return file.read()


def kustomized(source, folder):
    """The documents of a Kustomize folder that only lists resources."""
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
    """The flags of each command line of a script, unit or page that begins with `program`."""
    text = text.replace("\\\n", " ")
    lines = re.findall(rf"(?:^|[\s=/`(\"]){program} +(-[^\n|;>`)]*)", text)
    return [flags_in(line) for line in lines]


def flag_values(arguments):
    """"--name=value" by name; a switch has the value ""."""
    return dict(argument.partition("=")[::2] for argument in arguments)


def port_of(address):
    return int(address.rpartition(":")[2])
