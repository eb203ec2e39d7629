"""Samples subgraphs in the form of PyG's NeighborLoader with numpy, for a peer that has them before the clock starts."""

import numpy as np


def both_ways(edge_index):
    """Returns every edge and its inverse. A self-loop has no extra inverse."""
    return np.concatenate([edge_index, edge_index[::-1, edge_index[0] != edge_index[1]]], axis=1)


class Graph:
    """A graph as in-edges, sorted by target."""

    def __init__(self, edge_index, nodes):
        order = np.argsort(edge_index[1], kind="stable")
        self.sources = edge_index[0][order]
        self.begins = np.concatenate([[0], np.cumsum(np.bincount(edge_index[1], minlength=nodes))])
        self.row = np.full(nodes, -1)

    def _draw(self, nodes, fan_out, random):
        """Draws up to `fan_out` distinct in-edges of each node. Returns the place of each target in `nodes`, and the sources."""
        begin, degree = self.begins[nodes], self.begins[nodes + 1] - self.begins[nodes]
        owner = np.repeat(np.arange(len(nodes)), degree)
        place = np.arange(degree.sum()) - np.repeat(np.cumsum(degree) - degree, degree)
        # Orders the edges of each node at random. The first ones are then a draw without replacement.
        drawn = np.lexsort((random.random(len(owner)), owner))[place < fan_out]
        return owner[drawn], self.sources[begin[owner[drawn]] + place[drawn]]

    def subgraph(self, seeds, fan_outs, random):
        """Returns the nodes in the order of the hops that found them, edge_index of their rows by hop, and the numbers of nodes
        and of edges by hop."""
        nodes, new = seeds, seeds
        self.row[seeds] = np.arange(len(seeds))
        edges, node_counts, edge_counts = [], [len(seeds)], []
        for fan_out in fan_outs:
            base = len(nodes) - len(new)
            target, source = self._draw(new, fan_out, random)
            new = np.unique(source[self.row[source] < 0])
            self.row[new] = len(nodes) + np.arange(len(new))
            nodes = np.concatenate([nodes, new])
            edges.append(np.stack([self.row[source], base + target]))
            node_counts.append(len(new))
            edge_counts.append(len(target))
        self.row[nodes] = -1
        return nodes, np.concatenate(edges, axis=1), node_counts, edge_counts
