"""Tests that a benchmark runs through bench/run on real parts at tiny sizes, and that its figures are numbers.

usage: python -m tests.bench.smoke_test NAME BIN_DIR      exit code 77: something that it needs is not on this machine
`python -m tests.bench.smoke_test --complete` fails if a benchmark has no smoke run, or if a smoke run is not a test of ctest.
"""

import gzip
import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile

from bench import power_law
from bench.__main__ import BENCHMARKS, MISSING

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "bench" / "run"
# The number of small graphs in each split.
SPLITS = {"train": 200, "valid": 40, "test": 40}
# These stand for folders that `cut` makes.
SMALL = "the first graphs of the sample"
CLASSES = "the first graphs of the sample in two classes"
# Stands for the folder of a large graph.
LARGE = "a power-law graph"
GRAPH = ["--nodes", "3000", "--edges", "20000", "--features", "8"]
# Maps each smoke run to its flags and to fields that the result must hold. If a run has several lists of flags, each is tried when the one
# before it lacks something on this machine.
SMOKES = {
    "steps": ([["--dataset", SMALL, "--rounds", "3", "--batch-size", "8", "--hidden", "8", "--layers", "2", "--freeze-at", "5"]], ["milliseconds", "ratios"]),
    "operators": ([["--rounds", "2", "--seconds", "0.0001"]], ["rows"]),
    "parallel": ([["--rounds", "2", "--gap", "0", "--smallest", "10", "--largest", "11"]], ["regions"]),
    "compare": ([["--workloads", "zinc-gine-64,sage,gcn", "--sides", "permafrost,pyg-loader,pyg-compile", "--sample", SMALL, *GRAPH,
                  "--pairs", "1", "--seconds", "0.1", "--compiler", "aot_eager"]], ["rows"]),
    "programs": ([["--modules", "gine", "--dataset", SMALL, "--rounds", "1", "--seconds", "0.1", "--hidden", "8", "--layers", "1", "--batch-size", "16",
                   "--compiler", "aot_eager"]], ["rows", "median_ratios"]),
    "folds": ([["--folds", "3", "--epochs", "2", "--hidden", "8", "--layers", "2", *peer] for peer in ([], ["--peer", "none"])], ["sides"]),
    "sets": ([["--dataset", CLASSES, "--seeds", "2", "--epochs", "2", "--hidden", "8", "--layers", "2", *peer] for peer in ([], ["--peer", "none"])],
             ["sides"]),
    "links": ([["--seeds", "1", "--epochs", "2", "--hidden", "8", "--eval-negatives", "5", *peer] for peer in ([], ["--peer", "none"])], ["sides"]),
    "node2vec": ([["--rounds", "1", "--epochs", "1", "--dim", "8", "--walk-length", "5", "--context-size", "3", "--walks-per-node", "1"]],
                 ["seconds", "ratios", "accuracy"]),
    "models": ([["--dataset", SMALL, "--nodes", "2000", "--edges", "10000", "--features", "8", "--epochs", "1", "--hidden", "8", "--batch-size", "16",
                 "--seeds-a-batch", "128"]], ["rows"]),
    "replicas": ([["--dataset", SMALL, "--hidden", "8", "--layers", "2", "--batch-sizes", "16", "--rounds", "1", "--epochs", "1", "--peer-steps", "2", *peer]
                  for peer in ([], ["--peer", "none"])], ["replicas", "rows"]),
    "simulate": ([["--dataset", SMALL, "--hidden", "8,16", "--layers", "2", "--batch-sizes", "16,32", "--rounds", "1", "--epochs", "1", "--nodes", "3000",
                   "--edges", "20000", "--large-hidden", "8", "--fan-out", "3,2", "--ranks", "1,2,8", "--gigabits", "10", "--seeds", "64"]],
                 ["measurements", "check", "predictions"]),
    "warm-up": ([["--dataset", SMALL, "--jobs", "1", "--kills", "1", "--seeds", "2", "--epochs", "1", "--batch-size", "16", "--hidden", "8",
                  "--layers", "2", "--resume-epochs", "50000"]], ["warm_up", "resume", "batching", "difference"]),
    "policies-sampled": ([["--dataset", LARGE, "--fan-out", "5,3", "--architecture", "gcn", "--epochs", "2", "--batch-size", "64", "--hidden", "8",
                           "--policies", "freeze+dynamic,freeze+ladder", "--sample-seconds", "0.05"]], ["rows"]),
    "policies": ([["--dataset", SMALL, "--epochs", "3", "--batch-size", "16", "--hidden", "8", "--layers", "2", "--policies", "always,freeze+pad,freeze+ladder-2+balanced",
                   "--device", "auto", "--sample-seconds", "0.05"]], ["rows"]),
    "import": ([[*GRAPH, "--rounds", "1"], [*GRAPH, "--rounds", "1", "--peer", "none"]], ["edges_a_second", "bytes_an_edge"]),
    "sources": ([["--rounds", "1", "--molecules", "20", "--nodes", "100", "--edges", "500"]], ["seconds", "datasets"]),
    "sampling": ([[*GRAPH, "--rounds", "1", "--batches", "3", "--batch-size", "256", "--walks", "500", "--length", "10", *peer]
                  for peer in ([], ["--peer", "none"])], ["rows", "prepared"]),
    "nodes": ([[*GRAPH, "--rounds", "1", "--hidden", "8", "--batch-size", "128", *peers] for peers in ([], ["--peers", "none"])],
              ["seconds", "executables"]),
    "disk": ([[*GRAPH, "--rounds", "1", "--batch-size", "128", "--hidden", "8", "--limit", "2000000000", "--times", "4", "--disk-seconds", "0.05",
               "--fio-seconds", "1", *peer] for peer in ([], ["--peer", "none"])], ["graphs", "disk_megabytes_a_second"]),
    "graph": ([GRAPH], ["folder"]),
    "gpu": ([["--device", "cpu", "--sample", SMALL, *GRAPH, "--parts", "self-test,losses,memory,zinc-gine-64,sage", "--compiler", "aot_eager", "--budget", "1000",
              "--rounds", "1", "--seconds", "0.1", "--epochs", "2", "--self-test-steps", "20", "--memory-steps", "200"]],
            ["parts", "device", "complete"]),
}
# Names the benchmark of each smoke run that is not named after it.
BENCHMARK_OF = {"policies-sampled": "policies"}


