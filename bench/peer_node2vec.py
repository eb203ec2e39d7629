"""PyTorch's side of `node2vec`: reads settings as JSON from standard input, writes {seconds, steps, accuracy, version} as JSON. If the
settings have `judge`, a file of embeddings, it writes only {accuracy} of these."""

import json
import pathlib
import sys
import time

import torch
import torch_geometric
from safetensors.torch import load_file
from torch_geometric.nn import Node2Vec

import tests  # noqa: F401  the Python package's modules are found by it
from bench import peer_sage
from permafrost.models.node2vec import NodeEmbedding


def accuracy(rows, labels, train, test):
    """Returns the test accuracy of a logistic regression like scikit-learn's LogisticRegression with its defaults, fully converged."""
    x, y = rows.double(), labels.long()
    classes = int(y.max()) + 1
    weight = torch.zeros(classes, x.size(1), dtype=torch.double, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.double, requires_grad=True)
    solver = torch.optim.LBFGS([weight, bias], max_iter=500, tolerance_grad=1e-6, line_search_fn="strong_wolfe")

    def closure():
        solver.zero_grad()
        loss = torch.nn.functional.cross_entropy(x[train] @ weight.T + bias, y[train], reduction="sum") + weight.square().sum() / 2
        loss.backward()
        return loss

    solver.step(closure)
    with torch.no_grad():
        return float(((x[test] @ weight.T + bias).argmax(1) == y[test]).double().mean())


class Walks:
    """Draws uniform walks, and uniformly random nodes, for all seeds of a batch at once."""

    def __init__(self, edge_index, nodes, settings):
        order = edge_index[0].argsort(stable=True)
        self.targets = edge_index[1][order]
        self.degree = torch.bincount(edge_index[0], minlength=nodes)
        self.begin = self.degree.cumsum(0) - self.degree
        self.nodes, self.settings = nodes, settings

    def windows(self, walks):
        length, context = self.settings["walk_length"], self.settings["context_size"]
        return torch.cat([walks[:, j : j + context] for j in range(length - context + 1)])

    def sample(self, seeds):
        s = self.settings
        start = seeds.repeat(s["walks_per_node"])
        walk = [start]
        for _ in range(s["walk_length"] - 1):
            degree = self.degree[walk[-1]]
            draw = (torch.rand(len(start)) * degree).long().clamp(max=(degree - 1).clamp(min=0))
            walk.append(torch.where(degree > 0, self.targets[(self.begin[walk[-1]] + draw).clamp(max=len(self.targets) - 1)], walk[-1]))
        start = seeds.repeat(s["walks_per_node"] * s["negatives"])
        random = torch.randint(self.nodes, (len(start), s["walk_length"] - 1))
        return self.windows(torch.stack(walk, dim=1)), self.windows(torch.cat([start[:, None], random], dim=1))


def train(settings, edge_index, nodes):
    torch.manual_seed(settings["seed"])
    walks = Walks(edge_index, nodes, settings)
    module = NodeEmbedding({"hidden_channels": settings["dim"], "embedded_nodes": nodes})
    module.embedding = torch.nn.Embedding(nodes, settings["dim"], sparse=True)
    optimizer = torch.optim.SparseAdam(list(module.parameters()), lr=settings["lr"])
    seconds, steps = 0.0, 0
    for _ in range(settings["epochs"]):
        batches = torch.randperm(nodes).split(settings["batch_size"])
        ready = [walks.sample(seeds) for seeds in batches] if settings["ready"] else None
        begin = time.perf_counter()
        for number, seeds in enumerate(batches):
            optimizer.zero_grad()
            Node2Vec.loss(module, *(ready[number] if ready else walks.sample(seeds))).backward()
            optimizer.step()
        seconds += time.perf_counter() - begin
        steps += len(batches)
    return module.embedding.weight.detach(), seconds, steps


def main():
    settings = json.load(sys.stdin)
    torch.set_num_threads(settings["threads"])
    folder = pathlib.Path(settings["dataset"])
    x, edge_index, labels, split = peer_sage.read(folder, "auto")
    if "judge" in settings:
        rows = load_file(settings["judge"])["embedding.weight"]
        print(json.dumps({"accuracy": accuracy(rows, labels.view(-1), split["train"], split["test"])}))
        return
    rows, seconds, steps = train(settings, edge_index, x.size(0))
    told = {} if settings["ready"] else {"accuracy": accuracy(rows, labels.view(-1), split["train"], split["test"])}
    print(json.dumps({**told, "seconds": seconds, "steps": steps, "version": f"PyG {torch_geometric.__version__}"}))


if __name__ == "__main__":
    main()
