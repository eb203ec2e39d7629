"""Tests the files in deploy/ that run the daemon as a service, and the runbook. Their flags exist, and the daemon has time to drain. Each
alert has a paragraph, and the commands that are named exist. Kubernetes' objects match their schemas, and the reference counts the files
that exist.

usage: python -m tests.deploy.files_test BIN_DIR      BIN_DIR: permafrost and permafrostd
"""

import copy
import functools
import json
import pathlib
import plistlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import yaml
except ImportError:  # this project does not install it
    yaml = None
try:
    import kubernetes_validate
except ImportError:  # deploy/install-deps --tests brings it
    kubernetes_validate = None

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
BIN = ROOT / "build" / "bin"
SYSTEMD = DEPLOY / "systemd" / "permafrost.service"
LAUNCHD = DEPLOY / "launchd" / "permafrost.plist"
DOCKER = DEPLOY / "docker" / "Dockerfile"
KUBERNETES = DEPLOY / "kubernetes" / "permafrost.yaml"
REPLICAS = DEPLOY / "kubernetes" / "replicas.yaml"
JOB = DEPLOY / "kubernetes" / "job.yaml"
COMPOSE = DEPLOY / "docker" / "compose.yaml"
ALERTS = DEPLOY / "prometheus" / "alerts.yml"
RUNBOOK = DEPLOY / "RUNBOOK.md"
DASHBOARD = DEPLOY / "grafana" / "dashboard.json"
REFERENCE = DEPLOY / "REFERENCE.md"


@functools.cache
def help_of(*command):
    return subprocess.run([BIN / command[0], *command[1:], "--help"], stdout=subprocess.PIPE, text=True).stdout


def setting(text, name):
    """Returns the value of NAME= in a unit."""
    return re.search(rf"^{name}=(.*)$", text, re.M).group(1)


def daemon_arguments():
    """Returns the arguments that each file gives permafrostd."""
    docker = DOCKER.read_text()
    entry = re.search(r"^ENTRYPOINT (.*)$", docker, re.M).group(1)
    command = re.search(r"^CMD (.*)$", docker, re.M).group(1)
    kubernetes = re.search(r"^ *args:\n((?: *- --.*\n)+)", KUBERNETES.read_text(), re.M).group(1)
    return {
        SYSTEMD: shlex.split(setting(SYSTEMD.read_text(), "ExecStart"))[1:],
        LAUNCHD: plistlib.loads(LAUNCHD.read_bytes())["ProgramArguments"][1:],
        DOCKER: [*json.loads(entry)[1:], *json.loads(command)],
        KUBERNETES: re.sub(r"^ *- ", "", kubernetes, flags=re.M).replace("=", " ").split(),
    }


def exit_seconds(arguments):
    """Returns the value of --exit-timeout, else that of the shipped configuration file."""
    if "--exit-timeout" in arguments:
        return int(arguments[arguments.index("--exit-timeout") + 1])
    assert "--config" in arguments
    return int(re.search(r"^exit-timeout = (\d+)$", (DEPLOY / "permafrostd.toml").read_text(), re.M).group(1))


def section(text, heading):
    """Returns the text from a second-level heading to the next one."""
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", text, re.M | re.S).group(1)


