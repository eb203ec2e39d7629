"""PyG training sampled GraphSAGE through its NeighborLoader, in a process of its own.

`python -m bench.peer_sage DATASET SETTINGS` answers each line `epoch` on its standard input with one line of JSON. SETTINGS:
node_features, hidden, fan_outs, batch_size, threads.
"""

import json
import pathlib
import sys
import time

import numpy as np
import torch
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn.models import GraphSAGE

from bench import presample


def version():
    return f"PyG {torch_geometric.__version__}, torch {torch.__version__}"


def read(directory, choice):
    """Returns x [N, F] float32, edge_index [2, E] in both directions, y [N] int64, and {split: ids} for train and valid, and for test if
    the files are CSV."""
    if (directory / "edge_index.npy").exists():
        edge = np.load(directory / "edge_index.npy")
        x = np.load(directory / "node_feat.npy")
        y = np.load(directory / "node_label.npy")
        ids = {part: np.load(directory / f"{part}_idx.npy") for part in ("train", "valid")}
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
        ids = {part: table(split / f"{part}.csv.gz", dtype=np.int64).ravel() for part in ("train", "valid", "test")}
    return (torch.from_numpy(x), torch.from_numpy(presample.both_ways(edge)), torch.from_numpy(y.astype(np.int64)),
            {part: torch.from_numpy(found) for part, found in ids.items()})


class Peer:
    def __init__(self, dataset, node_features, hidden, fan_outs, batch_size, threads):
        torch.set_num_threads(threads)
        torch.manual_seed(1)
        x, edge_index, y, ids = read(dataset, node_features)
        data = Data(x=x, edge_index=edge_index, y=y)
        self.loader = NeighborLoader(data, fan_outs, ids["train"], batch_size=batch_size, shuffle=True)
        self.model = GraphSAGE(x.size(1), hidden, len(fan_outs), int(y.max()) + 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)
        # True if the sampler reports its hops. Layers then compute only the rows that they need.
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
        return {"seconds": time.perf_counter() - begin, "trims": self.trims, "version": version()}


def main():
    peer = Peer(pathlib.Path(sys.argv[1]), **json.loads(sys.argv[2]))
    for _ in sys.stdin:
        print(json.dumps(peer.epoch()), flush=True)


if __name__ == "__main__":
    main()
