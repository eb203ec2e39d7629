"""PyG's side of `folds`: reads settings as JSON from standard input, writes {accuracies, seconds, version} as JSON."""

import json
import sys
import time

import torch
import torch_geometric
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

import tests  # noqa: F401  the Python package's modules are found by it
from bench import tu
from permafrost import models


def as_data(graph):
    table = lambda rows: torch.tensor(rows, dtype=torch.int64)
    edges = table(graph["edges"]).view(-1, 2).T.contiguous()
    return Data(x=table(graph["x"]), edge_index=edges, edge_attr=table(graph["edge_attr"]).view(edges.size(1), -1), y=table([graph["y"]]))


def outputs(module, batch):
    return module(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs)


@torch.no_grad()
def accuracy(module, loader, graphs):
    module.eval()
    right = sum(int((outputs(module, batch).argmax(1) == batch.y).sum()) for batch in loader)
    module.train()
    return right / graphs


def fold(settings, graphs, number):
    """Test accuracy of the epoch that validates best."""
    tested = settings["tested"]
    test, valid = tested[number], tested[(number + 1) % len(tested)]
    others = set(range(len(graphs))) - set(test) - set(valid)
    loader = lambda ids, shuffle: DataLoader([graphs[i] for i in sorted(ids)], batch_size=settings["batch_size"], shuffle=shuffle)
    torch.manual_seed(settings["seed"] * 1000 + number)
    module = models.load(settings["weights"])
    for part in module.modules():
        if hasattr(part, "reset_parameters") and part is not module:
            part.reset_parameters()
    optimizer = torch.optim.Adam(module.parameters(), lr=settings["lr"])
    train, best = loader(others, True), (-1.0, 0.0)
    for _ in range(settings["epochs"]):
        for batch in train:
            optimizer.zero_grad()
            F.cross_entropy(outputs(module, batch), batch.y).backward()
            optimizer.step()
        now = accuracy(module, loader(valid, False), len(valid))
        if now > best[0]:
            best = (now, accuracy(module, loader(test, False), len(test)))
    return best[1]


def main():
    settings = json.load(sys.stdin)
    torch.set_num_threads(settings["threads"])
    graphs = [as_data(graph) for graph in tu.graphs(settings["dataset"])]
    begin = time.perf_counter()
    accuracies = [fold(settings, graphs, number) for number in range(len(settings["tested"]))]
    print(json.dumps({"accuracies": accuracies, "seconds": time.perf_counter() - begin, "version": f"PyG {torch_geometric.__version__}"}))


if __name__ == "__main__":
    main()
