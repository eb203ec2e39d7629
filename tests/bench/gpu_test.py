"""The parts of `bench/run gpu` that need no GPU, and its bundle: usage: python -m tests.bench.gpu_test BIN_DIR"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest

import torch

from bench import gpu, gpu_parts, gpu_rounds, gpu_show, kernel_times, peer_gpu, tools, workloads
from bench.gpu_run import LeftOut, OverTime, Run
from bench.peer_pyg import Batch

BIN_DIR = None
SETTINGS = {"budget": 60.0, "device": "cpu", "seconds": 0.01, "rounds": 3, "sides": list(gpu_rounds.SIDES), "self_test_steps": 20,
            "memory_steps": 100, "epochs": 2, "sample": tools.SAMPLE}


class InFolder(unittest.TestCase):
    def setUp(self):
        work = tempfile.TemporaryDirectory()
        self.addCleanup(work.cleanup)
        self.work = pathlib.Path(work.name)
        (self.work / "bin").mkdir()

    def new_run(self, **settings):
        arguments = types.SimpleNamespace(**SETTINGS | settings)
        return Run(arguments, tools.Tools(self.work / "bin", self.work, 1), self.work, self.work / "to")

    def stored(self):
        return json.loads((self.work / "to" / "result.json").read_text())

    def program(self, path, text):
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)


class Runs(InFolder):
    def test_a_part_that_fails_is_kept_and_the_run_goes_on(self):
        def half(_, part):
            part["figure"] = 1
            raise RuntimeError("a reason\nand more")

        run = self.new_run()
        run.part("first", half)
        run.part("second", lambda _, part: part.update(figure=2))
        parts = self.stored()["parts"]
        self.assertEqual((parts["first"]["figure"], parts["first"]["failed"], parts["second"]["figure"]), (1, "a reason", 2))
        self.assertEqual([gpu.complete(part) for part in parts.values()], [False, True])

    def test_what_does_not_fit_into_the_budget_is_left_out(self):
        run = self.new_run(budget=0.5)
        run.part("late", lambda _, part: self.fail("it began"))
        self.assertEqual(self.stored()["parts"]["late"]["left_out"], "the budget of 0.5 s is used up")

    def test_a_part_that_hangs_is_ended(self):
        run = self.new_run()
        begin = time.monotonic()
        with self.assertRaisesRegex(OverTime, "a nap took longer than 0 s"), run.limit(0.1, "a nap"):
            time.sleep(60)
        self.assertLess(time.monotonic() - begin, 30)

    def test_a_program_that_hangs_leaves_what_it_printed(self):
        self.program(self.work / "bin" / "hangs", "echo begun; exec sleep 60")
        run, part = self.new_run(), {}
        with self.assertRaises(OverTime):
            run.program(part, 1, "it", self.work / "bin" / "hangs")
        self.assertEqual(part["lines"], ["begun"])

    def test_the_self_test_passes_by_its_exit_code(self):
        for code in (0, 1):
            self.program(self.work / "bin" / "permafrostd", f'echo "$@"; exit {code}')
            part = {}
            gpu_parts.self_test(self.new_run(), part)
            self.assertEqual((part["passed"], part["exit_code"]), (code == 0, code))
            self.assertIn("--self-test-device cpu --self-test-steps 20", part["lines"][0])

    def test_the_self_test_fails_without_the_kernels(self):
        self.program(self.work / "bin" / "permafrostd", f'echo "self-test: {gpu_parts.WITHOUT_KERNELS}: no NVRTC"')
        part = {}
        gpu_parts.self_test(self.new_run(), part)
        self.assertEqual((part["passed"], part["kernels_compiled"], part["exit_code"]), (False, False, 0))

    def test_conformance_that_skips_has_not_passed(self):
        test = lambda name, **more: {"name": f"{name}/cpu", "result": "COMPLETED", **more}
        for tests, wanted in (([test("A")], (True, 1, 0, [])), ([test("A"), test("B", result="SKIPPED")], (False, 1, 1, [])), ([], (False, 0, 0, [])),
                              ([test("A"), test("B", failures=[{}])], (False, 2, 0, ["B/cpu"]))):
            report = json.dumps({"testsuites": [{"testsuite": tests}]})
            failed = any("failures" in found for found in tests)
            self.program(self.work / "tests" / "device_test", f"for word; do case $word in --gtest_output=json:*) echo '{report}' >\"${{word#*:}}\" ;; esac; done; exit {int(failed)}")
            part = {}
            gpu_parts.conformance(self.new_run(), part)
            self.assertEqual((part["passed"], part["run"], part["skipped"], part["failures"]), wanted)

    def test_without_device_test_conformance_is_left_out(self):
        part = {}
        gpu_parts.conformance(self.new_run(), part)
        self.assertIn("there is no device_test in", part["left_out"])


class Memory(unittest.TestCase):
    def test_the_last_third_is_held_to_the_one_before(self):
        sample = lambda step, entries, rss: {"step": step, "entries": entries, "rss": rss}
        steady = [sample(10, 1, 9), sample(40, 2, 7), sample(60, 2, 8), sample(70, 2, 9), sample(101, 2, 8)]
        self.assertEqual(gpu_parts.grown(steady, 100), {"entries": [2, 2], "rss": [8, 9]})
        self.assertIs(gpu_parts.flat(gpu_parts.grown(steady, 100)), True)
        self.assertIs(gpu_parts.flat(gpu_parts.grown([*steady, sample(110, 3, 8)], 100)), False)

    def test_too_few_readings_judge_nothing(self):
        self.assertIsNone(gpu_parts.flat(gpu_parts.grown([{"step": 90, "entries": 1, "rss": 1}], 100)))


class Side:
    """A side that takes `milliseconds` a step, and fails in the given round, counted from 0."""

    def __init__(self, milliseconds, fails_in=None):
        self.milliseconds, self.fails_in, self.turns, self.ended = milliseconds, fails_in, 0, False
        self.process = types.SimpleNamespace(kill=self.end)

    def end(self):
        self.ended = True

    pause = end

    def turn(self, seconds):
        self.turns += 1
        if self.turns - 1 == self.fails_in:
            raise RuntimeError("a device fault")
        return {"steps": 10, "counted": 320, "seconds": 10 * self.milliseconds / 1e3, "rss": 1, "device_bytes": None}


class Rounds(InFolder):
    def contest(self, sides, **settings):
        run = self.new_run(**settings)
        part = run.result["parts"]["zinc-gine-64"] = {}
        contest = gpu_rounds.Contest(workloads.WORKLOADS["zinc-gine-64"], run, part)
        contest.sides = sides
        part["sides"] = {name: {} for name in sides}
        gpu_rounds.interleave({name: contest._turn(name) for name in sides}, 3, after=contest._keep)
        return contest

    def test_a_side_that_fails_does_not_end_the_others(self):
        sides = {"permafrost": Side(1), "pyg": Side(6), "pyg-graph": Side(2, fails_in=2)}
        self.contest(sides)
        part = self.stored()["parts"]["zinc-gine-64"]
        self.assertEqual((part["rounds"], part["sides_failed"]), (3, {"pyg-graph": "in round 2: a device fault"}))
        self.assertEqual(len(part["sides"]["pyg"]["ms_by_round"]), 3)
        self.assertAlmostEqual(part["ratios"]["pyg"]["median"], 6)
        # After the warm-up, one round was complete.
        self.assertAlmostEqual(part["ratios"]["pyg-graph"]["median"], 2)
        self.assertEqual((sides["pyg-graph"].turns, sides["pyg-graph"].ended, sides["pyg"].ended), (3, True, False))

    def test_the_result_on_disk_has_every_round_that_is_over(self):
        rounds = []

        class Reader(Side):
            def turn(side, seconds):
                rounds.append(self.stored()["parts"]["zinc-gine-64"]["rounds"] if side.turns > 1 else 0)
                return super().turn(seconds)

        self.contest({"permafrost": Reader(1)})
        self.assertEqual(rounds, [0, 0, 1, 2], "as read while the warm-up and each round began")

    def test_peers_are_measured_where_permafrost_fails(self):
        sides = {"permafrost": Side(1, fails_in=0), "pyg": Side(6)}
        self.contest(sides)
        part = self.stored()["parts"]["zinc-gine-64"]
        self.assertAlmostEqual(part["sides"]["pyg"]["ms_per_step"], 6)
        self.assertEqual((part["ratios"], sides["permafrost"].ended), ({}, True))

    def test_rounds_end_where_no_time_is_left_for_another(self):
        contest = self.contest({"permafrost": Side(1)}, seconds=40)
        self.assertEqual(contest.part["rounds"], 1)

    def test_a_cuda_graph_is_named_where_there_is_none(self):
        self.assertIn("not on this device", self.contest({"permafrost": Side(1)}).part["sides_left_out"]["pyg-graph"])

    def test_sides_of_other_models_are_no_peers(self):
        contest = self.contest({"permafrost": Side(1)})
        contest.part["sides"] = {"permafrost": {"prepared": {"parameters": 5}}}
        with self.assertRaisesRegex(RuntimeError, "pyg trains 6 parameters, permafrost 5"):
            contest._check("pyg", {"parameters": 6})


class Shapes(unittest.TestCase):
    def test_padding_adds_a_dummy_graph_and_no_edge_among_real_rows(self):
        batch = lambda nodes, edges, graphs: Batch((torch.arange(nodes)[:, None], torch.zeros(2, edges, dtype=torch.long), torch.ones(edges, 1),
                                                    torch.arange(nodes) * graphs // nodes, graphs), torch.zeros(graphs, 1), graphs)
        made = peer_gpu.of_one_shape([batch(6, 4, 2), batch(8, 10, 2), batch(3, 2, 1)])
        self.assertEqual(len(made), 2, "the batch that is not full is left out")
        for found, nodes, edges in zip(made, (6, 8), (4, 10)):
            x, edge_index, edge_attr, of_graph, graphs = found.inputs
            self.assertEqual((x.shape, edge_index.shape, edge_attr.shape, of_graph.shape, graphs), ((9, 1), (2, 10), (10, 1), (9,), 3))
            self.assertTrue((edge_index[:, edges:] == 8).all() and (edge_index[:, :edges] == 0).all())
            self.assertTrue((of_graph[nodes:] == 2).all() and (of_graph[:nodes] < 2).all())
            self.assertEqual((found.counted, found.rows), (2, slice(2)))

    def test_pinned_rows_are_those_of_the_ids(self):
        table = torch.randn(50, 3)
        pinned = peer_gpu.Pinned(table, 20, torch.device("cpu"))
        for ids in (torch.tensor([3, 3, 49]), torch.arange(20), torch.tensor([7])):
            self.assertTrue(torch.equal(pinned.rows(ids), table[ids]))


class Shown(unittest.TestCase):
    def test_every_outcome_has_a_line(self):
        side = {"ms_per_step": 2.0, "counted_per_second": 5.0, "device_bytes": 3e6}
        rounds = {"title": "a title", "rounds": 3, "seconds_a_turn": 1.0, "seconds": 9.0, "sides_left_out": {"pyg-graph": "no graphs"},
                  "sides_failed": {"pyg-reduce-overhead": "no compiler"}, "ratios": {"pyg": {"median": 6.5, "low": 6.0, "high": 7.0, "rounds": 3}},
                  "sides": {"permafrost": side | {"inside": {"left_out": "not told"}},
                            "pyg": side | {"inside": {"kernels": 300.0, "kernel_seconds": 1e-3, "copy_seconds": 0.0}}}}
        text = gpu_show.text({"device": {"name": "a card", "torch": "2"}, "permafrost": "permafrostd 1", "complete": False, "parts": {
            "self-test": {"passed": True, "steps": 7, "seconds": 1.0}, "memory": {"failed": "a fault", "seconds": 1.0}, "zinc-gine-64": rounds,
            "sage": {"left_out": "no time", "seconds": 0.0}}})
        for words in ("name a card; torch 2", "not complete", "passed, 7 steps", "failed: a fault", "6.50  (6.00 to 7.00)", "left out: no graphs",
                      "failed: no compiler", "300 kernels, 1.000 ms; the step takes 2.00 times as long", "Permafrost: not told", "left out: no time"):
            self.assertIn(words, text)


class Arguments(unittest.TestCase):
    def test_what_is_not_known_is_named_in_a_line(self):
        for flags, words in ((["--device", "mps"], "--device mps: accepted: cpu, cuda, cuda:N"), (["--budget", "0"], "--budget 0: accepted: seconds above 0"),
                             (["--parts", "all"], "--parts all: accepted: self-test"), (["--bundle", "/nowhere"], "--bundle /nowhere: has no folder bin")):
            done = subprocess.run([tools.ROOT / "bench" / "run", "gpu", "--bin-dir", "/nowhere", *flags], capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0, flags)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)


class Kernels(InFolder):
    LAUNCHES = [{"graph": 0, "launches": 1, "span_seconds": 9, "kernels": {"FusedOptimizer": {"calls": 1, "seconds": 9}}},
                {"graph": 3, "launches": 1, "span_seconds": 5, "kernels": {"sum": {"calls": 4, "seconds": 5}}},
                {"graph": 4, "launches": 2, "span_seconds": 8, "kernels": {"sum": {"calls": 6, "seconds": 4}, "a_FusedOptimizer_b": {"calls": 2, "seconds": 2}}},
                {"graph": 5, "launches": 2, "span_seconds": 4, "kernels": {"sum": {"calls": 6, "seconds": 1}, "a_FusedOptimizer_b": {"calls": 2, "seconds": 1}}}]

    def test_a_step_is_a_graph_with_the_optimizer(self):
        found = kernel_times.of_training(self.LAUNCHES)
        self.assertEqual((found["steps"], found["kernels"], found["kernel_seconds"], found["span_seconds"]), (4, 4, 2, 3))
        self.assertEqual(found["longest"]["sum"], {"calls": 3, "seconds": 1.25})
        with self.assertRaisesRegex(RuntimeError, "no graph of the device trained"):
            kernel_times.of_training(self.LAUNCHES[:2])

    def test_without_the_library_they_are_left_out(self):
        with self.assertRaisesRegex(LeftOut, "there is no libkernel_times.so in"):
            kernel_times.Times(self.work / "bin", self.work)

    def test_they_are_told_once_the_switch_is_off(self):
        (self.work / "bin" / "libkernel_times.so").touch()
        times = kernel_times.Times(self.work / "bin", self.work)
        os.environ.setdefault("PERMAFROST_TORCH_LIB", "/torch/lib")
        environment = times.environment()
        self.assertEqual(environment["CUDA_INJECTION64_PATH"], str(self.work / "bin" / "libkernel_times.so"))
        switch, to = pathlib.Path(environment["KERNEL_TIMES_WHILE"]), pathlib.Path(environment["KERNEL_TIMES_TO"])
        to.write_text("of an earlier run")

        def daemon(dropped):
            while not switch.exists():
                time.sleep(0.001)
            while switch.exists():
                time.sleep(0.001)
            half = to.with_suffix(".half")
            half.write_text(json.dumps({"dropped": dropped, "launches": self.LAUNCHES}))
            half.replace(to)

        for dropped in (0, 3):
            thread = threading.Thread(target=daemon, args=(dropped,))
            thread.start()
            if dropped:
                with self.assertRaisesRegex(RuntimeError, "CUPTI dropped 3 records of kernels"):
                    times.of_steps(0.05)
            else:
                self.assertEqual(times.of_steps(0.05)["steps"], 4)
            thread.join()


class Bundle(InFolder):
    def make(self, *flags):
        return subprocess.run([tools.ROOT / "bench" / "gpu-bundle", *flags, BIN_DIR.parent, self.work / "bundle"], capture_output=True, text=True)

    def test_an_unpacked_bundle_runs_by_itself(self):
        done = self.make()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertFalse(list((self.work / "bundle" / "lib").glob("libgomp*")), "torch's own must be the only one")
        subprocess.run(["tar", "-C", self.work / "bin", "-xzf", self.work / "bundle.tar.gz"], check=True)
        here = self.work / "bin" / "bundle"
        environment = {key: value for key, value in os.environ.items() if key != "PERMAFROST_TORCH_LIB"}
        environment["PATH"] = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
        done = subprocess.run([here / "bench" / "run", "gpu", "--device", "cpu", "--parts", "losses", "--epochs", "1", "--output", "json", "--to", self.work / "to"],
                              cwd=self.work, env=environment, stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0)
        self.assertEqual(json.loads(done.stdout), self.stored())
        losses = self.stored()["parts"]["losses"]
        self.assertEqual((losses["passed"], losses["repeats"], list(losses["cpu"])), (True, True, list(gpu_parts.LOWERINGS)))
        self.assertEqual(losses["cpu"]["auto"], losses["device"]["train_loss"], "the device is the CPU")

    def test_one_that_is_too_large_is_refused_in_a_line(self):
        done = self.make("--limit", "1000")
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1), done.stderr)
        self.assertRegex(done.stderr, r"the archive has \d+ bytes, and at most 1000 are accepted")
        self.assertEqual(list(self.work.glob("bundle*")), [])

    def test_a_folder_of_something_else_is_not_replaced(self):
        (self.work / "bundle").mkdir()
        (self.work / "bundle" / "mine").write_text("")
        done = self.make()
        self.assertIn("is there and is no bundle", done.stderr)
        self.assertTrue((self.work / "bundle" / "mine").exists())


if __name__ == "__main__":
    BIN_DIR = pathlib.Path(sys.argv.pop(1))
    unittest.main()
