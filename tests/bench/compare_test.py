"""The parts of `bench/run compare` that need no daemon: usage: python -m tests.bench.compare_test"""

import io
import json
import pathlib
import re
import subprocess
import tempfile
import time
import unittest
import unittest.mock
import xml.etree.ElementTree
import zipfile

import numpy as np

from bench import compare, compare_plot, compare_sides, peer_venv, presample, ratio_plot, tools, tu, workloads
from bench.progress import Progress

SIDE = {"ms_per_step": 1.0, "graphs_per_second": 2.0, "graphs_per_second_end_to_end": None, "peak_rss_mb": 3.0, "rss_growth_mb": -0.5,
        "compile_seconds": 4.0, "optimizer": "fused", "compiled": {"graphs": 3, "graph_breaks": 1}}
ROW = {"workload": "zinc-gine-64", "title": "a title", "pairs": 3, "seconds": 1.0, "parameters": 1234, "steps_per_epoch": 5,
       "executables": 6.0, "frozen": True,
       "peer": "PyG 1", "sides": {"permafrost": SIDE, "pyg": SIDE},
       "ratios": {"pyg": {"median": 1.5, "low": 1.25, "high": 40.0, "rounds": 3}}, "left_out": {"pyg-compile": "no compiler"}}
RESULT = {"machine": {"cpu": "a <cpu>", "cores": 2, "memory_gib": 1.0, "system": "none"}, "threads": 2,
          "rows": [ROW], "left_out": {"mutag": "no data"}}


class Zipped(unittest.TestCase):
    """A zipped TUDataset of two graphs: a triangle with a label on each edge, and a pair with a self-loop."""

    FILES = {"A": "1, 2\n2, 1\n2, 3\n3, 2\n1, 3\n3, 1\n4, 5\n5, 4\n5, 5\n", "edge_labels": "7\n7\n8\n8\n9\n9\n1\n1\n2\n",
             "graph_indicator": "1\n1\n1\n2\n2\n", "graph_labels": "1\n-1\n", "node_labels": "3\n4\n5\n3\n3\n"}

    def tables(self, *names):
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w") as archive:
            for name in names:
                archive.writestr(f"X/X_{name}.txt", self.FILES[name])
        return tu.tables(zipfile.ZipFile(file))

    def test_each_pair_stands_once_with_local_rows(self):
        found = self.tables(*self.FILES)
        self.assertEqual(found["raw/edge.csv"], ["0,1", "0,2", "1,2", "0,1", "1,1"])
        self.assertEqual(found["raw/edge-feat.csv"], [7, 9, 8, 1, 2])
        self.assertEqual((found["raw/num-node-list.csv"], found["raw/num-edge-list.csv"]), ([3, 2], [3, 2]))

    def test_labels_count_from_zero_and_classes_are_in_order(self):
        found = self.tables(*self.FILES)
        self.assertEqual(found["raw/node-feat.csv"], [0, 1, 2, 0, 0])
        self.assertEqual(found["raw/graph-label.csv"], [1, 0])

    def test_without_labels_a_node_has_its_degree(self):
        found = self.tables("A", "graph_indicator", "graph_labels")
        self.assertEqual(found["raw/node-feat.csv"], [1, 1, 1, 0, 1], "degrees, from the smallest on")
        self.assertNotIn("raw/edge-feat.csv", found)

    def test_every_graph_is_in_one_split(self):
        found = self.tables(*self.FILES)
        self.assertEqual(sorted(i for part in ("train", "valid", "test") for i in found[f"split/random/{part}.csv"]), [0, 1])


class Presample(unittest.TestCase):
    def setUp(self):
        random = np.random.default_rng(0)
        self.edges = random.integers(0, 50, (2, 400))
        self.seeds = np.array([7, 3, 11])
        self.nodes, self.local, self.node_counts, self.edge_counts = presample.Graph(self.edges, 50).subgraph(self.seeds, (3, 2), random)

    def test_nodes_stand_once_and_begin_with_the_seeds(self):
        self.assertEqual(self.nodes[:3].tolist(), self.seeds.tolist())
        self.assertEqual(len(set(self.nodes.tolist())), len(self.nodes))
        self.assertEqual((sum(self.node_counts), sum(self.edge_counts)), (len(self.nodes), self.local.shape[1]))

    def test_edges_are_the_graphs_and_each_is_drawn_once(self):
        drawn = list(map(tuple, self.nodes[self.local].T.tolist()))
        have = list(map(tuple, self.edges.T.tolist()))
        for edge in set(drawn):
            self.assertLessEqual(drawn.count(edge), have.count(edge))

    def test_a_hop_draws_for_the_nodes_that_the_one_before_found(self):
        degree = np.bincount(self.edges[1], minlength=50)
        first, second = np.split(self.local[1], [self.edge_counts[0]])
        for targets, begin, end, fan_out in ((first, 0, 3, 3), (second, 3, 3 + self.node_counts[1], 2)):
            counts = np.bincount(targets, minlength=end)
            self.assertEqual(counts[:begin].sum(), 0)
            self.assertEqual(counts[begin:end].tolist(), np.minimum(degree[self.nodes[begin:end]], fan_out).tolist())


