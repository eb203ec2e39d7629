"""PyG's side of `links`: reads settings as JSON from standard input, writes {mrr, seconds, version} as JSON.

The links are divided as the server divides them (server/data/store/link_split.h), which the server's own test links must confirm.
"""

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


def mix(z):
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def split_links(pairs, seed, valid_part, test_part):
    """pairs: [2, links], each once, lower node first. [links] 0: trains, 1: validates, 2: tests."""
    with np.errstate(over="ignore"):
        state = mix(mix(np.uint64(seed)) ^ (pairs[0].astype(np.uint64) << np.uint64(32) | pairs[1].astype(np.uint64)))
        draw = (mix(state + np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(11)) * 2.0**-53
    return np.where(draw < test_part, 2, np.where(draw < test_part + valid_part, 1, 0))


class Negatives:
    """Targets that a source has no edge to, uniform."""

    def __init__(self, pairs, nodes):
        self.nodes = nodes
        both = np.concatenate([pairs, pairs[::-1]], axis=1)
        self.keys = torch.from_numpy(np.sort(both[0] * nodes + both[1]))

    def draw(self, sources, count):
        sources = sources.repeat_interleave(count)
        targets = torch.randint(self.nodes, sources.shape)
        while True:
            keys = sources * self.nodes + targets
            place = torch.searchsorted(self.keys, keys).clamp(max=len(self.keys) - 1)
            wrong = (self.keys[place] == keys) | (sources == targets)
            if not wrong.any():
                return torch.stack([sources, targets])
            targets[wrong] = torch.randint(self.nodes, (int(wrong.sum()),))


@torch.no_grad()
def mean_reciprocal_rank(module, x, messages, links, negatives):
    """As OGB's evaluator: equal scores count half."""
    module.eval()
    rows = module(x, messages)
    own = module.decoder(rows, links)
    each = negatives.size(1) // links.size(1)
    scores = torch.cat([module.decoder(rows, part) for part in negatives.split(1 << 16, dim=1)]).view(-1, each)
    rank = 1 + (scores > own[:, None]).sum(1) + (scores == own[:, None]).sum(1) / 2
    module.train()
    return float((1 / rank).mean())


def train(settings, data, seed):
    """MRR of the test links in the epoch that validates best."""
    x, links, messages, negatives = data
    torch.manual_seed(seed)
    module = models.load(settings["weights"])
    for part in module.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    optimizer = torch.optim.Adam(module.parameters(), lr=settings["lr"])
    fixed = {split: negatives.draw(links[split][0], settings["eval_negatives"]) for split in (1, 2)}
    best, seconds = (-1.0, 0.0), 0.0
    for _ in range(settings["epochs"]):
        begin = time.perf_counter()
        optimizer.zero_grad()
        pairs = torch.cat([links[0], negatives.draw(links[0][0], 1)], dim=1)
        labels = torch.zeros(pairs.size(1))
        labels[: links[0].size(1)] = 1
        F.binary_cross_entropy_with_logits(module.decoder(module(x, messages), pairs), labels).backward()
        optimizer.step()
        seconds += time.perf_counter() - begin
        now = mean_reciprocal_rank(module, x, messages, links[1], fixed[1])
        if now > best[0]:
            best = (now, mean_reciprocal_rank(module, x, messages, links[2], fixed[2]))
    return best[1], seconds


def main():
    settings = json.load(sys.stdin)
    torch.set_num_threads(settings["threads"])
    x, edge_index, _, _ = peer_sage.read(pathlib.Path(settings["dataset"]), "auto")
    pairs = np.unique(np.sort(edge_index.numpy(), axis=0), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    split = split_links(pairs, settings["split_seed"], settings["valid_part"], settings["test_part"])
    tested = {tuple(sorted(link)) for link in settings["tested"]}
    if tested != set(map(tuple, pairs[:, split == 2].T.tolist())):
        raise SystemExit("peer_links: the server tests other links than this side")
    links = [torch.from_numpy(pairs[:, split == part]) for part in range(3)]
    # In the server's direction it is as often the other node whose targets are drawn.
    for of_split in links:
        turned = torch.rand(of_split.size(1), generator=torch.Generator().manual_seed(1)) < 0.5
        of_split[:, turned] = of_split[:, turned].flip(0)
    messages = torch.cat([links[0], links[0].flip(0)], dim=1)
    data = x, links, messages, Negatives(pairs, x.size(0))
    found = [train(settings, data, seed) for seed in settings["seeds"]]
    print(json.dumps({"mrr": [mrr for mrr, _ in found], "seconds": sum(seconds for _, seconds in found),
                      "version": f"PyG {torch_geometric.__version__}"}))


if __name__ == "__main__":
    main()
