"""Runs the recipes for several daemons on one machine, with the commands that are written in them: the pods and the Job of Kubernetes,
Docker Compose's services with their Prometheus, and Slurm's batch. Each trains a job on all of its daemons.

usage: python -m tests.deploy.replicas_test BIN_DIR      BIN_DIR: permafrost and permafrostd
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from tests.deploy.monitoring_test import PATH, Prometheus, free_port
from tests.parity.daemon import Daemon

try:
    import yaml
except ImportError:  # this project does not install it
    yaml = None
try:
    import jsonschema
except ImportError:  # deploy/install-deps --tests brings it
    jsonschema = None
# The package with schemas of Compose files and others.
COMPOSE_SCHEMAS = importlib.util.find_spec("check_jsonschema")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "bin"
DEPLOY = ROOT / "deploy"
SAMPLE = DEPLOY / "sample" / "zinc"
# This program replaces permafrostd. A recipe's daemons run on separate machines, and here on separate ports.
ON_ONE_MACHINE = """#!{python}
import os, sys
arguments = sys.argv[1:]
for there, here in {addresses}.items():
    arguments = [argument.replace(there, here) for argument in arguments]
os.execv({program!r}, [{program!r}, *arguments])
"""


def write_program(path, text):
    path.write_text(text)
    path.chmod(0o755)


def make_credentials(folder, *names):
    subprocess.run([DEPLOY / "peer-credentials", folder, *names], check=True)


class Fleet:
    """Daemons that a recipe starts by shell commands, each on free ports of 127.0.0.1.

    names: the hosts by which the daemons address each other, without the port."""

    def __init__(self, root, names):
        self.root, self.ports = root, {name: (free_port(), free_port()) for name in names}
        self.processes = {}

    def address(self, name, metrics=False):
        return f"127.0.0.1:{self.ports[name][metrics]}"

    def state(self, name):
        return self.root / name / "state"

    def environment(self, name, variables):
        return {"PATH": f"{self.root / name}{os.pathsep}{BIN}{os.pathsep}{os.environ['PATH']}", "PERMAFROST_THREADS": "1", **variables}

    def start(self, name, command, variables=None):
        """Starts a daemon, and returns once it is ready."""
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        self.state(name).mkdir(mode=0o700, exist_ok=True)
        addresses = {f"{other}:7433": self.address(other) for other in self.ports}
        addresses |= {"0.0.0.0:7433": self.address(name), "0.0.0.0:9464": self.address(name, metrics=True)}
        write_program(folder / "permafrostd", ON_ONE_MACHINE.format(python=sys.executable, addresses=addresses, program=str(BIN / "permafrostd")))
        log = folder / "log"
        with open(log, "a") as standard_error:
            process = subprocess.Popen(command, cwd=self.state(name), env=self.environment(name, variables or {}), text=True,
                                       stdout=subprocess.PIPE, stderr=standard_error)
        self.processes[name] = process
        if "ready" not in process.stdout.readline():
            process.kill()
            raise RuntimeError(f"{name} did not start: {log.read_text()[-1000:]}")

    def client(self, name, *arguments):
        """Runs `permafrost` through the daemon's socket, and returns what it prints."""
        socket = f"unix:{self.state(name)}/permafrost.sock"
        return subprocess.run([BIN / "permafrost", "--server", socket, *map(str, arguments)], check=True, stdout=subprocess.PIPE, text=True).stdout

    def stop(self, name):
        process = self.processes.pop(name)
        process.terminate()
        process.communicate(timeout=60)
        return process.returncode

    def stop_all(self):
        for name in list(self.processes):
            self.stop(name)


