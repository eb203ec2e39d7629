"""Writes the data of PyG's processes as files of tensors, so that no process parses text while its memory is measured.

`python -m bench.peer_data KIND FOLDER OUT SETTINGS` writes OUT; `load` of bench/peer_pyg.py reads it.
"""

import json
import pathlib
import sys

import numpy as np
import torch

# The most bytes of sampled batches, with their features, that are made before the clock starts.
SAMPLED_BYTES = 10**9


def graphs(folder, _):
    """Returns all graphs of the train and valid splits, concatenated into few tensors, since many small tensors are slow to read."""
    from tests.parity import ogb

    every = ogb.read(folder)
    split = {name: ogb.split(folder, name) for name in ("train", "valid")}
    parts = {name: [every[i] for i in ids] for name, ids in split.items()}
    flat = lambda found: {"nodes": [g["x"].size(0) for g in found], "edges": [g["edge_index"].size(1) for g in found],
                          "x": torch.cat([g["x"] for g in found]), "edge_index": torch.cat([g["edge_index"] for g in found], 1),
                          "edge_attr": torch.cat([g["edge_attr"] for g in found]), "y": torch.cat([g["y"] for g in found])}
    return {name: flat(found) for name, found in parts.items()}


def whole(folder, _):
    from bench import peer_sage

    x, edge_index, y, ids = peer_sage.read(folder, "auto")
    return {"x": x, "edge_index": edge_index, "y": y, **ids}


def sampled(folder, settings):
    from bench import presample

    data = whole(folder, settings)
    graph = presample.Graph(data["edge_index"].numpy(), len(data["y"]))
    random = np.random.default_rng(1)
    size = settings["batch_size"]

    def batches(ids):
        """Samples the batches of one epoch, as many as fit into SAMPLED_BYTES."""
        kept, budget = [], SAMPLED_BYTES
        for seeds in np.split(random.permutation(ids.numpy()), range(size, len(ids), size)):
            nodes, edges, node_counts, edge_counts = graph.subgraph(seeds, settings["fan_outs"], random)
            budget -= len(nodes) * data["x"].size(1) * 4
            if kept and budget < 0:
                break
            kept.append((torch.from_numpy(nodes), torch.from_numpy(edges), node_counts, edge_counts))
        return kept

    return data | {"train_batches": batches(data["train"]), "valid_batches": batches(data["valid"])}


def main():
    kind, folder, out, settings = sys.argv[1:]
    torch.save({"graphs": graphs, "whole": whole, "sampled": sampled}[kind](pathlib.Path(folder), json.loads(settings)), out)


if __name__ == "__main__":
    main()
