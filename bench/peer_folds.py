"""PyG's side of `folds`: reads settings as JSON from standard input, writes {accuracies, seconds, version} as JSON."""

import json
import sys
import time

import torch
import torch_geometric
from torch_geometric.data import Data

from bench import peer_training, tu


def as_data(graph):
    table = lambda rows: torch.tensor(rows, dtype=torch.int64)
    edges = table(graph["edges"]).view(-1, 2).T.contiguous()
    return Data(x=table(graph["x"]), edge_index=edges, edge_attr=table(graph["edge_attr"]).view(edges.size(1), -1), y=table([graph["y"]]))


def fold(settings, graphs, number):
    """Returns the test accuracy in the epoch that validates best."""
    tested = settings["tested"]
    test, valid = tested[number], tested[(number + 1) % len(tested)]
    ids = {"train": set(range(len(graphs))) - set(test) - set(valid), "valid": valid, "test": test}
    parts = {name: [graphs[i] for i in sorted(members)] for name, members in ids.items()}
    return peer_training.train(settings, parts, settings["seed"] * 1000 + number)[1]


def main():
    settings = json.load(sys.stdin)
    torch.set_num_threads(settings["threads"])
    graphs = [as_data(graph) for graph in tu.graphs(settings["dataset"])]
    begin = time.perf_counter()
    accuracies = [fold(settings, graphs, number) for number in range(len(settings["tested"]))]
    print(json.dumps({"accuracies": accuracies, "seconds": time.perf_counter() - begin, "version": f"PyG {torch_geometric.__version__}"}))


if __name__ == "__main__":
    main()