class Recipe(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def fleet(self, names):
        fleet = Fleet(self.root, names)
        self.addCleanup(fleet.stop_all)
        return fleet

    def assert_trained_on(self, fleet, leader, job, daemons):
        shown = json.loads(fleet.client(leader, "--output", "json", "job", "show", job))
        self.assertEqual(shown["state"], "STATE_SUCCEEDED")
        self.assertIn(f"trains on {daemons} daemons: this one and ", fleet.client(leader, "job", "logs", job))


class Credentials(Recipe):
    def test_a_daemon_takes_them_and_they_are_for_the_names(self):
        folder = self.root / "credentials"
        make_credentials(folder, "127.0.0.1", "*.permafrost-replicas.default.svc")
        self.assertEqual({path.stat().st_mode & 0o777 for path in folder.iterdir()}, {0o600})
        for flag, name, matches in (("-checkhost", "permafrost-replicas-1.permafrost-replicas.default.svc", True), ("-checkhost", "other", False),
                                    ("-checkip", "127.0.0.1", True)):
            done = subprocess.run(["openssl", "x509", "-in", folder / "tls.crt", "-noout", flag, name], check=True, stdout=subprocess.PIPE, text=True)
            self.assertEqual("does match" in done.stdout, matches, name)
        state = self.root / "state"
        state.mkdir(mode=0o700)
        shutil.copy(folder / "tokens.json", state)
        with Daemon(BIN, state, SAMPLE, "--auth", "token", "--tls-cert", folder / "tls.crt", "--tls-key", folder / "tls.key", threads=1) as daemon:
            for token, code in (("peer.token", 0), ("viewer.token", 4)):
                done = subprocess.run([BIN / "permafrost", "--server", daemon.server, "--ca-cert", folder / "tls.crt", "--token-file", folder / token,
                                       "dataset", "import", "zinc", SAMPLE], capture_output=True, text=True)
                self.assertEqual(done.returncode, code, done.stderr)

    def test_bad_arguments_are_told(self):
        for arguments, told in (([], "0 arguments: accepted: DIR NAME..."), ([self.root / "c"], "1 arguments: accepted: DIR NAME..."),
                                *(([self.root / "c", name], f"NAME '{name}': accepted: a host name or an IP address, without a port")
                                  for name in ("one,DNS:two", "trainer-2:7433", "10.0.0.7:7433", "[::1]:7433", "1.2.3", "10.0.0.256", "")),
                                ([self.root / "c", "1:2:3"], "peer-credentials: openssl req: "),
                                ([self.root, "one"], "File exists")):
            done = subprocess.run([DEPLOY / "peer-credentials", *arguments], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(told, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertEqual(list(self.root.iterdir()), [])

    def test_nothing_is_left_if_openssl_fails(self):
        openssl = shutil.which("openssl")
        for command, words in (("rand", "exit 1"), ("rand", "echo 00"), ("req", "exit 1"), ("dgst", "exit 1")):
            write_program(self.root / "openssl", f"""#!/bin/sh
case $1 in {command}) {words} ;; *) exec {openssl} "$@" ;; esac
""")
            environment = {**os.environ, "PATH": f"{self.root}{os.pathsep}{os.environ['PATH']}"}
            done = subprocess.run([DEPLOY / "peer-credentials", self.root / "c", "one"], env=environment, capture_output=True, text=True)
            self.assertEqual(done.returncode, 1, (command, words, done.stderr))
            self.assertEqual([path.name for path in self.root.iterdir()], ["openssl"])

    @unittest.skipUnless(shutil.which("git") and (ROOT / ".git").exists(), "this is no checkout")
    def test_git_and_the_image_leave_them_out(self):
        texts = [path.read_text() for path in (DEPLOY / "README.md", *(DEPLOY / "docker").iterdir(), *(DEPLOY / "kubernetes").iterdir())]
        folders = {folder for text in texts for folder in re.findall(r"deploy/peer-credentials ([a-z/]+) ", text)}
        self.assertEqual(folders, {"credentials", "deploy/docker/credentials"})
        for folder in folders:
            subprocess.run(["git", "check-ignore", "--quiet", f"{folder}/tls.key"], cwd=ROOT, check=True)
        self.assertIn("**/credentials", (DEPLOY / "docker" / "Dockerfile.dockerignore").read_text().splitlines())


@unittest.skipUnless(yaml, "PyYAML is not here")
class Kubernetes(Recipe):
    def setUp(self):
        super().setUp()
        texts = [(DEPLOY / "kubernetes" / name).read_text() for name in ("replicas.yaml", "job.yaml")]
        self.objects = {found["kind"]: found for text in texts for found in yaml.safe_load_all(text)}
        self.set, self.job = self.objects["StatefulSet"], self.objects["Job"]
        self.service = self.objects["Service"]["metadata"]["name"]
        self.pods = [f"{self.set['metadata']['name']}-{i}" for i in range(self.set["spec"]["replicas"])]
        self.names = {pod: f"{pod}.{self.service}.default.svc" for pod in self.pods}

    def variables(self, container, pod):
        fields = {"metadata.name": pod, "metadata.namespace": "default"}
        values = {}
        for variable in container["env"]:
            value = variable.get("value") or fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            values[variable["name"]] = re.sub(r"\$\((\w+)\)", lambda found: values[found.group(1)], value)
        return values

    def here(self, pod, words):
        folders = {"/var/lib/permafrost": self.root / self.names.get(pod, pod), "/etc/permafrost/credentials": self.root / "credentials"}
        for there, folder in folders.items():
            words = [word.replace(there, str(folder)) for word in words]
        return words

    def start(self, fleet, pod):
        (container,) = self.set["spec"]["template"]["spec"]["containers"]
        values = self.variables(container, pod)
        self.assertEqual(int(values["REPLICAS"]), len(self.pods))
        environment = dict(zip(values, self.here(pod, values.values())))
        fleet.start(self.names[pod], self.here(pod, [*container["command"], *container["args"]]), environment)
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            subprocess.run(container[probe]["exec"]["command"], env=fleet.environment(self.names[pod], environment), check=True,
                           stdout=subprocess.DEVNULL)

    def start_job(self, fleet, replaced, folder=None):
        """Starts the commands of a pod of the Job. folder: holds a program that replaces the client."""
        (container,) = self.job["spec"]["template"]["spec"]["containers"]
        values = self.variables(container, "job")
        leader, port = values["PERMAFROST_SERVER"].split(":")
        self.assertEqual((leader, port), (self.names[self.pods[0]], "7433"))
        values["PERMAFROST_SERVER"] = fleet.address(leader)
        script = container["args"][0]
        for words, others in replaced.items():
            self.assertIn(words, script)
            script = script.replace(words, others)
        environment = dict(zip(values, self.here("job", values.values())))
        environment["PATH"] = f"{folder or BIN}{os.pathsep}{os.environ['PATH']}"
        process = subprocess.Popen([*container["command"], script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        return process

    def run_job(self, fleet, replaced, folder=None):
        """Runs a pod of the Job, and returns its exit code."""
        process = self.start_job(fleet, replaced, folder)
        process.communicate(timeout=300)
        return process.returncode

    def test_a_job_trains_on_all_pods(self):
        make_credentials(self.root / "credentials", "127.0.0.1")
        fleet = self.fleet(self.names.values())
        for pod in self.pods:
            self.start(fleet, pod)
        leader = self.names[self.pods[0]]
        fleet.client(leader, "server", "token", "create", "--role", "viewer", "--label", "kept")
        fleet.client(leader, "upload", "send", "--id", "zinc", SAMPLE)
        fleet.client(leader, "dataset", "import", "zinc", "--upload", "zinc")
        # All pods must take part, or the job might end before the last pod has a copy of the dataset.
        self.assertEqual(self.run_job(fleet, {"--min-replicas 1": f"--min-replicas {len(self.pods)}"}), 0)
        self.assert_trained_on(fleet, leader, "first", len(self.pods))
        # The first pod of the Job is evicted, and another takes its place.
        self.assertEqual(self.run_job(fleet, {"--dataset zinc": "--dataset none"}), 0)
        # An earlier pod submitted the job, and the answer was lost, so that the first show finds nothing.
        once = self.root / "once"
        once.mkdir()
        write_program(once / "permafrost", f"""#!/bin/sh
[ "$1 $2" != "job show" ] || mkdir {once}/shown 2>/dev/null || exec {BIN}/permafrost "$@"
[ "$1 $2" != "job show" ] || exit 4
exec {BIN}/permafrost "$@"
""")
        self.assertEqual(self.run_job(fleet, {}, once), 0)
        self.assertTrue((once / "shown").exists())
        (fails, _) = self.job["spec"]["podFailurePolicy"]["rules"]
        self.assertEqual(fails["action"], "FailJob")
        for replaced, code, final in (({"--dataset zinc": "--dataset none"}, 4, False), ({"--epochs 20": "--epochs none"}, 2, True)):
            self.assertEqual(self.run_job(fleet, {'"$JOB"': "second", **replaced}), code)
            self.assertEqual(code in fails["onExitCodes"]["values"], final)
        self.assertEqual(fleet.stop(leader), 0)
        self.assertEqual(self.run_job(fleet, {"timeout 600": "timeout 1"}), 3)
        self.assertNotIn(3, fails["onExitCodes"]["values"])
        # The Job waits for the daemon. A new pod in place of another has the other's tokens.
        job = self.start_job(fleet, {"sleep 5": "sleep 0.5"})
        self.assertIn("no server", job.stdout.readline())
        self.start(fleet, self.pods[0])
        self.assertIn("kept", fleet.client(leader, "server", "token", "list"))
        output = job.communicate(timeout=300)[0]
        self.assertEqual(job.returncode, 0, output)

    def test_objects_belong_together(self):
        template = self.set["spec"]["template"]
        labels = template["metadata"]["labels"]
        self.assertEqual((self.set["spec"]["selector"]["matchLabels"], self.set["spec"]["serviceName"]), (labels, self.service))
        service, policy, budget = (self.objects[kind]["spec"] for kind in ("Service", "NetworkPolicy", "PodDisruptionBudget"))
        self.assertEqual((service["clusterIP"], service["selector"]), ("None", labels))
        self.assertEqual((policy["podSelector"], budget["selector"]), ({"matchLabels": labels}, {"matchLabels": labels}))
        among_pods, others = policy["ingress"]
        self.assertEqual(among_pods, {"from": [{"podSelector": {"matchLabels": labels}}]}, "all ports")
        (container,) = template["spec"]["containers"]
        ports = [port["containerPort"] for port in container["ports"]]
        self.assertEqual([port["port"] for port in others["ports"]], ports)
        exit_timeout = int(re.search(r"--exit-timeout=(\d+)", container["args"][0]).group(1))
        self.assertGreater(template["spec"]["terminationGracePeriodSeconds"], exit_timeout + 4)
        (term,) = template["spec"]["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        self.assertEqual(term["labelSelector"]["matchLabels"], labels)
        volumes = [*(volume["name"] for volume in template["spec"]["volumes"]),
                   *(claim["metadata"]["name"] for claim in self.set["spec"]["volumeClaimTemplates"])]
        self.assertEqual(sorted(mount["name"] for mount in container["volumeMounts"]), sorted(volumes))


@unittest.skipUnless(yaml, "PyYAML is not here")
class Compose(Recipe):
    def setUp(self):
        super().setUp()
        self.file = DEPLOY / "docker" / "compose.yaml"
        self.content = yaml.safe_load(self.file.read_text())
        self.services = {name: service for name, service in self.content["services"].items() if service["image"] == "permafrost"}

    @unittest.skipUnless(COMPOSE_SCHEMAS and jsonschema, "check-jsonschema is not here")
    def test_it_is_of_the_schema(self):
        path = pathlib.Path(COMPOSE_SCHEMAS.submodule_search_locations[0]) / "builtin_schemas" / "vendor" / "compose-spec.json"
        schema = json.loads(path.read_text())
        validator = jsonschema.validators.validator_for(schema)(schema)
        self.assertEqual([error.message for error in validator.iter_errors(self.content)], [])
        self.content["services"]["one"]["volume"] = []
        self.assertIn("volume", " ".join(error.message for error in validator.iter_errors(self.content)))

    def test_services_fit_the_image_and_each_other(self):
        docker = (DEPLOY / "docker" / "Dockerfile").read_text()
        user = re.search(r"^USER (\d+)$", docker, re.M).group(1)
        volume = re.search(r"^VOLUME (\S+)$", docker, re.M).group(1)
        exposed = re.search(r"^EXPOSE (.*)$", docker, re.M).group(1).split()
        self.assertEqual(re.search(r"^WORKDIR (\S+)$", docker[docker.index("slim"):], re.M).group(1), volume)
        self.assertEqual(self.content["services"]["prometheus"]["group_add"], [user])
        for name, service in self.services.items():
            self.assertEqual(service["volumes"], [f"{name}:{volume}", "./credentials:/etc/permafrost/credentials:ro"])
            self.assertIn(name, self.content["volumes"])
            others = [f"{other}:{exposed[0]}" for other in self.services if other != name]
            self.assertEqual(service["command"], ["--peers", ",".join(others)])
            for port in service.get("ports", []):
                self.assertIn(port.rsplit(":", 1)[1], exposed)
            script = service["entrypoint"][2]
            self.assertIn(f"--listen 0.0.0.0:{exposed[0]}", script)
            self.assertIn(f"--metrics 0.0.0.0:{exposed[1]}", script)
            self.assertGreater(int(service["stop_grace_period"][:-1]), int(re.search(r"--exit-timeout (\d+)", script).group(1)) + 4)
        for mount in self.content["services"]["prometheus"]["volumes"]:
            source = mount.split(":")[0]
            if source.startswith(".") and not source.startswith("./credentials/"):
                self.assertTrue((self.file.parent / source).is_file(), source)

    def start(self):
        """Starts all services except Prometheus. Returns the fleet, the name of the service that leads, and the client's command line for
        it."""
        make_credentials(self.root / "credentials", "127.0.0.1")
        fleet = self.fleet(self.services)
        for name, service in self.services.items():
            words = [word.replace("$$", "$") for word in (*service["entrypoint"], *service["command"])]
            for there, here in (("/var/lib/permafrost", fleet.state(name)), ("/etc/permafrost/credentials", self.root / "credentials")):
                words = [word.replace(there, str(here)) for word in words]
            fleet.start(name, words)
        leader = next(name for name, service in self.services.items() if "ports" in service)
        client = [BIN / "permafrost", "--server", fleet.address(leader), "--ca-cert", self.root / "credentials" / "tls.crt",
                  "--token-file", self.root / "credentials" / "peer.token"]
        return fleet, leader, client

    def test_a_job_trains_on_all_services(self):
        fleet, leader, client = self.start()
        for command in (["upload", "send", "--id", "zinc", SAMPLE], ["dataset", "import", "zinc", "--upload", "zinc"],
                        ["job", "submit", "--id", "first", "--dataset", "zinc", "--hidden", "16", "--batch-size", "256", "--epochs", "2",
                         "--replicas", str(len(self.services)), "--watch"]):
            subprocess.run([*client, *command], check=True, stdout=subprocess.DEVNULL)
        self.assert_trained_on(fleet, leader, "first", len(self.services))

    @unittest.skipUnless(shutil.which("prometheus", path=PATH), "Prometheus is not here")
    def test_prometheus_sees_all_services_with_the_files_that_it_gets(self):
        fleet, _, _ = self.start()
        folder = self.root / "prometheus"
        folder.mkdir()
        replaced = {f'"{name}:9464"': f'"{fleet.address(name, metrics=True)}"' for name in self.services}
        mounts = [mount.split(":") for mount in self.content["services"]["prometheus"]["volumes"]]
        mounted = {there: self.root / source for source, there, *_ in mounts if source.startswith("./credentials/")}
        self.assertEqual({path.name for path in mounted.values()}, {"tls.crt", "viewer.token"})
        for there, here in mounted.items():
            replaced[there] = str(here)
        prometheus = Prometheus(folder, (DEPLOY / "docker" / "prometheus.yml").read_text(), replaced)
        try:
            prometheus.wait_for(f'count(up{{job="permafrost"}} == 1) == {len(self.services)}')
        finally:
            prometheus.stop()


class Slurm(Recipe):
    """Tests the batch on two nodes, which are two names of this machine. srun and scontrol are stand-ins."""

    def setUp(self):
        super().setUp()
        self.bin, self.state = self.root / "bin", self.root / "state"
        self.bin.mkdir()
        write_program(self.bin / "srun", """#!/bin/sh
while case $1 in -*) true ;; *) false ;; esac; do
  echo "$1" >>"$SRUN_LOG"
  shift
done
exec "$@"
""")
        write_program(self.bin / "scontrol", """#!/bin/sh
case "$1 $2" in
  "show hostnames") echo "$3" | tr , '\\n' ;;
  requeue*) echo "$2" >>"$REQUEUED" ;;
  *) exit 1 ;;
esac
""")
        self.requeued = self.root / "requeued"

    def batch(self, *arguments, nodes="127.0.0.1,localhost", port=None, prepare=None):
        environment = {"PATH": os.pathsep.join([str(self.bin), str(BIN), str(DEPLOY), os.environ["PATH"]]), "SLURM_JOB_NODELIST": nodes,
                       "SLURM_JOB_ID": "71", "SLURM_SUBMIT_DIR": str(self.root), "SLURM_CPUS_PER_TASK": "1", "TMPDIR": str(self.root),
                       "PERMAFROST_STATE_DIR": str(self.state), "PERMAFROST_PORT": str(port or free_port()), "PERMAFROST_THREADS": "1",
                       "REQUEUED": str(self.requeued), "SRUN_LOG": str(self.root / "srun.log")}
        batch = subprocess.Popen(["bash", DEPLOY / "slurm" / "permafrost.sbatch", *map(str, arguments)], env=environment, text=True,
                                 cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=prepare)
        self.addCleanup(self.kill_session, batch)
        return batch

    def end(self, batch, signals=()):
        """Waits for the end of the batch, and returns what it printed. Sends it USR1 once for each pattern, at the first line that matches
        the pattern."""
        signals, lines = list(signals), []
        stop = threading.Timer(300, self.kill_session, [batch])
        stop.start()
        with contextlib.closing(batch.stdout):
            for line in batch.stdout:
                lines.append(line)
                if signals and re.search(signals[0], line):
                    signals.pop(0)
                    batch.send_signal(signal.SIGUSR1)
        batch.wait()
        stop.cancel()
        self.assertEqual(signals, [], "".join(lines))
        return "".join(lines)

    def kill_session(self, batch):
        """Kills the whole session, including daemons that a failed batch left behind."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(batch.pid, signal.SIGKILL)
        batch.wait()

    def assert_nothing_is_left(self):
        self.assertEqual({path.name for path in self.root.iterdir()} - {"bin", "state", "srun.log", "requeued"}, set())
        self.assertEqual([path.name for path in self.state.iterdir()], ["leader"])

    def test_a_job_trains_on_both_nodes(self):
        batch = self.batch("first", "zinc", SAMPLE, "--hidden", "16", "--batch-size", "256", "--epochs", "2")
        output = self.end(batch)
        self.assertEqual(batch.returncode, 0, output)
        self.assertIn("trains on 2 daemons: this one and localhost:", output)
        self.assertIn("job first succeeded", output)
        self.assert_nothing_is_left()
        self.assertFalse(self.requeued.exists())
        steps = (self.root / "srun.log").read_text().split()
        self.assertEqual([steps.count(flag) for flag in ("--relative=0", "--relative=1", "--ntasks=1")], [1, 1, 2])

    def test_a_job_that_fails_fails_the_batch(self):
        batch = self.batch("first", "zinc", SAMPLE, "--hidden", "16", "--batch-size", "256", "--lr", "1e30", "--optimizer", "sgd")
        output = self.end(batch)
        self.assertEqual(batch.returncode, 1, output)
        self.assert_nothing_is_left()

    def test_a_job_goes_on_in_the_next_allocation(self):
        arguments = ("first", "zinc", SAMPLE, "--hidden", "16", "--batch-size", "256", "--epochs", "20")
        batch = self.batch(*arguments)
        # The second signal comes while the daemons end.
        output = self.end(batch, [r"^ *2/20 ", "draining"])
        self.assertEqual(batch.returncode, 6, output)
        self.assertEqual(self.requeued.read_text(), "71\n")
        self.assert_nothing_is_left()
        batch = self.batch(*arguments)
        output = self.end(batch)
        self.assertEqual(batch.returncode, 0, output)
        self.assertIn("resumed from the checkpoint of step ", output)
        self.assertIn("20/20", output)

    def test_a_peer_that_does_not_start_ends_the_batch_unless_the_job_needs_none(self):
        with socket.socket() as held:
            held.bind(("0.0.0.0", 0))
            held.listen()
            for flags, code, told in (([], 1, "permafrost.sbatch: daemons that are left: 1; job first needs 2"),
                                      (["--min-replicas", "1"], 0, "job second succeeded")):
                job = "second" if flags else "first"
                batch = self.batch(job, "zinc", SAMPLE, "--hidden", "16", "--batch-size", "256", "--epochs", "1", *flags,
                                   port=held.getsockname()[1])
                output = self.end(batch)
                self.assertEqual(batch.returncode, code, output)
                self.assertRegex(output, "permafrost.sbatch: the daemon on localhost ended with exit code [1-9]")
                self.assertIn(told, output)
                self.assert_nothing_is_left()
                # Keeps the waiting job from blocking the next batch.
                if not flags:
                    shutil.rmtree(self.state)
        self.assertFalse(self.requeued.exists())

    def test_a_leader_that_does_not_start_ends_the_batch(self):
        self.state.mkdir()
        (self.state / "leader").write_text("no folder")
        batch = self.batch("first", "zinc", SAMPLE)
        output = self.end(batch)
        self.assertEqual(batch.returncode, 3, output)
        self.assertRegex(output, "permafrost.sbatch: the daemon on 127.0.0.1, which leads, ended with exit code [1-9]")
        self.assert_nothing_is_left()

    def test_an_import_that_failed_is_made_again(self):
        folder = self.root / "state" / "zinc"
        shutil.copytree(SAMPLE, folder)
        graphs = folder / "raw" / "graph-label.csv.gz"
        whole = graphs.read_bytes()
        arguments = ("first", "zinc", folder, "--hidden", "16", "--batch-size", "256", "--epochs", "1")
        graphs.write_bytes(whole[: len(whole) // 2])
        batch = self.batch(*arguments)
        output = self.end(batch)
        self.assertEqual(batch.returncode, 1, output)
        self.assertIn("graph-label.csv.gz", output)
        graphs.write_bytes(whole)
        batch = self.batch(*arguments)
        output = self.end(batch)
        self.assertEqual(batch.returncode, 0, output)

    def test_the_next_allocation_goes_on_with_an_import(self):
        def let_no_file_be_large():
            # With the signal ignored, the write fails as an error of the machine, after which an import is tried again.
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2**22, 2**22))

        arguments = ("first", "zinc", SAMPLE, "--hidden", "16", "--batch-size", "256", "--epochs", "1")
        batch = self.batch(*arguments, prepare=let_no_file_be_large)
        output = self.end(batch, ["the import of zinc waits and is tried again"])
        self.assertEqual(batch.returncode, 6, output)
        self.assertEqual(self.requeued.read_text(), "71\n")
        batch = self.batch(*arguments)
        output = self.end(batch)
        self.assertEqual(batch.returncode, 0, output)
        self.assert_nothing_is_left()

    def test_bad_arguments_are_told(self):
        for arguments, nodes, told in ((["first"], "a,b", "1 arguments: accepted: JOB DATASET FOLDER"),
                                       (["first", "zinc", SAMPLE], "a", "1 nodes in 'a': accepted: 2 or more")):
            batch = self.batch(*arguments, nodes=nodes)
            self.assertIn(told, batch.communicate(timeout=60)[0])
            self.assertEqual(batch.returncode, 2)


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if not shutil.which("openssl"):
        print("skipped: openssl is not here")
        sys.exit(77)
    unittest.main()