def cut(source, folder, classes=False):
    """Writes the first graphs of an OGB folder of small graphs into another folder. classes: replaces a target by 1 if it is above 0, else
    by 0."""
    rows = lambda name: gzip.open(source / "raw" / f"{name}.csv.gz", "rt").read().splitlines()
    nodes, edges = (list(map(int, rows(f"num-{what}-list"))) for what in ("node", "edge"))
    graphs = sum(SPLITS.values())
    ends = {"num-node-list": graphs, "num-edge-list": graphs, "graph-label": graphs, "node-feat": sum(nodes[:graphs]),
            "edge": sum(edges[:graphs]), "edge-feat": sum(edges[:graphs])}
    files = {f"raw/{name}.csv": rows(name)[:end] for name, end in ends.items()}
    if classes:
        files["raw/graph-label.csv"] = [str(int(float(target) > 0)) for target in files["raw/graph-label.csv"]]
    ids = iter(range(graphs))
    files |= {f"split/first/{name}.csv": [str(next(ids)) for _ in range(count)] for name, count in SPLITS.items()}
    for name, lines in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("\n".join(lines) + "\n")


def numbers(value):
    """Returns every number of a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def check(name, result, wanted):
    """Checks that the result has what the benchmark promises, and can be shown as text."""
    assert result["benchmark"] == name, result["benchmark"]
    for field in wanted:
        assert result.get(field), f"{name}: {field} is missing or empty"
    found = numbers(result)
    assert found and all(math.isfinite(number) for number in found), f"{name}: a figure is no number"
    text = next(b for b in BENCHMARKS if b.NAME == name).show(result)
    assert text.strip() and "nan" not in text.split(), f"{name}: {text}"
    print(text)


def main():
    names = {benchmark.NAME for benchmark in BENCHMARKS}
    if sys.argv[1] == "--complete":
        run = {BENCHMARK_OF.get(name, name) for name in SMOKES}
        assert names == run, f"not in both lists: {names ^ run}"
        (listed,) = re.findall(r"foreach\(name ([^)]*)\)\s*permafrost_python_test\(bench\.", (ROOT / "tests" / "CMakeLists.txt").read_text())
        assert set(listed.split()) == SMOKES.keys(), f"not in both lists: {set(listed.split()) ^ SMOKES.keys()}"
        return 0
    smoke, bin_dir = sys.argv[1:]
    name = BENCHMARK_OF.get(smoke, smoke)
    runs, wanted = SMOKES[smoke]
    with tempfile.TemporaryDirectory() as work:
        data = pathlib.Path(work) / "data"
        if {SMALL, CLASSES} & set(runs[0]):
            cut(ROOT / "deploy" / "sample" / "zinc", data, classes=CLASSES in runs[0])
        if LARGE in runs[0]:
            power_law.write(data, nodes=2000, edges=10_000, width=8)
        for flags in runs:
            flags = [str(data) if flag in (SMALL, CLASSES, LARGE) else flag for flag in flags]
            done = subprocess.run([RUN, name, "--output", "json", "--bin-dir", bin_dir, "--work", work, *flags], stdout=subprocess.PIPE, text=True)
            if done.returncode != MISSING:
                break
        if done.returncode != 0:
            return done.returncode
        check(name, json.loads(done.stdout), wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
