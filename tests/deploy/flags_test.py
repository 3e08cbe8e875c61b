"""Checks that the files in deploy/ are consistent, and that they use only flags that exist.

usage: flags_test.py --daemon PATH --tensorctl PATH --source FOLDER

If PyYAML is missing, prints the reason and exits with 77 (skipped).
"""

import glob
import os
import re
import subprocess
import sys
import tempfile
import time
import unittest
from typing import Any

SKIPPED = 77

try:
    import yaml
except ImportError as error:
    print(f"skipped: {error}; pip install PyYAML")
    sys.exit(SKIPPED)

import path_options
from deploy_files import commands_in, flag_values, flags_in, kustomized, port_of, read

OPTIONS: Any
NAMESPACE = "tensord"
PATIENCE_SECONDS = 60


def flags_of(*command):
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    return set(flags_in(said))


def bytes_of(text):
    number, unit = re.fullmatch(r"(\d+)([KMG]i)B?", text).groups()
    return int(number) << {"Ki": 10, "Mi": 20, "Gi": 30}[unit]


def is_part(part, whole):
    return all(whole.get(name) == value for name, value in part.items())


class DeployTest(unittest.TestCase):
    flags: Any

    @classmethod
    def setUpClass(cls):
        cls.flags = flags_of(OPTIONS.daemon, "--help")

    def assert_known(self, arguments, where):
        for name in flag_values(arguments):
            self.assertIn(name, self.flags, f"{where}: tensord has no such flag")

    def assert_probe(self, command, listens_at):
        """Checks a command line of "tensorctl health" whose server is one of the addresses."""
        words = list(command)
        self.assertEqual(words.pop(0), "tensorctl")
        server, values = None, iter(words)
        known = flags_of(OPTIONS.tensorctl, "help", "health")
        commands = []
        for word in values:
            if not word.startswith("--"):
                commands.append(word)
                continue
            self.assertIn(word, known)
            value = next(values)
            server = value if word == "--server" else server
        self.assertEqual(commands, ["health"])
        if server.startswith("unix:"):
            self.assertIn(server, listens_at)
        else:
            self.assertIn(port_of(server), [port_of(at) for at in listens_at if "unix:" not in at])


