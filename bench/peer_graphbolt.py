"""DGL GraphBolt in a process of its own: answers each command on its standard input with one line of JSON.

`python -m bench.peer_graphbolt GRAPH_DIR SETTINGS` needs the Python of `peer_venv.graphbolt`, which has an old torch, because
GraphBolt's last release needs one. SETTINGS: fan_outs, batch_size, hidden, threads, batches.

  draw SEED      samples subgraphs around --batches batches of seed nodes: every node once, edges between local rows
  prepare SEED   the same, with the features of all nodes
  epoch          trains GraphSAGE over the training seeds once, as DGL's examples do

An answer has "seconds". For drawing it also has "done" (the edges drawn), "batches" and "nodes".
"""

import itertools
import json
import pathlib
import sys
import time

import dgl
import dgl.graphbolt as gb
import dgl.nn
import numpy as np
import torch
from torch.nn import functional as F

from bench import presample


class Sage(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.layers = torch.nn.ModuleList(dgl.nn.SAGEConv(a, b, "mean") for a, b in itertools.pairwise(channels))

    def forward(self, blocks, h):
        for layer, block in zip(self.layers[:-1], blocks):
            h = torch.relu(layer(block, h))
        return self.layers[-1](blocks[-1], h)


class Peer:
    def __init__(self, folder, settings):
        self.settings = settings
        torch.set_num_threads(settings["threads"])
        torch.manual_seed(1)
        read = lambda name: torch.from_numpy(np.load(folder / f"{name}.npy"))
        graph = presample.Graph(presample.both_ways(np.load(folder / "edge_index.npy")), len(read("node_label")))
        self.graph = gb.fused_csc_sampling_graph(torch.from_numpy(graph.begins), torch.from_numpy(graph.sources))
        features, labels, seeds = read("node_feat"), read("node_label"), read("train_idx")
        self.store = gb.BasicFeatureStore({("node", None, "feat"): gb.TorchBasedFeature(features)})
        self.training = gb.ItemSet((seeds, labels[seeds]), names=("seed_nodes", "labels"))
        self.all = gb.ItemSet(torch.arange(len(labels)), names="seed_nodes")
        self.model = Sage([features.size(1), *[settings["hidden"]] * (len(settings["fan_outs"]) - 1), int(labels.max()) + 1])
        self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3, fused=False)

    def _loader(self, items, with_features):
        batches = gb.ItemSampler(items, batch_size=self.settings["batch_size"], shuffle=True).sample_neighbor(self.graph, self.settings["fan_outs"])
        return gb.DataLoader(batches.fetch_feature(self.store, node_feature_keys=["feat"]) if with_features else batches, num_workers=0)

    def draw(self, with_features):
        """Draws batches. The loader is made and its seeds are shuffled before the clock starts."""
        batches = iter(self._loader(self.all, with_features))
        first = next(batches)
        begin, edges, nodes, count = time.perf_counter(), 0, 0, 0
        for batch in itertools.islice(batches, self.settings["batches"]):
            edges += sum(hop.sampled_csc.indices.numel() for hop in batch.sampled_subgraphs)
            nodes += len(batch.input_nodes)
            count += 1
        del first
        return {"seconds": time.perf_counter() - begin, "done": edges, "nodes": nodes, "batches": count}

    def epoch(self):
        begin = time.perf_counter()
        for batch in self._loader(self.training, with_features=True):
            self.optimizer.zero_grad()
            F.cross_entropy(self.model(batch.blocks, batch.node_features["feat"]), batch.labels).backward()
            self.optimizer.step()
        return {"seconds": time.perf_counter() - begin}


def main():
    settings = json.loads(sys.argv[2])
    peer = Peer(pathlib.Path(sys.argv[1]), settings)
    for line in sys.stdin:
        work = line.split()[0]
        answer = peer.epoch() if work == "epoch" else peer.draw(with_features=work == "prepare")
        print(json.dumps({**answer, "version": f"DGL GraphBolt {dgl.__version__}, torch {torch.__version__}"}), flush=True)


if __name__ == "__main__":
    main()
