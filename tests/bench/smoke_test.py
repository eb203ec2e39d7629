"""A benchmark at tiny sizes, on real parts: it runs through bench/run, and its figures are numbers.

usage: python -m tests.bench.smoke_test NAME BIN_DIR      exit code 77: what it needs is not on this machine
`python -m tests.bench.smoke_test --complete` fails if a benchmark has no smoke run.
"""

import json
import math
import pathlib
import subprocess
import sys
import tempfile

from bench.__main__ import BENCHMARKS, MISSING

RUN = pathlib.Path(__file__).resolve().parents[2] / "bench" / "run"
GRAPH = ["--nodes", "3000", "--edges", "20000", "--features", "8"]
# Name -> flags of one or more runs, each tried where the one before it lacks something; what the result must hold.
SMOKES = {
    "steps": ([["--rounds", "3", "--batch-size", "8", "--hidden", "8", "--layers", "2", "--freeze-at", "5"]], ["milliseconds", "ratios"]),
    "pyg": ([["--rounds", "1", "--batch-size", "512", "--hidden", "8", "--layers", "2"]], ["milliseconds", "ratios", "peer"]),
    "policies": ([["--epochs", "1", "--batch-size", "256", "--hidden", "8", "--layers", "2", "--policies", "always,freeze+pad",
                   "--sample-seconds", "0.05"]], ["rows"]),
    "import": ([[*GRAPH, "--rounds", "1"], [*GRAPH, "--rounds", "1", "--peer", "none"]], ["edges_a_second", "bytes_an_edge"]),
    "sampling": ([[*GRAPH, "--rounds", "1", "--batches", "3", "--batch-size", "256", "--walks", "500", "--length", "10", *peer]
                  for peer in ([], ["--peer", "none"])], ["rows", "prepared"]),
    "nodes": ([[*GRAPH, "--rounds", "1", "--hidden", "8", "--batch-size", "128", *peer] for peer in ([], ["--peer", "none"])],
              ["seconds", "executables"]),
    "memory-limit": ([[*GRAPH, "--epochs", "1", "--limit", "2000000000"]], ["runs"]),
    "cold": ([[*GRAPH, "--rounds", "2", "--batch-size", "128", "--disk-seconds", "0.05"]], ["seconds", "ratio"]),
    "graph": ([GRAPH], ["folder"]),
}


def numbers(value):
    """Every number of a JSON value."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return [value] if isinstance(value, (int, float)) and not isinstance(value, bool) else []


def check(name, result, wanted):
    """The result is what the benchmark promises, and its text can be made of it."""
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
        assert names == SMOKES.keys(), f"not in both lists: {names ^ SMOKES.keys()}"
        return 0
    name, bin_dir = sys.argv[1:]
    runs, wanted = SMOKES[name]
    with tempfile.TemporaryDirectory() as work:
        for flags in runs:
            done = subprocess.run([RUN, name, "--output", "json", "--bin-dir", bin_dir, "--work", work, *flags], stdout=subprocess.PIPE, text=True)
            if done.returncode != MISSING:
                break
        if done.returncode != 0:
            return done.returncode
        check(name, json.loads(done.stdout), wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
