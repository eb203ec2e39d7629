"""PyG's side of `links`: reads settings as JSON from standard input, writes {mrr, seconds, version} as JSON, with one MRR for each seed."""

import json
import pathlib
import sys
import time

import numpy as np
import torch
import torch_geometric
from torch.nn import functional as F

import tests  # noqa: F401  the Python package's modules are found by it
from bench import peer_sage
from permafrost import models


class Negatives:
    """Draws targets uniformly among the nodes to which a source has no edge. edge_index: [2, edges], both directions."""

    def __init__(self, edge_index, nodes):
        self.nodes = nodes
        self.keys = (edge_index[0] * nodes + edge_index[1]).sort().values

    def draw(self, sources):
        """Returns [2, sources] pairs, one for each source."""
        targets = torch.randint(self.nodes, sources.shape)
        while True:
            keys = sources * self.nodes + targets
            place = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
            wrong = (self.keys[place] == keys) | (sources == targets)
            if not wrong.any():
                return torch.stack([sources, targets])
            targets[wrong] = torch.randint(self.nodes, (int(wrong.sum()),))


def read_links(folder):
    """Returns the links [2, L] of each split. For validation and test, also returns their negatives [2, L * K], with the K negatives of a
    link next to each other."""
    found = {}
    for name in ("train", "valid", "test"):
        links = np.load(folder / f"{name}.npy").T
        negatives = None
        if name != "train":
            targets = np.load(folder / f"{name}_negatives.npy")
            negatives = torch.from_numpy(np.stack([np.repeat(links[0], targets.shape[1]), targets.reshape(-1)]))
        found[name] = torch.from_numpy(np.ascontiguousarray(links)), negatives
    return found


def without_held_out(edge_index, links, nodes):
    """Returns the edges, except those between the two nodes of a validation or test link."""
    key = lambda pairs: pairs.min(dim=0).values * nodes + pairs.max(dim=0).values
    held_out = torch.cat([key(links[name][0]) for name in ("valid", "test")])
    return edge_index[:, ~torch.isin(key(edge_index), held_out)]


@torch.no_grad()
def mean_reciprocal_rank(module, x, messages, links, negatives):
    """Returns the mean reciprocal rank, as OGB's evaluator does: an equal score counts half."""
    module.eval()
    rows = module(x, messages)
    own = module.decoder(rows, links)
    each = negatives.size(1) // links.size(1)
    scores = torch.cat([module.decoder(rows, part) for part in negatives.split(1 << 16, dim=1)]).view(-1, each)
    rank = 1 + (scores > own[:, None]).sum(1) + (scores == own[:, None]).sum(1) / 2
    module.train()
    return float((1 / rank).mean())


def train(settings, data, seed):
    """Returns the MRR of the test links in the epoch that validates best."""
    x, links, messages, negatives = data
    torch.manual_seed(seed)
    module = models.load(settings["weights"])
    models.reset_parameters(module)
    optimizer = torch.optim.Adam(module.parameters(), lr=settings["lr"])
    own, best, seconds = links["train"][0], (-1.0, 0.0), 0.0
    for _ in range(settings["epochs"]):
        begin = time.perf_counter()
        optimizer.zero_grad()
        pairs = torch.cat([own, negatives.draw(own[0])], dim=1)
        labels = torch.zeros(pairs.size(1))
        labels[: own.size(1)] = 1
        F.binary_cross_entropy_with_logits(module.decoder(module(x, messages), pairs), labels).backward()
        optimizer.step()
        seconds += time.perf_counter() - begin
        now = mean_reciprocal_rank(module, x, messages, *links["valid"])
        if now > best[0]:
            best = (now, mean_reciprocal_rank(module, x, messages, *links["test"]))
    return best[1], seconds


def main():
    settings = json.load(sys.stdin)
    torch.set_num_threads(settings["threads"])
    x, edge_index, _, _ = peer_sage.read(pathlib.Path(settings["dataset"]), "auto")
    links = read_links(pathlib.Path(settings["links"]))
    data = x, links, without_held_out(edge_index, links, x.size(0)), Negatives(edge_index, x.size(0))
    found = [train(settings, data, seed) for seed in settings["seeds"]]
    print(json.dumps({"mrr": [mrr for mrr, _ in found], "seconds": sum(seconds for _, seconds in found),
                      "version": f"PyG {torch_geometric.__version__}"}))


if __name__ == "__main__":
    main()
