"""Importing and sampling one large graph beside GraphZero (and numpy): the same graph, the same nodes, equal numbers of threads.

Runs alternate: each round times ours and then the other, or the other way round, on one workload; the ratio is taken round
by round, and its median is given with a 95 % confidence interval by bootstrap. GraphZero runs in a Python of its own, whose
lists are made before the clock starts.

usage: compare.py BIN_DIR GRAPH_DIR WORK_DIR [--graphzero-python PYTHON] [--rounds 15]
                  [--import-rounds 5] [--threads 2] [--output text|json]
GRAPH_DIR: what power_law.py wrote. WORK_DIR keeps both stores between runs. Without --graphzero-python only ours and numpy
are timed, numpy in this Python.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import time

from ratios import interval

FAN_OUT = 15
WALKS, LENGTH = 200_000, 40


class Program:
    """One that answers each line on its standard input with one line of JSON."""

    def __init__(self, *arguments, **environment):
        self.process = subprocess.Popen([str(a) for a in arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})

    def ask(self, command):
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()
        # What a library prints is no answer.
        for line in self.process.stdout:
            if line.startswith("{"):
                answer = json.loads(line)
                if "error" in answer:
                    raise SystemExit(f"compare: {command}: {answer['error']}")
                return answer
        raise SystemExit(f"compare: {self.process.args[0]} ended at {command}")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def graphzero_main(edges, store):
    """The other side: run by --graphzero-python with this file."""
    import graphzero
    import numpy as np

    if not store.exists():
        graphzero.convert_csv_to_gl(str(edges), str(store), False)
    graph = graphzero.Graph(str(store))
    nodes = int(np.load(edges.parent / "node_label.npy", mmap_mode="r").shape[0])
    rows = list(range(nodes))
    shuffled = np.random.default_rng(1).permutation(nodes).tolist()
    scratch = store.with_suffix(".import.gl")

    def convert():
        graphzero.convert_csv_to_gl(str(edges), str(scratch), False)
        scratch.unlink()
        return graph.num_edges

    works = {
        "import": convert,
        "fanout": lambda: graph.batch_random_fanout(shuffled, FAN_OUT).size,
        "fanout-rows": lambda: graph.batch_random_fanout(rows, FAN_OUT).size,
        # It takes so many steps; ours counts nodes.
        "walk": lambda: graph.batch_random_walk_uniform(shuffled[:WALKS], LENGTH - 1).shape[0] * (LENGTH - 1),
        "node2vec": lambda: graph.batch_random_walk(shuffled[:WALKS // 10], LENGTH - 1, 0.5, 2.0).shape[0] * (LENGTH - 1),
    }
    for line in sys.stdin:
        command = line.split()[0]
        begin = time.perf_counter()
        done = works[command]()
        print("\n" + json.dumps({"seconds": time.perf_counter() - begin, "done": int(done)}), flush=True)


class Numpy:
    """Fan-out in one vectorised expression over arrays in memory."""

    def __init__(self, graph):
        import numpy as np
        self.np = np
        source, target = np.load(graph / "edge_index.npy")
        nodes = int(np.load(graph / "node_label.npy", mmap_mode="r").shape[0])
        loops = source == target
        ends = np.concatenate([target, source[~loops]])
        order = np.argsort(ends, kind="stable")
        self.neighbors = np.concatenate([source, target[~loops]])[order].astype(np.uint32)
        self.offsets = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=nodes))])
        self.nodes = {"fanout": np.random.default_rng(1).permutation(nodes), "fanout-rows": np.arange(nodes)}

    def ask(self, command):
        np, (name, seed) = self.np, command.split()
        begin = time.perf_counter()
        first = self.offsets[self.nodes[name]]
        degree = self.offsets[self.nodes[name] + 1] - first
        draws = (np.random.default_rng(int(seed)).random((len(first), FAN_OUT)) * degree[:, None]).astype(np.int64)
        found = self.neighbors[np.minimum(first[:, None] + draws, len(self.neighbors) - 1)]
        found[degree == 0] = self.nodes[name][degree == 0, None]
        return {"seconds": time.perf_counter() - begin, "done": found.size}


def compare(name, ours, ours_command, other, other_command, rounds):
    rates = {"ours": [], "other": []}
    for i in range(-1, rounds):  # the first reads everything once
        pair = [("ours", ours, ours_command), ("other", other, other_command)]
        for who, program, command in pair if i % 2 == 0 else reversed(pair):
            answer = program.ask(command.format(seed=i + 2))
            done = answer.get("done", answer.get("edges", answer.get("steps")))
            if i >= 0:
                rates[who].append(done / answer["seconds"])
    ratios = [a / b for a, b in zip(rates["ours"], rates["other"])]
    ratio, low, high = interval(ratios)
    return {"name": name, "ours_per_second": statistics.median(rates["ours"]),
            "other_per_second": statistics.median(rates["other"]), "ratio": ratio, "low": low,
            "high": high, "rounds": rounds}


class Importer:
    """Ours: the whole of edges.csv into a store, synced, a process each time; what it takes is its own measure of it."""

    def __init__(self, bin_dir, edges, directory):
        self.command, self.directory = [bin_dir / "data_import", edges, directory], directory

    def ask(self, _):
        done = json.loads(subprocess.run(self.command, check=True, capture_output=True).stdout)
        shutil.rmtree(self.directory)
        return {"seconds": done["seconds"], "done": done["edges"]}


def main():
    if sys.argv[1:2] == ["graphzero"]:
        return graphzero_main(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("graph", type=pathlib.Path)
    parser.add_argument("work", type=pathlib.Path)
    parser.add_argument("--graphzero-python", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--import-rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    store, other_store = arguments.work / "store", arguments.work / "graph.gl"
    imported = None
    if not (store / "graph.pfg").exists():
        arguments.work.mkdir(parents=True, exist_ok=True)
        done = subprocess.run([arguments.bin_dir / "data_import", arguments.graph, store], check=True, capture_output=True)
        imported = json.loads(done.stdout)
    ours = Program(arguments.bin_dir / "data_sampling", store, "--threads", arguments.threads, "--fan-out", FAN_OUT,
                   "--walks", WALKS, "--length", LENGTH)
    info = ours.ask("info")
    rows = []
    stores = {"ours": info["adjacency_bytes"] / info["edges"]}
    if arguments.graphzero_python:
        threads = str(arguments.threads)
        other = Program(arguments.graphzero_python, __file__, "graphzero", arguments.graph / "edges.csv", other_store,
                        OMP_NUM_THREADS=threads)
        importer = Importer(arguments.bin_dir, arguments.graph / "edges.csv", arguments.work / "import")
        rows.append(compare("import, GraphZero", importer, "", other, "import", arguments.import_rounds))
        for workload, command in (("fanout", "fanout {seed}"), ("fanout-rows", "fanout-rows {seed}"),
                                  ("walk", "walk {seed}"), ("node2vec", "node2vec {seed} 0.5 2")):
            rows.append(compare(f"{workload}, GraphZero", ours, command, other, workload, arguments.rounds))
        other.close()
        stores["GraphZero"] = other_store.stat().st_size / info["edges"]
    numpy = Numpy(arguments.graph)
    for workload in ("fanout", "fanout-rows"):
        command = workload + " {seed}"
        rows.append(compare(f"{workload}, numpy", ours, command, numpy, command, arguments.rounds))
    alone = {}
    for workload in ("batches", "gather"):
        answers = [ours.ask(f"{workload} {seed}") for seed in range(6)][1:]
        alone[workload] = {"ms_per_batch": statistics.median(1e3 * a["seconds"] / a["batches"] for a in answers),
                           "nodes_per_batch": answers[-1]["nodes"] / answers[-1]["batches"],
                           "edges_per_batch": answers[-1]["edges"] / answers[-1]["batches"]}
    ours.close()
    result = {"graph": {"nodes": info["nodes"], "edges": info["edges"]}, "threads": arguments.threads, "import": imported,
              "bytes_per_edge": stores, "rows": rows, "alone": alone}
    if arguments.output == "json":
        print(json.dumps(result, indent=1))
        return
    print(f"{info['nodes']} nodes, {info['edges']} directed edges, {arguments.threads} threads, medians of "
          f"{arguments.rounds} alternating rounds; fan-out {FAN_OUT}, walks of {LENGTH} nodes")
    print("bytes an edge: " + ", ".join(f"{name} {value:.2f}" for name, value in stores.items()))
    print(f"{'edges or steps a second':26}{'ours':>12}{'other':>12}{'ratio':>9}   95 % interval")
    for row in rows:
        print(f"{row['name']:26}{row['ours_per_second']:12.3g}{row['other_per_second']:12.3g}{row['ratio']:9.2f}   "
              f"{row['low']:.2f} to {row['high']:.2f}")
    for workload, row in alone.items():
        print(f"{workload}: {row['ms_per_batch']:.2f} ms a batch of {row['nodes_per_batch']:.0f} nodes, "
              f"{row['edges_per_batch']:.0f} edges")


if __name__ == "__main__":
    main()