class Services(unittest.TestCase):
    def test_flags_exist(self):
        known = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", help_of("permafrostd")))
        for path, arguments in daemon_arguments().items():
            flags = {word for word in arguments if word.startswith("--")}
            self.assertIn("--state-dir", flags, path)
            self.assertLessEqual(flags, known, path)

    def test_arguments_are_understood(self):
        # The daemon parses each file's arguments. It may refuse only that the TLS files do not exist.
        for path, arguments in daemon_arguments().items():
            with tempfile.TemporaryDirectory() as folder:
                state = str(pathlib.Path(folder) / "state")
                elsewhere = {"--state-dir": state, "--config": str(DEPLOY / "permafrostd.toml")}
                here = [elsewhere.get(arguments[i - 1], word) for i, word in enumerate(arguments)]
                done = subprocess.run([BIN / "permafrostd", *here, "--threads", "5000"], stderr=subprocess.PIPE, text=True)
                self.assertEqual(done.returncode, 2, path)
                self.assertIn("5000", done.stderr, path)

    def test_variables_exist(self):
        known = set(re.findall(r"PERMAFROST_\w+", help_of("permafrostd") + help_of("permafrost"))) | {"PERMAFROST_PIP_ARGS"}
        known |= set(re.findall(r"PERMAFROST_\w+", (ROOT / "CMakeLists.txt").read_text()))
        for path in daemon_arguments():
            self.assertLessEqual({name for name in re.findall(r"PERMAFROST_\w+", path.read_text()) if not name.endswith("_")}, known, path)

    def test_the_drain_ends_before_the_kill(self):
        arguments = daemon_arguments()
        stops = {
            SYSTEMD: setting(SYSTEMD.read_text(), "TimeoutStopSec"),
            LAUNCHD: plistlib.loads(LAUNCHD.read_bytes())["ExitTimeOut"],
            DOCKER: re.search(r"--stop-timeout (\d+)", DOCKER.read_text()).group(1),
            KUBERNETES: re.search(r"terminationGracePeriodSeconds: (\d+)", KUBERNETES.read_text()).group(1),
        }
        for path, seconds in stops.items():
            self.assertGreater(int(seconds), exit_seconds(arguments[path]) + 4, path)

    def test_the_limit_of_memory_is_that_of_the_alert(self):
        gibibytes = re.search(r"0\.9\s+\*\s+(\d+)\s+\*\s+2\^30", ALERTS.read_text()).group(1)
        self.assertEqual(setting(SYSTEMD.read_text(), "MemoryMax"), f"{gibibytes}G")
        for path in (KUBERNETES, REPLICAS):
            self.assertIn(f"limits: {{memory: {gibibytes}Gi}}", path.read_text())
        self.assertIn(f"mem_limit: {gibibytes}g", COMPOSE.read_text())

    @unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not here")
    def test_systemd_takes_the_unit(self):
        with tempfile.TemporaryDirectory() as folder:
            unit = pathlib.Path(folder) / SYSTEMD.name
            unit.write_text(SYSTEMD.read_text().replace("/usr/local/bin/permafrostd", str(BIN / "permafrostd")))
            done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            # systemd-analyze also reports on other units of the machine.
            self.assertEqual([line for line in done.stdout.splitlines() if SYSTEMD.name in line], [])
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_plist_is_one(self):
        plist = plistlib.loads(LAUNCHD.read_bytes())
        self.assertEqual((plist["Label"], plist["KeepAlive"]), ("permafrost", {"SuccessfulExit": False}))

    def test_the_image_runs_as_nobody_else(self):
        text = DOCKER.read_text()
        user = re.search(r"^USER (\d+)$", text, re.M).group(1)
        self.assertIn(f"--uid {user} ", text)
        for path in (KUBERNETES, REPLICAS, JOB):
            self.assertIn(f"runAsUser: {user}", path.read_text())
        for source in re.findall(r"^COPY (?!--from)(\S+) ", text, re.M):
            self.assertTrue((ROOT / source).exists(), source)

    @unittest.skipUnless(yaml, "PyYAML is not here")
    def test_kubernetes_objects(self):
        service, stateful_set = yaml.safe_load_all(KUBERNETES.read_text())
        self.assertEqual((service["kind"], stateful_set["kind"]), ("Service", "StatefulSet"))
        spec = stateful_set["spec"]
        self.assertEqual((spec["replicas"], spec["serviceName"]), (1, service["metadata"]["name"]))
        labels = spec["template"]["metadata"]["labels"]
        self.assertEqual((spec["selector"]["matchLabels"], service["spec"]["selector"]), (labels, labels))
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"])
        self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]})
        volumes = [*(volume["name"] for volume in pod["volumes"]), *(claim["metadata"]["name"] for claim in spec["volumeClaimTemplates"])]
        self.assertEqual(sorted(mount["name"] for mount in container["volumeMounts"]), sorted(volumes))
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        self.assertEqual({port["targetPort"]: port["port"] for port in service["spec"]["ports"]}, ports)
        arguments = dict(argument.split("=", 1) for argument in container["args"])
        self.assertEqual([arguments[flag].rsplit(":")[-1] for flag in ("--listen", "--metrics")], [str(ports["grpc"]), str(ports["metrics"])])
        socket = {variable["name"]: variable["value"] for variable in container["env"]}["PERMAFROST_SERVER"]
        self.assertEqual(socket, f"unix:{arguments['--state-dir']}/permafrost.sock")

    @unittest.skipUnless(yaml and kubernetes_validate, "PyYAML and kubernetes-validate are not here")
    def test_kubernetes_objects_are_of_the_schemas(self):
        versions = kubernetes_validate.utils.all_versions()
        (oldest, newest) = re.search(r"by the schemas of Kubernetes (\S+) to (\d+\.\d+)", REFERENCE.read_text()).groups()
        self.assertEqual([kubernetes_validate.utils.major_minor(version) for version in (versions[0], versions[-1])], [oldest, newest])
        for kubernetes_object in (found for path in (KUBERNETES, REPLICAS, JOB) for found in yaml.safe_load_all(path.read_text())):
            for version in versions:
                with self.subTest(kind=kubernetes_object["kind"], version=version):
                    # Strict mode also refuses a field that the schema does not have.
                    kubernetes_validate.validate(kubernetes_object, version, strict=True)
            broken = copy.deepcopy(kubernetes_object)
            broken["spec"]["replica"] = 1
            with self.assertRaisesRegex(kubernetes_validate.ValidationError, "replica"):
                kubernetes_validate.validate(broken, versions[-1], strict=True)

    def test_probes_tell_a_daemon_that_serves_from_none(self):
        with tempfile.TemporaryDirectory() as folder:
            state = pathlib.Path(folder) / "state"
            # The command of the image's and the pod's probes, with no other variable, as in a container.
            probe = [BIN / "permafrost", "--timeout", "20", "server", "health"]
            environment = {"PERMAFROST_SERVER": f"unix:{state}/permafrost.sock"}
            self.assertEqual(subprocess.run(probe, env=environment, capture_output=True).returncode, 3)
            daemon = subprocess.Popen([BIN / "permafrostd", "--state-dir", state, "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0",
                                       "--threads", "1", "--device", "cpu"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            try:
                self.assertIn("ready", daemon.stdout.readline())
                done = subprocess.run(probe, env=environment, capture_output=True, text=True)
                self.assertEqual((done.returncode, done.stderr), (0, ""))
            finally:
                daemon.terminate()
                daemon.communicate(timeout=60)
            self.assertEqual(daemon.returncode, 0)


class Alerts(unittest.TestCase):
    def setUp(self):
        self.text = ALERTS.read_text()
        self.names = re.findall(r"^ *- alert: (\w+)$", self.text, re.M)
        self.assertGreater(len(self.names), 20)

    def test_each_has_its_paragraph_and_no_other_is_there(self):
        self.assertEqual(re.findall(r"^## (Permafrost\w+)$", RUNBOOK.read_text(), re.M), self.names)
        self.assertEqual(re.findall(r"^ *runbook: (.*)$", self.text, re.M), [f"deploy/RUNBOOK.md#{name.lower()}" for name in self.names])
        for name in self.names:
            self.assertGreater(len(section(RUNBOOK.read_text(), name).split()), 25, name)

    def test_each_is_seen_to_fire(self):
        fired = set(re.findall(r'alertname="(\w+)"', (DEPLOY / "prometheus" / "alerts_test.yml").read_text()))
        self.assertEqual(fired, set(self.names))

    def test_each_says_how_bad_it_is_and_what_to_do(self):
        self.assertEqual(len(re.findall(r"^ *labels: \{severity: (?:critical|warning|info)\}$", self.text, re.M)), len(self.names))
        for field in ("summary", "description"):
            self.assertEqual(len(re.findall(rf"^ *{field}: ", self.text, re.M)), len(self.names))

    def test_commands_exist(self):
        for path in (ALERTS, RUNBOOK, DOCKER, KUBERNETES, REPLICAS, JOB, COMPOSE):
            text = " ".join(path.read_text().split())
            for group, name in re.findall(r"\bpermafrost (?:--\S+ )?(job|dataset|cache|server|upload) ([a-z]+(?:-[a-z]+)*)", text):
                self.assertRegex(help_of("permafrost", group), rf"(?m)^  {name} ", f"{path}: {group} {name}")


class Counts(unittest.TestCase):
    def test_the_reference_counts_what_is_there(self):
        panels = [panel for row in json.loads(DASHBOARD.read_text())["panels"] for panel in (row, *row.get("panels", [])) if panel["type"] != "row"]
        queries = [target for panel in panels for target in panel.get("targets", [])]
        self.assertGreater(min(len(panels), len(queries)), 50)
        alerts = re.findall(r"^ *- alert: ", ALERTS.read_text(), re.M)
        text = REFERENCE.read_text()
        for words in (f"| {len(panels)} panels of all metrics", f"| each of its {len(queries)} queries in Prometheus", f"| {len(alerts)} alerts, and"):
            self.assertEqual(text.count(words), 1, words)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