class KubernetesTest(DeployTest):
    def each(self):
        for kind in ("cpu", "gpu"):
            documents = kustomized(OPTIONS.source, f"deploy/kubernetes/{kind}")
            by_kind = {document["kind"]: document for document in documents}
            self.assertEqual(len(by_kind), len(documents))
            pod = by_kind["StatefulSet"]["spec"]["template"]
            (container,) = pod["spec"]["containers"]
            yield kind, by_kind, pod, container

    @staticmethod
    def arguments(pod_name, container):
        """Returns the arguments that the kubelet gives to the program."""
        text = "\n".join(container["args"])
        for name, value in (("POD_NAME", pod_name), ("POD_NAMESPACE", NAMESPACE), ("POD_IP", "10.244.1.2")):
            text = text.replace(f"$({name})", value)
        return text.split("\n")

    def test_flags_are_known_and_variables_defined(self):
        for kind, _, _, container in self.each():
            self.assert_known(container["args"], kind)
            defined = {variable["name"] for variable in container["env"]}
            used = re.findall(r"\$\((\w+)\)", "\n".join(container["args"]))
            self.assertLessEqual(set(used), defined)

    def test_everything_selects_the_pods(self):
        for kind, by_kind, pod, _ in self.each():
            labels = pod["metadata"]["labels"]
            stateful = by_kind["StatefulSet"]["spec"]
            self.assertTrue(is_part(stateful["selector"]["matchLabels"], labels))
            self.assertEqual(
                stateful["selector"]["matchLabels"].get("app.kubernetes.io/component"),
                kind,
                "each StatefulSet must select only its own pods",
            )
            self.assertTrue(is_part(by_kind["Service"]["spec"]["selector"], labels))
            self.assertTrue(is_part(by_kind["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], labels))
            self.assertTrue(is_part(by_kind["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], labels))
            self.assertEqual(stateful["serviceName"], by_kind["Service"]["metadata"]["name"])
            self.assertEqual(by_kind["Service"]["spec"]["clusterIP"], "None")

    def test_ports_are_those_listened_at(self):
        for _, by_kind, _, container in self.each():
            listens = flag_values(container["args"])["--listen"].split(",")
            tcp = [port_of(at) for at in listens if "unix:" not in at]
            (port,) = container["ports"]
            self.assertEqual([port["containerPort"]], tcp)
            (service,) = by_kind["Service"]["spec"]["ports"]
            self.assertEqual(service["targetPort"], port["name"])
            self.assertEqual(service["port"], port["containerPort"])
            ingress = by_kind["NetworkPolicy"]["spec"]["ingress"]
            for rule in ingress:
                self.assertTrue(rule["from"], "each rule must restrict its sources")
                among_themselves = rule["from"] == [{"podSelector": by_kind["NetworkPolicy"]["spec"]["podSelector"]}]
                ports = [entry["port"] for entry in rule.get("ports", [])]
                self.assertEqual(ports, [] if among_themselves else [port["name"]])

    def test_probes_ask_what_is_served(self):
        for _, _, _, container in self.each():
            listens = flag_values(container["args"])["--listen"].split(",")
            for probe in ("startupProbe", "readinessProbe"):
                self.assert_probe(container[probe]["exec"]["command"], listens)
            # A server that answers but doesn't serve (1) must count as alive; 2 means no answer.
            shell, dash_c, script = container["livenessProbe"]["exec"]["command"]
            self.assertEqual((shell, dash_c), ("sh", "-c"))
            command, verdict = script.split(";")
            self.assert_probe(command.split(), listens)
            for code, alive in ((0, True), (1, True), (2, False), (127, False)):
                ran = subprocess.run([shell, dash_c, f"(exit {code});{verdict}"], timeout=60, check=False)
                self.assertEqual(ran.returncode == 0, alive, f"exit status {code}")
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                words = " ".join(container[probe]["exec"]["command"])
                asks = int(re.search(r"--timeout (\d+)", words).group(1))
                self.assertLess(asks, container[probe]["timeoutSeconds"])

    def test_files_are_mounted_read_only_from_secrets_that_the_readme_makes(self):
        readme = read(OPTIONS.source, "deploy/kubernetes/README.md").replace("\\\n", " ")
        made = {}
        secrets = r"create secret generic (\S+)((?: +--from-file=\S+)+)"
        for name, files in re.findall(secrets, readme):
            made[name] = set(re.findall(r"--from-file=([\w.]+)", files))
        for _, _, pod, container in self.each():
            volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
            mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
            self.assertEqual(set(volumes), set(mounts))
            paths = [
                value
                for name, value in flag_values(container["args"]).items()
                if name.startswith(("--tls-", "--peer-tls-")) and "/" in value
            ]
            paths.append(flag_values(container["args"])["--token-file"])
            paths += [entry["value"] for entry in container["env"] if entry["name"] == "TENSORD_TLS_CA"]
            mounted = set()
            for name, volume in volumes.items():
                if "secret" not in volume:
                    continue
                self.assertTrue(mounts[name]["readOnly"])
                self.assertEqual(volume["secret"]["defaultMode"] & 0o227, 0)
                mounted |= {
                    os.path.join(mounts[name]["mountPath"], file) for file in made[volume["secret"]["secretName"]]
                }
            self.assertEqual(set(paths), mounted)
            # Secrets belong to root, and the program reads them through its group.
            self.assertEqual(pod["spec"]["securityContext"]["fsGroup"], pod["spec"]["securityContext"]["runAsGroup"])
            sockets = [
                at[len("unix:") :] for at in flag_values(container["args"])["--listen"].split(",") if "unix:" in at
            ]
            writable = [mounts[name]["mountPath"] for name in volumes if "emptyDir" in volumes[name]]
            for socket in sockets:
                self.assertIn(os.path.dirname(socket), writable)

    def test_servers_find_and_know_each_other(self):
        readme = read(OPTIONS.source, "deploy/kubernetes/README.md")
        names = re.search(r"deploy/certs certs (.*)", readme).group(1).replace("'", "").split()
        for kind, by_kind, _, container in self.each():
            set_name = by_kind["StatefulSet"]["metadata"]["name"]
            for number in (0, 11):
                flags = flag_values(self.arguments(f"{set_name}-{number}", container))
                domain = f".{by_kind['Service']['metadata']['name']}.{NAMESPACE}.svc.cluster.local"
                self.assertEqual(flags["--advertise"], f"{set_name}-{number}{domain}:50051")
                self.assertEqual(flags["--peers"], f"*{domain}:50051")
                self.assertIn(f"*{domain}", names, "the certificate must match each server")
                self.assertEqual(flags["--peer-principals"], f"dns:{names[0]}")
            (server_name,) = [
                entry["value"] for entry in container["env"] if entry["name"] == "TENSORD_TLS_SERVER_NAME"
            ]
            self.assertIn(server_name.replace("$(POD_NAMESPACE)", NAMESPACE), names)
            self.assertIn("app.kubernetes.io/name", str(by_kind["NetworkPolicy"]), kind)

    def test_the_daemon_takes_its_flags_and_answers_the_probes(self):
        readme = read(OPTIONS.source, "deploy/kubernetes/README.md")
        names = re.search(r"deploy/certs certs (.*)", readme).group(1).replace("'", "").split()
        for kind, _, _, container in self.each():
            with tempfile.TemporaryDirectory(prefix="tensord_pod.") as folder:
                certs = os.path.join(OPTIONS.source, "deploy/certs")
                subprocess.run([certs, f"{folder}/tls", *names], stdout=subprocess.DEVNULL, timeout=60, check=True)
                for made, mounted in (("server.pem", "tls.crt"), ("server.key", "tls.key"), ("ca.pem", "ca.crt")):
                    os.rename(f"{folder}/tls/{made}", f"{folder}/tls/{mounted}")
                os.mkdir(f"{folder}/tokens")
                subprocess.run(
                    [OPTIONS.tensorctl, "token", "alice", "--add", f"{folder}/tokens/tokens"],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    timeout=60,
                    check=True,
                )
                self.serve_and_probe(kind, container, folder)

    @staticmethod
    def has_collectives():
        """Returns whether the daemon was built with collectives. Without them it refuses the flag."""
        tried = subprocess.run(
            [OPTIONS.daemon, "--collectives=127.0.0.1", "--listen=nowhere"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )
        return "--collectives" not in tried.stdout

    def serve_and_probe(self, kind, container, folder):

        def here(word):
            for there, instead in (
                ("/etc/tensord", folder),
                ("/run/tensord", folder),
                ("$(POD_NAMESPACE)", NAMESPACE),
                ("10.244.1.2", "127.0.0.1"),
                ("0.0.0.0:50051", "127.0.0.1:0"),
                ("cuda:0,cpu=16GiB", "cpu=64MiB"),
                ("6GiB", "64MiB"),
                ("/16", ""),
            ):
                word = word.replace(there, instead)
            return word

        arguments = [here(word) for word in self.arguments(f"tensord-{kind}-0", container)]
        if not self.has_collectives():
            arguments = [word for word in arguments if not word.startswith("--collectives=")]
        daemon = subprocess.Popen(
            [OPTIONS.daemon, *arguments, f"--port-file={folder}/port"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while not os.path.exists(f"{folder}/port"):
                if daemon.poll() is not None or time.monotonic() > deadline:
                    daemon.kill()
                    self.fail(f"{kind}: the daemon doesn't serve: {daemon.communicate()[0]}")
                time.sleep(0.01)
            with open(f"{folder}/port", encoding="utf-8") as file:
                address = file.read().split()[0]
            environment = dict(os.environ, PATH=os.path.dirname(OPTIONS.tensorctl) + ":" + os.environ["PATH"])
            environment.update({entry["name"]: here(entry["value"]) for entry in container["env"] if "value" in entry})
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                command = [
                    here(word).replace("127.0.0.1:50051", address) for word in container[probe]["exec"]["command"]
                ]
                asked = subprocess.run(
                    command, env=environment, stdout=subprocess.PIPE, text=True, timeout=PATIENCE_SECONDS, check=False
                )
                self.assertEqual(asked.returncode, 0, f"{kind}, {probe}: {asked.stdout}")
        finally:
            daemon.terminate()
            said = daemon.communicate(timeout=PATIENCE_SECONDS)[0]
        self.assertEqual(daemon.returncode, 0, said)

    def test_the_client_is_let_through_and_has_its_files(self):
        client = yaml.safe_load(read(OPTIONS.source, "deploy/kubernetes/client.yaml"))
        readme = read(OPTIONS.source, "deploy/kubernetes/README.md").replace("\\\n", " ")
        for _, by_kind, _, _ in self.each():
            ways = by_kind["NetworkPolicy"]["spec"]["ingress"][0]["from"]
            self.assertTrue(
                any(
                    is_part(way["podSelector"]["matchLabels"], client["metadata"]["labels"])
                    for way in ways
                    if "podSelector" in way
                )
            )
        (container,) = client["spec"]["containers"]
        (volume,) = client["spec"]["volumes"]
        (mount,) = container["volumeMounts"]
        created = re.search(rf"create secret generic {volume['secret']['secretName']} (.*)", readme)
        for entry in container["env"]:
            if entry.get("value", "").startswith("/"):
                folder, name = os.path.split(entry["value"])
                self.assertEqual(folder, mount["mountPath"])
                self.assertIn(f"--from-file={name}=", created.group(1))

    def test_pods_are_confined(self):
        for kind, _, pod, container in self.each():
            spec = pod["spec"]
            self.assertFalse(spec["automountServiceAccountToken"])
            self.assertTrue(spec["securityContext"]["runAsNonRoot"])
            self.assertEqual(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
            self.assertEqual(
                container["securityContext"],
                {
                    "allowPrivilegeEscalation": False,
                    "privileged": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
            )
            for name in ("hostNetwork", "hostPID", "hostIPC"):
                self.assertNotIn(name, spec)
            user = spec["securityContext"]["runAsUser"]
            self.assertIn(f"USER {user}", read(OPTIONS.source, "deploy/Dockerfile"))
            target = container["image"].split(":")[1]
            self.assertIn(f" AS {target}\n", read(OPTIONS.source, "deploy/Dockerfile"))
            self.assertEqual("nvidia.com/gpu" in container["resources"]["limits"], kind == "gpu")
            if kind == "gpu":
                self.assertIn(
                    "requiredDuringSchedulingIgnoredDuringExecution",
                    spec["affinity"]["podAntiAffinity"],
                    "one server on each node",
                )

    def test_time_and_memory_suffice(self):
        for kind, _, pod, container in self.each():
            flags = flag_values(container["args"])
            self.assertGreaterEqual(pod["spec"]["terminationGracePeriodSeconds"], int(flags["--grace-seconds"]) + 10)
            *gpus, cpu = flags["--devices"].split(",")
            limits = container["resources"]["limits"]
            self.assertLess(bytes_of(re.fullmatch(r"cpu=(\w+)", cpu).group(1)), bytes_of(limits["memory"]), kind)
            self.assertEqual(gpus, [f"cuda:{i}" for i in range(int(limits.get("nvidia.com/gpu", 0)))])


class ComposeTest(DeployTest):
    def each(self):
        files = sorted(glob.glob(os.path.join(OPTIONS.source, "deploy/compose*.yaml")))
        self.assertGreaterEqual(len(files), 3)
        for path in files:
            with open(path, encoding="utf-8") as file:
                yield os.path.basename(path), yaml.safe_load(file)["services"]

    def test_flags_are_known(self):
        for name, services in self.each():
            for service in services.values():
                self.assert_known(service["command"], name)

    def test_ports_are_published_to_this_machine_and_once(self):
        for name, services in self.each():
            published = []
            for service in services.values():
                address, host_port, port = service["ports"][0].split(":")
                flags = flag_values(service["command"])
                self.assertEqual(int(port), port_of(flags["--listen"]), name)
                self.assertTrue(address == "127.0.0.1" or "--allow-insecure-remote" not in flags)
                published.append(host_port)
                if "healthcheck" in service:
                    kind, *command = service["healthcheck"]["test"]
                    self.assertEqual(kind, "CMD")
                    self.assert_probe(command, [flags["--listen"]])
            self.assertEqual(len(set(published)), len(published))

    def test_servers_of_one_file_list_each_other(self):
        services = dict(self.each())["compose.multi.yaml"]
        self.assertEqual(len(services), 4)
        addresses = set()
        for name, service in services.items():
            flags = flag_values(service["command"])
            self.assertEqual(flags["--advertise"], f"{name}:{port_of(flags['--listen'])}")
            addresses.add(flags["--advertise"])
        for service in services.values():
            self.assertEqual(set(flag_values(service["command"])["--peers"].split(",")), addresses)
        text = read(OPTIONS.source, "deploy/compose.multi.yaml")
        named = re.search(r"TENSORD_SERVERS=(\S+)", text).group(1).split(",")
        self.assertEqual(named, [":".join(service["ports"][0].split(":")[:2]) for service in services.values()])


class ScriptTest(DeployTest):
    def test_flags_are_known(self):
        paths = [
            "deploy/quickstart",
            "deploy/slurm/tensord.sbatch",
            "deploy/README.md",
            "deploy/kubernetes/README.md",
            "README.md",
            "server/SECURITY.md",
            "server/metrics/README.md",
            "client/README.md",
            "client/examples/README.md",
        ]
        paths += [
            os.path.relpath(path, OPTIONS.source)
            for path in glob.glob(os.path.join(OPTIONS.source, "deploy/**/*.service"), recursive=True)
        ]
        lines = 0
        for path in paths:
            for flags in commands_in(read(OPTIONS.source, path), "tensord"):
                self.assert_known(flags, path)
                lines += 1
        self.assertGreater(lines, 5)
        script = read(OPTIONS.source, "deploy/slurm/tensord.sbatch")
        for line in re.findall(r".*(?:options\+=|more\+=|TENSORD_OPTIONS ).*", script):
            self.assertTrue(flags_in(line), line)
            self.assert_known(flags_in(line), "tensord.sbatch")

    def test_flags_of_tensorctl_are_known(self):
        known = set()
        for command in ("devices", "tensors", "info", "health", "cluster", "token", "tour"):
            known |= flags_of(OPTIONS.tensorctl, "help", command)
        for path in (
            "deploy/quickstart",
            "deploy/slurm/tensord.sbatch",
            "deploy/README.md",
            "deploy/kubernetes/README.md",
            "deploy/compose.multi.yaml",
            "server/SECURITY.md",
        ):
            for flags in commands_in(read(OPTIONS.source, path), "tensorctl"):
                self.assertLessEqual(set(flags), known, path)


if __name__ == "__main__":
    OPTIONS = path_options.parse("daemon", "tensorctl", "source")
    unittest.main(verbosity=2)