class Shown(unittest.TestCase):
    def test_the_table_names_every_side_and_what_was_left_out(self):
        text = compare.show(RESULT)
        for words in ("PyG, batches made before: 3 graphs, 1 graph breaks", "5 steps an epoch", "frozen; PyG 1, Adam: fused",
                      "1.50  (1.25 to 40.00)", "PyG, torch.compile: left out: no compiler", "mutag: left out: no data"):
            self.assertIn(words, text)

    def test_the_drawing_is_xml_and_orders_by_value(self):
        root = xml.etree.ElementTree.fromstring(compare_plot.svg(RESULT, compare.SIDES))
        texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
        self.assertIn("1.5", texts)
        ticks = [(float(e.get("x")), float(e.text)) for e in root.iter("{http://www.w3.org/2000/svg}text") if e.get("text-anchor") == "middle"]
        self.assertEqual([t for _, t in sorted(ticks)], sorted(t for _, t in ticks))
        self.assertTrue(all(0 <= at <= ratio_plot.WIDTH for at, _ in ticks))

    def test_of_several_results_the_last_of_a_workload_counts(self):
        other = RESULT | {"rows": [ROW | {"parameters": 9}, ROW | {"workload": "mutag"}], "left_out": {"gcn-cora": "no data"}}
        found = compare.merged([RESULT, other])
        self.assertEqual([(row["workload"], row["parameters"]) for row in found["rows"]], [("zinc-gine-64", 9), ("mutag", 1234)])
        self.assertEqual(found["left_out"], {"gcn-cora": "no data"}, "mutag was measured in the other run")

    def test_results_are_shown_and_drawn_without_measuring(self):
        with tempfile.TemporaryDirectory() as work:
            file, drawing = pathlib.Path(work, "a.json"), pathlib.Path(work, "a.svg")
            file.write_text(json.dumps(RESULT))
            done = subprocess.run([tools.ROOT / "bench" / "run", "compare", "--results", file, "--svg", drawing, "--work", work],
                                  capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("1.50  (1.25 to 40.00)", done.stdout)
            self.assertIn("<svg", drawing.read_text())


    def test_what_is_no_result_is_named_in_a_line(self):
        with tempfile.TemporaryDirectory() as work:
            for content in (None, "# no JSON", "[1]", "{}"):
                file = pathlib.Path(work, "a.json")
                if content is not None:
                    file.write_text(content)
                done = subprocess.run([tools.ROOT / "bench" / "run", "compare", "--results", file, "--work", work], capture_output=True, text=True)
                self.assertEqual(done.returncode, 1, content)
                self.assertIn(f"--results {file}: ", done.stderr)
                self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


class Arguments(unittest.TestCase):
    def test_what_is_not_known_is_named_in_a_line(self):
        for name, flags, words in (("compare", ["--workloads", "zinc"], "accepted: zinc-gine-64"),
                                   ("compare", ["--sides", "permafrost,dgl"], "--sides dgl: accepted"),
                                   ("compare", ["--sides", "pyg"], "--sides must hold permafrost"),
                                   ("nodes", ["--peers", "foo"], "bench: nodes: --peers foo: accepted: pyg, graphbolt, none"),
                                   ("policies", ["--policies", "never,freeze"], "bench: policies: --policies freeze: accepted: always, never"),
                                   ("disk", ["--types", "float64"], "bench: disk: --types float64: accepted: float32")):
            done = subprocess.run([tools.ROOT / "bench" / "run", name, "--bin-dir", "/nowhere", "--work", tempfile.gettempdir(), *flags],
                                  capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0, flags)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_data_that_is_not_there_is_named_with_its_option(self):
        why = workloads.missing(workloads.WORKLOADS["mutag"], pathlib.Path("/nowhere"))
        self.assertIn("/nowhere/tu/MUTAG.zip is not there; --data", why)
        self.assertIsNone(workloads.missing(workloads.WORKLOADS["zinc-gine-64"], pathlib.Path("/nowhere")))

    def test_packages_of_peers_are_those_that_the_tests_have(self):
        installed = (tools.ROOT / "deploy" / "install-deps").read_text()
        installed = installed.replace("$torch_version", re.search(r"^torch_version=(\S+)", installed, re.M).group(1))
        for line in peer_venv.REQUIREMENTS.read_text().split():
            self.assertIn(line, installed)


class ScriptedDaemon:
    """Does one step a second. Each poll takes a second. An evaluation of `evaluation` seconds ends every epoch of four steps, and each step
    captures for a quarter of a second. SIGSTOP and SIGCONT go to a process that does nothing."""

    def __init__(self):
        self.process = subprocess.Popen(["sleep", "60"])
        self.now, self.steps = 0.0, 0

    def client(self, *command):
        return "new run: 77 parameters, 4 steps an epoch\n" if command[:2] == ("job", "logs") else ""

    def json(self, *_):
        return {"epochs": [{"epoch": str(n), "validSeconds": 10.0 + n} for n in range(1, self.steps // 4 + 1)]}

    def metrics(self):
        self.now += 1
        self.steps += 1
        both = {"captures_total": self.steps, "capture_seconds_total": self.steps / 4, "entries": 1}
        return {'permafrost_jobs{state="running"}': 1, 'permafrost_jobs{state="queued"}': 0, "permafrost_train_steps_total": self.steps,
                "permafrost_train_graphs_total": 32 * self.steps, "permafrost_train_epoch": 1 + self.steps // 4, "permafrost_graph_cache_frozen": 1,
                "permafrost_checkpoint_seconds_count": 1,
                **{f'permafrost_graph_cache_{name}{{mode="{mode}"}}': value for name, value in both.items() for mode in ("train", "eval")}}

    def perf_counter(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds

    def wait_until(self, state):
        while pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().split()[2] != state:
            time.sleep(0.001)


class Turns(unittest.TestCase):
    def setUp(self):
        self.daemon = ScriptedDaemon()
        self.addCleanup(lambda: (self.daemon.process.kill(), self.daemon.process.wait()))
        patch = unittest.mock.patch.object(compare_sides, "time", self.daemon)
        patch.start()
        self.addCleanup(patch.stop)

    def test_evaluations_and_captures_are_taken_off(self):
        with compare_sides.Job(self.daemon, []) as job:
            job.pause()
            turn = job.turn(100)
            # The turn begins after step 3 and ends after step 5. In it epoch 1 ended, whose evaluation took 11 of the seconds.
            self.assertEqual((turn["steps"], turn["counted"]), (2, 64))
            self.assertAlmostEqual(turn["seconds"], 100 + 2 - 11 - 2 / 4)
            self.assertEqual(job.evaluation_seconds(), 11)
            self.daemon.wait_until("T")  # stopped during the turns of others
        self.daemon.wait_until("S")  # a stopped process would not receive the signal to end

    def test_warm_up_ends_after_an_epoch(self):
        with compare_sides.Job(self.daemon, []) as job:
            job.warm_up(1000, lambda _: None)
            self.assertEqual(self.daemon.steps, 4)
            self.assertEqual(job.facts(), {"parameters": 77, "steps_per_epoch": 4})

    def test_a_job_that_ends_is_an_error(self):
        with compare_sides.Job(self.daemon, []) as job:
            self.daemon.metrics = lambda: {'permafrost_jobs{state="running"}': 0, 'permafrost_jobs{state="queued"}': 0}
            self.daemon.json = lambda *_: {"state": "STATE_FAILED", "error": "a reason"}
            with self.assertRaisesRegex(RuntimeError, "ended before the rounds did, as STATE_FAILED: a reason"):
                job.turn(1)


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Line(unittest.TestCase):
    def test_time_left_follows_the_pace(self):
        out = Terminal()
        progress = Progress("compare", 4, out)
        progress.begin -= 100
        progress.turn()
        progress.say("a")
        self.assertIn("compare: a; turn 1 of 4, about 5 min left", out.getvalue())

    def test_without_a_terminal_nothing_is_printed(self):
        out = io.StringIO()
        progress = Progress("compare", 4, out)
        progress.say("a")
        progress.close()
        self.assertEqual(out.getvalue(), "")


if __name__ == "__main__":
    unittest.main()
