"""PyG training the module that equals Permafrost's GINE, at its best on the CPU."""

import time

import torch
import torch_geometric
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

from tests.parity import gine, ogb


def version():
    return f"PyG {torch_geometric.__version__}, torch {torch.__version__}"


class Peer:
    def __init__(self, weights, dataset, batch_size, threads):
        torch.set_num_threads(threads)
        self.module = gine.load(weights).train()
        graphs = ogb.read(dataset)
        train = [graphs[i] for i in ogb.split(dataset, "train")]
        # Embedding tables with few rows, and no value read back in a step.
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=1e-3, fused=True)
        order = torch.randperm(len(train)).tolist()
        self.batches = [ogb.collate([train[i] for i in order[b : b + batch_size]]) for b in range(0, len(order), batch_size)]
        self.loader = DataLoader([Data(**g) for g in train], batch_size=batch_size, shuffle=True)

    def _step(self, x, edge_index, edge_attr, batch, size, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = (self.module(x, edge_index, edge_attr, batch, size) - y).abs().mean()
        loss.backward()
        self.optimizer.step()

    def collated_epoch(self):
        """Milliseconds of a step over batches that are collated already."""
        begin = time.perf_counter()
        for batch in self.batches:
            self._step(*batch)
        return 1e3 * (time.perf_counter() - begin) / len(self.batches)

    def loader_epoch(self):
        """Milliseconds of a step through PyG's DataLoader."""
        begin = time.perf_counter()
        for b in self.loader:
            self._step(b.x, b.edge_index, b.edge_attr, b.batch, b.num_graphs, b.y)
        return 1e3 * (time.perf_counter() - begin) / len(self.loader)
