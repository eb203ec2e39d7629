"""Seconds an epoch of sampled GraphSAGE: Permafrost's daemon beside PyG's NeighborLoader, side by side in one run.

Both train the same network (two layers, hidden 64, cross-entropy, fused Adam) on the same graph, split, fan-outs (15, 10) and batch
size (1024) with equally many threads. In each round Permafrost trains one epoch and PyG another, in changing order; the ratio is
taken round by round and its median is given with a 95 % confidence interval by bootstrap. PyG's epoch is the loop over its loader:
sampling, gathering, forward, backward, step; its data are in memory, its layers are trimmed to the hops they need where its
sampler says them, and sparse features are dense ones there, since that is what its layers take. Permafrost's is the second epoch of a job, whose pages are in memory too and whose captures are done.

usage: node_epoch.py BIN_DIR DATASET_DIR [--rounds 7] [--threads 2] [--hidden 64] [--fan-out 15,10] [--batch-size 1024]
                     [--node-features auto|dense|sparse] [--output text|json]
DATASET_DIR: what power_law.py wrote, or OGB's node-property layout. Runs in a Python with torch, torch_geometric and torch-sparse.
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import numpy as np
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.models import GraphSAGE

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from daemon import Daemon  # noqa: E402
from ratios import interval  # noqa: E402


def read(directory, choice):
    """x [N, F] float32, edge_index [2, E] both ways, y [N], train ids."""
    if (directory / "edge_index.npy").exists():
        edge = np.load(directory / "edge_index.npy")
        x = np.load(directory / "node_feat.npy")
        y = np.load(directory / "node_label.npy")
        train = np.load(directory / "train_idx.npy")
    else:
        raw = directory / "raw"
        table = lambda path, **options: np.loadtxt(path, delimiter=",", ndmin=2, **options)
        edge = table(raw / "edge.csv.gz", dtype=np.int64).T
        y = table(raw / "node-label.csv.gz").ravel().astype(np.int64)
        if choice == "sparse" or not (raw / "node-feat.csv.gz").exists():
            stored = np.load(raw / "node-feat-sparse.npz")
            x = np.zeros(tuple(stored["shape"]), np.float32)
            rows = np.repeat(np.arange(len(stored["indptr"]) - 1), np.diff(stored["indptr"]))
            x[rows, stored["indices"]] = 1
        else:
            x = table(raw / "node-feat.csv.gz", dtype=np.float32)
        (split,) = (directory / "split").iterdir()
        train = table(split / "train.csv.gz", dtype=np.int64).ravel()
    both = np.concatenate([edge, edge[::-1, edge[0] != edge[1]]], axis=1)
    return torch.from_numpy(x), torch.from_numpy(both), torch.from_numpy(y.astype(np.int64)), torch.from_numpy(train)


class Pyg:
    def __init__(self, arguments):
        torch.set_num_threads(arguments.threads)
        torch.manual_seed(1)
        x, edge_index, y, train = read(arguments.dataset, arguments.node_features)
        data = Data(x=x, edge_index=edge_index, y=y)
        self.loader = NeighborLoader(data, arguments.fan_outs, train, batch_size=arguments.batch_size, shuffle=True)
        self.model = GraphSAGE(x.size(1), arguments.hidden, len(arguments.fan_outs), int(y.max()) + 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        self.trims = False

    def epoch(self):
        begin = time.perf_counter()
        for batch in self.loader:
            self.optimizer.zero_grad()
            hops = {}
            if batch.get("num_sampled_nodes") is not None:
                self.trims = True
                hops = {"num_sampled_nodes_per_hop": batch.num_sampled_nodes, "num_sampled_edges_per_hop": batch.num_sampled_edges}
            out = self.model(batch.x, batch.edge_index, **hops)[: batch.batch_size]
            torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            self.optimizer.step()
        return time.perf_counter() - begin


class Permafrost:
    def __init__(self, arguments, work):
        self.arguments, self.jobs = arguments, 0
        features = () if arguments.node_features == "auto" else ("--node-features", arguments.node_features)
        self.daemon = Daemon(arguments.bin_dir, work, arguments.dataset, arguments.threads, import_flags=features)

    def epoch(self):
        name = f"epoch-{self.jobs}"
        self.jobs += 1
        a = self.arguments
        self.daemon.client("job", "submit", "--id", name, "--dataset", "set", "--architecture", "sage", "--hidden", a.hidden,
                           "--fan-out", ",".join(map(str, a.fan_outs)), "--batch-size", a.batch_size, "--epochs", 2, "--watch")
        job = self.daemon.json("job", "show", name)
        if job["state"] != "STATE_SUCCEEDED":
            raise SystemExit(f"node_epoch: {name}: {job.get('error', job['state'])}")
        return job["epochs"][1]["trainSeconds"]

    def facts(self):
        job, cache = self.daemon.json("job", "show", f"epoch-{self.jobs - 1}"), self.daemon.json("cache", "show", f"epoch-{self.jobs - 1}")
        train = next(mode for mode in cache["statistics"] if mode["mode"].endswith("TRAIN"))
        real = int(train.get("nodes", 0)) + int(train.get("edges", 0))
        padding = int(train.get("paddingNodes", 0)) + int(train.get("paddingEdges", 0))
        return {"steps": int(job["progress"]["stepsPerEpoch"]), "executables": int(train.get("entries", 0)),
                "eager_steps": int(train.get("eagerSteps", 0)), "rows_added_percent": 100 * padding / max(1, real)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("dataset", type=pathlib.Path)
    for flag, value in (("--rounds", 7), ("--threads", 2), ("--hidden", 64), ("--batch-size", 1024)):
        parser.add_argument(flag, type=int, default=value)
    parser.add_argument("--fan-out", default="15,10")
    parser.add_argument("--node-features", choices=("auto", "dense", "sparse"), default="auto")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    arguments.dataset = arguments.dataset.resolve()
    arguments.fan_outs = [int(k) for k in arguments.fan_out.split(",")]
    pyg = Pyg(arguments)
    with tempfile.TemporaryDirectory() as work:
        ours = Permafrost(arguments, pathlib.Path(work) / "state")
        try:
            sides, seconds = [("permafrost", ours.epoch), ("pyg", pyg.epoch)], {"permafrost": [], "pyg": []}
            for r in range(arguments.rounds + 1):
                for name, epoch in sides if r % 2 == 0 else reversed(sides):
                    taken = epoch()
                    if r > 0:  # the first round warms up
                        seconds[name].append(taken)
            facts = ours.facts()
        finally:
            ours.daemon.stop()
    ratio, low, high = interval([b / a for a, b in zip(seconds["permafrost"], seconds["pyg"])])
    result = {"permafrost_seconds": statistics.median(seconds["permafrost"]), "pyg_seconds": statistics.median(seconds["pyg"]),
              "ratio": ratio, "low": low, "high": high, "rounds": arguments.rounds, "pyg_trims_layers": pyg.trims, **facts}
    if arguments.output == "json":
        print(json.dumps(result))
        return
    print(f"one epoch, {facts['steps']} steps of {arguments.batch_size} seeds, fan-outs {arguments.fan_out}, {arguments.threads} threads, "
          f"{arguments.rounds} interleaved rounds\n")
    print(f"Permafrost  {result['permafrost_seconds']:8.3f} s   {facts['executables']} executables, {facts['eager_steps']} eager steps, "
          f"{facts['rows_added_percent']:.2f} % rows added")
    print(f"PyG         {result['pyg_seconds']:8.3f} s   layers trimmed: {'yes' if pyg.trims else 'no'}")
    print(f"ratio       {ratio:8.2f}     (95 %: {low:.2f} to {high:.2f})")


if __name__ == "__main__":
    main()
