"""Samples neighbours in numpy, over arrays in memory, as a careful user would write it without a library."""

import time

import numpy as np


def batches_of(nodes, order, settings):
    """Returns the seeds of each batch: every node once, shuffled or in the order of rows."""
    seeds = np.random.default_rng(1).permutation(nodes) if order == "shuffled" else np.arange(nodes)
    size = settings["batch_size"]
    return [seeds[b : b + size] for b in range(0, nodes, size)]


def relabelled(seeds, fan_outs, draw):
    """Returns the edges of the subgraph around `seeds` as training needs it: each node once, edges between local
    rows. `draw(nodes, fan_out)` returns targets and sources of the drawn edges. It draws for a node only in the first
    hop that finds it."""
    nodes, new, targets, sources = seeds, seeds, [], []
    for fan_out in fan_outs:
        target, source = draw(new, fan_out)
        targets.append(target)
        sources.append(source)
        new = np.setdiff1d(source, nodes)
        nodes = np.concatenate([nodes, new])
    order = np.argsort(nodes, kind="stable")
    local = lambda rows: order[np.searchsorted(nodes, np.concatenate(rows), sorter=order)]
    return np.stack([local(sources), local(targets)]).shape[1]


class Peer:
    def __init__(self, graph, settings):
        self.settings = settings
        source, target = np.load(graph / "edge_index.npy")
        nodes = int(np.load(graph / "node_label.npy", mmap_mode="r").shape[0])
        loops = source == target
        ends = np.concatenate([target, source[~loops]])
        order = np.argsort(ends, kind="stable")
        self.neighbors = np.concatenate([source, target[~loops]])[order].astype(np.uint32)
        self.offsets = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=nodes))])
        self.batches = {order: batches_of(nodes, order, settings) for order in ("shuffled", "rows")}

    def _draw(self, random, nodes, fan_out):
        """Draws `fan_out` neighbours with replacement for each node that has any. Returns targets and sources."""
        first = self.offsets[nodes]
        degree = self.offsets[nodes + 1] - first
        kept = degree > 0
        draws = (random.random((int(kept.sum()), fan_out)) * degree[kept, None]).astype(np.int64)
        return np.repeat(nodes[kept], fan_out), self.neighbors[first[kept, None] + draws].ravel().astype(np.int64)

    def ask(self, command):
        name, seed = command.split()
        random = np.random.default_rng(int(seed))
        begin = time.perf_counter()
        if name == "subgraphs":
            draw = lambda nodes, fan_out: self._draw(random, nodes, fan_out)
            done = sum(relabelled(batch, self.settings["fan_outs"], draw) for batch in self.batches["shuffled"][: self.settings["batches"]])
        else:
            batches = self.batches["rows" if name == "neighbors-rows" else "shuffled"]
            done = sum(self._draw(random, batch, self.settings["fan_out"])[1].size for batch in batches)
        return {"seconds": time.perf_counter() - begin, "done": done}
