"""Tests alerts and dashboard against a real daemon and a real Prometheus. The shipped configuration loads, and every query of every panel
and alert is answered. Each metric that they name is exported, and a daemon that trains well fires no alert.

usage: python -m tests.deploy.monitoring_test BIN_DIR      BIN_DIR: permafrost and permafrostd
"""

import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

from tests.parity.daemon import Daemon

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = ROOT / "build" / "bin"
PROMETHEUS = ROOT / "deploy" / "prometheus"
SAMPLE = ROOT / "deploy" / "sample" / "zinc"
PATH = os.pathsep.join([os.environ.get("PATH", ""), str(ROOT / ".deps" / "prometheus" / "usr" / "bin")])
# Some of these are exported only if the device reports them, which the CPU does not. The others exist only while a job runs or samples, or
# while a dataset is imported.
ABSENT_METRICS = {"permafrost_device_graph_entries", "permafrost_device_utilization_ratio", "permafrost_train_epoch", "permafrost_train_loss",
                  "permafrost_train_graphs_per_second", "permafrost_checkpoint_age_seconds", "permafrost_job_lookahead_depth",
                  "permafrost_job_lookahead_ready_batches", "permafrost_job_lookahead_resident_ratio", "permafrost_dataset_import_progress_ratio",
                  "permafrost_device_thread_seconds_since_progress", "permafrost_graph_cache_entries", "permafrost_graph_cache_entry_bytes",
                  "permafrost_graph_cache_capacity_entries", "permafrost_graph_cache_cut_executables",
                  "permafrost_graph_cache_shared_bytes", "permafrost_graph_cache_bytes",
                  "permafrost_graph_cache_frozen", "permafrost_graph_cache_frozen_timestamp_seconds", "permafrost_feature_cache_budget_bytes",
                  "permafrost_feature_cache_bytes", "permafrost_feature_cache_rows", "permafrost_feature_cache_read_depth",
                  "permafrost_device_empty_cache_total", "permafrost_train_rank_steps_total", "permafrost_train_rank_seconds_total",
                  "permafrost_train_rank_exchange_seconds_total"}
# In seconds. Prometheus scrapes each second here.
RATE_INTERVAL = 10


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def over_tls(config):
    """Returns the configuration with the scrape job that is in a comment in place of the active one."""
    head, jobs = config.split("scrape_configs:\n")
    commented = re.search(r"^  # - job_name: permafrost\n(?:  #   .*\n)+", jobs, re.M).group(0)
    return f"{head}scrape_configs:\n{commented.replace('  # ', '  ')}"


def names_of(expression):
    """Returns the metrics that a PromQL expression names."""
    return set(re.findall(r"\b((?:permafrost|process)_\w+)\b", expression))


def panels(dashboard):
    for panel in dashboard["panels"]:
        yield panel
        yield from panel.get("panels", [])


def expand(expression):
    """Replaces variables as Grafana does before a query."""
    return expression.replace("$__rate_interval", f"{RATE_INTERVAL}s").replace("$job", ".*").replace("$instance", ".*")


