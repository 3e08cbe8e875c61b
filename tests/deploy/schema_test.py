"""Checks manifests and compose files against their schemas, without a cluster or a network.

usage: schema_test.py kubernetes|compose --source FOLDER

If the tool that has the schemas is missing, prints the reason and exits with 77 (skipped).
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap

SKIPPED = 77
# The oldest Kubernetes version that cloud providers support. The test also checks the newest version that has a
# schema.
OLDEST_VERSION = "1.30"


def skip(why):
    print(f"skipped: {why}")
    return SKIPPED


def kustomize_program():
    for program in (["kubectl", "kustomize"], ["kustomize", "build"]):
        if shutil.which(program[0]) is not None:
            return program
    return None


def kustomize(folder):
    made = subprocess.run([*kustomize_program(), folder], stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    return list(yaml.safe_load_all(made.stdout))


def as_the_readme_says(source):
    """Yields the documents that Kustomize makes of the README's examples, for both kinds of servers."""
    readme = read(source, "deploy/kubernetes/README.md")
    own, patches = [textwrap.dedent(block) for block in re.findall(r"^ *```yaml\n(.*?)^ *```", readme, re.S | re.M)]
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(os.path.join(source, "deploy"), os.path.join(folder, "deploy"))
        for kind, text in (("cpu", own), ("gpu", own.replace("cpu", "gpu") + patches)):
            os.mkdir(os.path.join(folder, kind))
            with open(os.path.join(folder, kind, "kustomization.yaml"), "w", encoding="utf-8") as file:
                file.write(text)
            documents = kustomize(os.path.join(folder, kind))
            (stateful,) = [document for document in documents if document["kind"] == "StatefulSet"]
            (container,) = stateful["spec"]["template"]["spec"]["containers"]
            if (
                stateful["spec"]["replicas"] != 4
                or not container["image"].startswith("registry.example.com/tensord:")
                or stateful["metadata"]["namespace"] != "tensord"
                or container["resources"]["limits"].get("nvidia.com/gpu", "8") != "8"
                or (kind == "gpu" and container["args"][1].count("cuda:") != 8)
                or sum(word.startswith("--devices=") for word in container["args"]) != 1
            ):
                raise ValueError(f"the README's example has no effect: {stateful}")
            yield f"README, {kind}", documents


def all_documents(source):
    yield "client", list(yaml.safe_load_all(read(source, "deploy/kubernetes/client.yaml")))
    for kind in ("cpu", "gpu"):
        yield f"plain, {kind}", kustomized(source, f"deploy/kubernetes/{kind}")
    if kustomize_program() is None:
        print("neither kubectl nor kustomize is installed: only the plain files are checked")
    else:
        yield from as_the_readme_says(source)


def check_kubernetes(source):
    wrong = 0
    for name, documents in all_documents(source):
        for document in documents:
            for version in (OLDEST_VERSION, kubernetes_validate.latest_version()):
                what = f"{name}: {document['kind']} {document['metadata']['name']} ({version})"
                try:
                    kubernetes_validate.validate(document, version, strict=True)
                    print(f"good  {what}")
                except kubernetes_validate.ValidationError as error:
                    print(f"WRONG {what}: {error}")
                    wrong += 1
    return 1 if wrong else 0


def compose_program():
    for program in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(program[0]) is None:
            continue
        known = subprocess.run(
            [*program, "version", "--short"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            timeout=60,
            check=False,
        )
        # Version 1 uses another file format.
        if known.returncode == 0 and not known.stdout.lstrip("v").startswith("1."):
            return program
    return None


def check_compose(source):
    program = compose_program()
    if program is None:
        return skip("docker compose isn't installed")
    wrong = 0
    for path in sorted(glob.glob(os.path.join(source, "deploy/compose*.yaml"))):
        checked = subprocess.run([*program, "-f", path, "config", "--quiet"], timeout=60, check=False)
        print(("good  " if checked.returncode == 0 else "WRONG ") + os.path.basename(path))
        wrong += checked.returncode != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["kubernetes", "compose"])
    parser.add_argument("--source", required=True)
    options = parser.parse_args()
    if options.what == "compose":
        sys.exit(check_compose(options.source))
    try:
        import kubernetes_validate
        import yaml
        from deploy_files import kustomized, read
    except ImportError as missing:
        sys.exit(skip(f"{missing}; pip install kubernetes-validate"))
    sys.exit(check_kubernetes(options.source))
