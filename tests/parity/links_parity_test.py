"""Compares link prediction with PyG on a real graph: scores and ranks of the test links, and the gradients of a training step.

usage: python -m tests.parity.links_parity_test BIN_DIR GRAPH_DIR
  GRAPH_DIR: one large graph in OGB's node-property layout

The split of the links and their negatives are computed here again from the contract. As in models_parity_test, a step of SGD with learning
rate 1 changes the weights by exactly the negative gradient.
"""

import csv
import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from tests.parity import ogb
from tests.parity.daemon import Daemon

from permafrost import models

TOLERANCE = 1e-5
SKIPPED = 77
WORD = (1 << 64) - 1
SEED, SPLIT_SEED, VALID_PART, TEST_PART, NEGATIVES = 5, 3, 0.1, 0.2, 2
JOBS = {
    "sage, dot": ["--decoder", "dot"],
    "gcn, mlp": ["--decoder", "mlp"],
    "gatv2, 4 heads, mlp": ["--decoder", "mlp", "--heads", "4"],
    "gin, layer norm, residual, dot": ["--decoder", "dot", "--norm", "layer", "--residual", "--layers", "3"],
}


def mix(z):
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB & WORD
    return z ^ (z >> 31)


def draws(seed, key):
    """Yields the numbers of a stream of Steele, Lea and Flood's SplitMix64."""
    state = mix(mix(seed) ^ key)
    while True:
        state = (state + 0x9E3779B97F4A7C15) & WORD
        yield mix(state)


class Links:
    def __init__(self, edge_index, nodes):
        self.nodes, self.edges = nodes, set(map(tuple, edge_index.T.tolist()))
        self.of_split = {"train": [], "valid": [], "test": []}
        for target, source in sorted((target, source) for source, target in self.edges if source != target):
            draw = draws(SPLIT_SEED, min(source, target) << 32 | max(source, target))
            part = (next(draw) >> 11) * 2.0**-53
            if (next(draw) & 1) == (source < target):
                split = "test" if part < TEST_PART else "valid" if part < TEST_PART + VALID_PART else "train"
                self.of_split[split].append((source, target))
        held_out = {pair for split in ("valid", "test") for link in self.of_split[split] for pair in (link, link[::-1])}
        self.messages = torch.tensor(sorted(self.edges - held_out)).T

    def training_pairs(self):
        """Returns the pairs of the first epoch: all links, then the negatives of each."""
        links, negatives = self.of_split["train"], []
        for key, (source, _) in enumerate(links):
            draw = draws(SEED, key)
            for _ in range(NEGATIVES):
                while (target := next(draw) * self.nodes >> 64) == source or (source, target) in self.edges:
                    pass
                negatives.append((source, target))
        labels = torch.tensor([1.0] * len(links) + [0.0] * len(negatives))
        return torch.tensor(links + negatives).T, labels


def run(daemon, work, name, flags):
    """Returns modules with the weights before and after a step, the server's gradients of that step, and the rows of the predictions after
    it."""
    files = {}
    for number, rate in enumerate(("1e-30", "1")):
        job = f"{name.split(',')[0]}-{number}"
        daemon.train(job, "--dataset", "graph", "--model", name.split(",")[0], "--hidden", "32", "--epochs", "1", "--optimizer", "sgd",
                     "--seed", SEED, "--lr", rate, "--link-prediction", "--link-seed", SPLIT_SEED, "--link-valid", VALID_PART,
                     "--link-test", TEST_PART, "--negatives", NEGATIVES, "--eval-negatives", 30, "--metrics", "mrr", *flags)
        for artifact in ("last-weights", "test-predictions"):
            files[number, artifact] = work / f"{job}.{artifact}"
            daemon.client("job", "export", job, "--artifact", artifact, "--to", files[number, artifact])
    before, after = (load_file(files[number, "last-weights"]) for number in (0, 1))
    with open(files[1, "test-predictions"]) as file:
        rows = list(csv.reader(file))[1:]
    module = models.load(files[0, "last-weights"])
    gradients = {key: before[key] - after[key] for key, _ in module.named_parameters()}
    reciprocal = daemon.json("job", "show", f"{name.split(',')[0]}-1")["result"]["bestTestMetric"]
    return module, gradients, models.load(files[1, "last-weights"]), rows, reciprocal


def compare(daemon, work, x, links, name, flags):
    module, gradients, after, rows, reciprocal = run(daemon, work, name, flags)
    tested = [(int(row[0]), int(row[1])) for row in rows]
    assert tested == links.of_split["test"], f"{name}: other links are tested"
    pairs, labels = links.training_pairs()
    module = module.double().train()
    logits = module.decoder(module(x.double(), links.messages), pairs)
    F.binary_cross_entropy_with_logits(logits, labels.double()).backward()
    largest = max(parameter.grad.abs().max().item() for parameter in module.parameters())
    gradient = max((gradients[key] - parameter.grad).abs().max().item() for key, parameter in module.named_parameters()) / largest
    with torch.no_grad():
        after = after.eval()
        made = after.decoder(after(x, links.messages), torch.tensor(tested).T)
    told = torch.tensor([float(row[2]) for row in rows])
    outputs = ((made - told).abs() / told.abs().clamp_min(1)).max().item()
    ranks = torch.tensor([float(row[3]) for row in rows], dtype=torch.float64)
    print(f"{name:32}  {outputs:.1e}  {gradient:.1e}  {reciprocal:.4f}", flush=True)
    assert outputs <= TOLERANCE, f"{name}: scores differ by {outputs}"
    assert gradient <= TOLERANCE, f"{name}: gradients differ by {gradient}"
    assert 1 <= ranks.min() and ranks.max() <= 31, f"{name}: ranks among 30 are {ranks.min()}..{ranks.max()}"
    assert abs((1 / ranks).mean().item() - reciprocal) < 1e-6, f"{name}: MRR is not that of the ranks"


def main():
    bin_dir, graph = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    torch.set_num_threads(2)
    if not graph.is_dir():
        print(f"skipped: {graph} is not there")
        return SKIPPED
    x, edge_index = ogb.read_nodes(graph)
    links = Links(edge_index, x.size(0))
    print(f"{'links by':32}  scores   gradients  MRR")
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        with Daemon(bin_dir, work / "state", graph, import_as="graph") as daemon:
            for name, flags in JOBS.items():
                compare(daemon, work, x, links, name, flags)
    return 0


if __name__ == "__main__":
    sys.exit(main())