class Prometheus:
    """Runs Prometheus in `folder` on the shipped configuration, with other intervals and the replacements of `replaced`."""

    def __init__(self, folder, config, replaced):
        for words, others in {"15s": "1s", **replaced}.items():
            assert words in config, words
            config = config.replace(words, others)
        shutil.copy(PROMETHEUS / "alerts.yml", folder)
        (folder / "prometheus.yml").write_text(config)
        self.log = open(folder / "log", "w")
        for _ in range(5):
            address = f"127.0.0.1:{free_port()}"
            self.url = f"http://{address}"
            self.process = subprocess.Popen(
                [shutil.which("prometheus", path=PATH), f"--config.file={folder / 'prometheus.yml'}", f"--storage.tsdb.path={folder / 'data'}",
                 f"--web.listen-address={address}"], stdout=self.log, stderr=self.log)
            if not self.lost_its_port():
                break

    def log_text(self):
        return pathlib.Path(self.log.name).read_text()

    def lost_its_port(self):
        """Returns whether it ended because another process took the port that was free. Waits until that is known."""
        end = time.monotonic() + 60
        while self.process.poll() is None and "Server is ready to receive web requests" not in self.log_text() and time.monotonic() < end:
            time.sleep(0.1)
        return self.process.poll() is not None and "address already in use" in self.log_text()

    def get(self, path, **parameters):
        """Returns the answer's data. Raises AssertionError if the query fails."""
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}", timeout=10) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{parameters}: {error.read().decode()}") from None

    def query(self, expression):
        return self.get("query", query=expression)["result"]

    def wait_for(self, expression):
        """Waits until the expression has a sample."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            if self.process.poll() is not None:
                break
            try:
                if self.query(expression):
                    return
            except (urllib.error.URLError, ConnectionError, AssertionError):
                pass  # it is still starting
            time.sleep(0.2)
        self.stop()
        raise RuntimeError(f"Prometheus has no sample of {expression}: {self.log_text()[-1000:]}")

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.close()


class Files(unittest.TestCase):
    def promtool(self, *arguments):
        done = subprocess.run([shutil.which("promtool", path=PATH), *map(str, arguments)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_configuration_is_one(self):
        self.promtool("check", "config", PROMETHEUS / "prometheus.yml")

    def test_alerts_fire_when_they_should(self):
        self.promtool("test", "rules", PROMETHEUS / "alerts_test.yml")


class OverTls(unittest.TestCase):
    @unittest.skipUnless(shutil.which("openssl"), "openssl is not here")
    def test_the_scrape_in_the_comment_sees_a_daemon_with_tls_and_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", root / "key.pem",
                            "-out", root / "ca.pem", "-days", "2", "-subj", "/CN=trainer", "-addext", "subjectAltName=DNS:trainer"],
                           check=True, capture_output=True)
            daemon = Daemon(BIN, root / "state", SAMPLE, "--auth", "token", "--tls-cert", root / "ca.pem", "--tls-key", root / "key.pem", threads=1)
            self.addCleanup(daemon.stop)
            subprocess.run([BIN / "permafrost", "--server", f"unix:{root}/state/permafrost.sock", "server", "token", "create", "--role", "viewer",
                            "--to", root / "token"], check=True, stdout=subprocess.DEVNULL)
            prometheus = Prometheus(root, over_tls((PROMETHEUS / "prometheus.yml").read_text()), {
                "/etc/prometheus/ca.pem": str(root / "ca.pem"), "/etc/prometheus/prometheus.token": str(root / "token"),
                "trainer:9464": urllib.parse.urlparse(daemon.metrics_url).netloc})
            try:
                prometheus.wait_for('up{job="permafrost"} == 1')
            finally:
                prometheus.stop()


class Running(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        root = pathlib.Path(folder.name)
        daemon = Daemon(BIN, root / "state", SAMPLE, threads=1, import_as="zinc")
        cls.addClassCleanup(daemon.stop)
        target = urllib.parse.urlparse(daemon.metrics_url).netloc
        cls.prometheus = Prometheus(root, (PROMETHEUS / "prometheus.yml").read_text(), {"127.0.0.1:9464": target})
        cls.addClassCleanup(cls.prometheus.stop)
        cls.prometheus.wait_for("permafrost_train_steps_total == 0")
        # Trains long enough to be scraped meanwhile, since some series exist only then.
        daemon.train("job", "--dataset", "zinc", "--epochs", "8")
        # Waits until all that the job did has been scraped, and the rules have been evaluated since.
        cls.prometheus.wait_for('permafrost_jobs_finished_total{state="succeeded"} == 1 unless on () permafrost_train_epoch')
        cls.prometheus.wait_for("increase(permafrost_train_steps_total[1m]) > 0")
        # The watchdog checks once a second.
        cls.prometheus.wait_for("absent(permafrost_device_thread_seconds_since_progress)")
        cls.exported = {re.split(r"[{ ]", series)[0] for series in daemon.metrics()}
        cls.dashboard = json.loads((ROOT / "deploy" / "grafana" / "dashboard.json").read_text())
        cls.queries = [(panel["title"], target) for panel in panels(cls.dashboard) for target in panel.get("targets", [])]
        cls.rules = [rule for group in cls.prometheus.get("rules")["groups"] for rule in group["rules"]]

    def assert_exported(self, expression, where):
        self.assertLessEqual(names_of(expression), self.exported | ABSENT_METRICS, where)

    def test_metrics_that_may_be_absent_are_known_to_the_code_and_absent_when_idle(self):
        sources = "".join(path.read_text() for path in (ROOT / "server" / "telemetry").glob("*.cc"))
        for name in ABSENT_METRICS:
            self.assertIn(f'"{name}"', sources)
        self.assertEqual(self.exported & ABSENT_METRICS, set())

    def test_queries_of_the_dashboard_are_answered(self):
        self.assertGreater(len(self.queries), 50)
        for title, target in self.queries:
            expression = target["expr"]
            with self.subTest(panel=title, query=expression):
                self.assert_exported(expression, title)
                result = self.prometheus.query(expand(expression))
                # A comparison may have no samples, and neither may a rate of something that ended before. Every other query has samples.
                if not names_of(expression) & ABSENT_METRICS and not re.search(r"[<>]| and ", expression):
                    self.assertNotEqual(result, [], title)
                for label in re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]):
                    self.assertTrue(all(label in series["metric"] for series in result), f"{title}: {label}")

    def test_the_training_can_be_seen(self):
        for expression, what in (
            ('sum(increase(permafrost_train_step_seconds_count{phase="forward"}[1m]))', "steps by phase"),
            ('sum(increase(permafrost_graph_cache_hits_total{mode="train"}[1m]))', "steps replayed"),
            ('sum(permafrost_graph_cache_captures_by_cause_total{cause="freeze"})', "captures of the freeze"),
            ("max_over_time(permafrost_train_loss[1m])", "the loss"),
            ("permafrost_checkpoint_timestamp_seconds", "a checkpoint"),
        ):
            self.assertGreater(float(self.prometheus.query(expression)[0]["value"][1]), 0, what)

    def test_the_dashboard_can_be_imported_anywhere(self):
        variables = {variable["name"]: variable for variable in self.dashboard["templating"]["list"]}
        self.assertEqual(variables["datasource"]["type"], "datasource")
        for panel in panels(self.dashboard):
            if panel["type"] != "row":
                self.assertEqual(panel["datasource"]["uid"], "${datasource}", panel["title"])
        ids = [panel["id"] for panel in panels(self.dashboard)]
        self.assertEqual(len(ids), len(set(ids)))
        for _, target in self.queries:
            self.assertIn('{job=~"$job",instance=~"$instance"', target["expr"])
        for name in ("job", "instance"):
            self.assert_exported(variables[name]["definition"], name)

    def test_every_metric_is_on_the_dashboard_or_in_an_alert(self):
        shown = set().union(*(names_of(target["expr"]) for _, target in self.queries), *(names_of(rule["query"]) for rule in self.rules))
        families = lambda names: {re.sub(r"_(bucket|sum|count)$", "", name) for name in names if name.startswith("permafrost_")}
        self.assertEqual(families(self.exported) - families(shown) - {"permafrost_build_info"}, set())

    def test_expressions_of_alerts_are_answered(self):
        written = re.findall(r"^ *- alert: (\w+)$", (PROMETHEUS / "alerts.yml").read_text(), re.M)
        self.assertCountEqual([rule["name"] for rule in self.rules], written)
        for rule in self.rules:
            with self.subTest(alert=rule["name"]):
                self.assert_exported(rule["query"], rule["name"])
                self.prometheus.query(rule["query"])
                self.assertEqual((rule["health"], rule.get("lastError", "")), ("ok", ""))

    def test_a_daemon_that_trains_well_fires_nothing(self):
        self.assertEqual([alert for alert in self.prometheus.get("alerts")["alerts"] if alert["state"] == "firing"], [])


if __name__ == "__main__":
    if len(sys.argv) > 1 and not sys.argv[1].startswith("-"):
        BIN = pathlib.Path(sys.argv.pop(1)).resolve()
    if not all(shutil.which(program, path=PATH) for program in ("prometheus", "promtool")):
        print("skipped: prometheus and promtool are neither on PATH nor in .deps (deploy/install-deps --tests brings them)")
        sys.exit(77)
    unittest.main()
