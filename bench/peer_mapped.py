"""PyG in a process of its own, training sampled GraphSAGE with its features in a memory-mapped file.

`python -m bench.peer_mapped sample SETTINGS` draws the batches of an epoch into a file, as NeighborLoader would. Neither the edges nor the
drawing then take part of the limited memory, or of the time. `python -m bench.peer_mapped train SETTINGS` answers each line `epoch MOST`
with {seconds, major_faults} of an epoch. It trains at most MOST batches, and scales the seconds to the whole epoch. SETTINGS: folder (of
NPY files), batches (the file), batch_size, fan_outs, hidden, threads.
"""

import json
import pathlib
import resource
import sys
import time

import numpy as np
import torch
from torch_geometric.nn.models import GraphSAGE

from bench import presample


def sample(settings):
    folder = pathlib.Path(settings["folder"])
    nodes = len(np.load(folder / "node_label.npy", mmap_mode="r"))
    graph = presample.Graph(presample.both_ways(np.load(folder / "edge_index.npy")), nodes)
    random = np.random.default_rng(1)
    ids, size = np.load(folder / "train_idx.npy"), settings["batch_size"]
    batches = [graph.subgraph(seeds, settings["fan_outs"], random) for seeds in np.split(random.permutation(ids), range(size, len(ids), size))]
    torch.save([(torch.from_numpy(nodes), torch.from_numpy(edges), *counts) for nodes, edges, *counts in batches], settings["batches"])


class Peer:
    def __init__(self, settings):
        torch.set_num_threads(settings["threads"])
        torch.manual_seed(1)
        folder = pathlib.Path(settings["folder"])
        # Mapped privately, since torch requires a writable array.
        self.x = torch.from_numpy(np.load(folder / "node_feat.npy", mmap_mode="c"))
        self.y = torch.from_numpy(np.load(folder / "node_label.npy").astype(np.int64))
        self.batches = torch.load(settings["batches"])
        self.model = GraphSAGE(self.x.size(1), settings["hidden"], len(settings["fan_outs"]), int(self.y.max()) + 1)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3, fused=True)

    def epoch(self, most):
        order = torch.randperm(len(self.batches)).tolist()[:most]
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_majflt
        begin = time.perf_counter()
        for at in order:
            nodes, edges, node_counts, edge_counts = self.batches[at]
            self.optimizer.zero_grad()
            out = self.model(self.x[nodes], edges, num_sampled_nodes_per_hop=node_counts, num_sampled_edges_per_hop=edge_counts)
            seeds = nodes[: node_counts[0]]
            torch.nn.functional.cross_entropy(out[: len(seeds)], self.y[seeds]).backward()
            self.optimizer.step()
        whole = len(self.batches) / len(order)
        return {"seconds": whole * (time.perf_counter() - begin),
                "major_faults": whole * (resource.getrusage(resource.RUSAGE_SELF).ru_majflt - faults)}


def main():
    what, settings = sys.argv[1], json.loads(sys.argv[2])
    if what == "sample":
        sample(settings)
        return
    peer = Peer(settings)
    for line in sys.stdin:
        print(json.dumps(peer.epoch(int(line.split()[1]))), flush=True)


if __name__ == "__main__":
    main()
