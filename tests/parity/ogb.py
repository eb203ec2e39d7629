"""Reads OGB's graph- and node-property CSV layouts without any code of Permafrost's importer."""

import gzip
import pathlib

import numpy as np
import torch


def _table(root, name, dtype):
    # Labels may be missing, which only the slower reader accepts.
    read = np.genfromtxt if name.endswith("label") else np.loadtxt
    for path, opener in ((root / f"{name}.csv.gz", gzip.open), (root / f"{name}.csv", open)):
        if path.exists():
            with opener(path, "rt") as file:
                return read(file, delimiter=",", dtype=dtype, ndmin=2)
    raise FileNotFoundError(root / name)


def read(root):
    """Returns a list of dicts: x [N, C] int64, edge_index [2, E] with inverses, edge_attr [E, C] int64 (C = 0 if the
    set has none), y [1, T] float32."""
    raw = pathlib.Path(root) / "raw"
    nodes = _table(raw, "num-node-list", np.int64).ravel()
    edges = _table(raw, "num-edge-list", np.int64).ravel()
    edge = torch.from_numpy(_table(raw, "edge", np.int64))
    x = torch.from_numpy(_table(raw, "node-feat", np.int64))
    try:
        edge_attr = torch.from_numpy(_table(raw, "edge-feat", np.int64))
    except FileNotFoundError:
        edge_attr = torch.empty(edge.size(0), 0, dtype=torch.int64)
    y = torch.from_numpy(_table(raw, "graph-label", np.float32))
    graphs, n0, e0 = [], 0, 0
    for g, (n, e) in enumerate(zip(nodes.tolist(), edges.tolist())):
        pairs, attr = edge[e0 : e0 + e].T, edge_attr[e0 : e0 + e]
        graphs.append(
            {
                "x": x[n0 : n0 + n],
                "edge_index": torch.cat([pairs, pairs.flip(0)], dim=1),
                "edge_attr": torch.cat([attr, attr]),
                "y": y[g : g + 1],
            }
        )
        n0, e0 = n0 + n, e0 + e
    return graphs


def read_nodes(root):
    """Reads one large graph: x [N, F] float32, edge_index [2, E] with inverses (a self-loop has none)."""
    raw = pathlib.Path(root) / "raw"
    x = torch.from_numpy(_table(raw, "node-feat", np.float32))
    pairs = torch.from_numpy(_table(raw, "edge", np.int64)).T
    inverses = pairs[:, pairs[0] != pairs[1]].flip(0)
    return x, torch.cat([pairs, inverses], dim=1)


def node_labels(root):
    """Returns the class of each node, [N] int64."""
    return torch.from_numpy(_table(pathlib.Path(root) / "raw", "node-label", np.float32)).ravel().long()


def split(root, name):
    """Returns the graph ids of a split, from the only split folder."""
    (folder,) = (pathlib.Path(root) / "split").iterdir()
    return _table(folder, name, np.int64).ravel().tolist()


def collate(graphs):
    """Returns one batch: x, edge_index, edge_attr, batch vector, number of graphs, y."""
    sizes = torch.tensor([g["x"].size(0) for g in graphs])
    starts = torch.cumsum(sizes, 0) - sizes
    return (
        torch.cat([g["x"] for g in graphs]),
        torch.cat([g["edge_index"] + s for g, s in zip(graphs, starts)], dim=1),
        torch.cat([g["edge_attr"] for g in graphs]),
        torch.repeat_interleave(torch.arange(len(graphs)), sizes),
        len(graphs),
        torch.cat([g["y"] for g in graphs]),
    )
