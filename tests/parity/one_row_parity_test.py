"""Compares a training step whose batch norms see one row with the PyG module with allow_single_element: gradients, and running statistics.

usage: python -m tests.parity.one_row_parity_test BIN_DIR TRIAL_DIR
  TRIAL_DIR: a set of graphs whose only training graph has one node (tests/trials/batch-norm-one-row/one)

Gradients are taken as in models_parity_test, from a step of SGD with learning rate 1.
"""

import pathlib
import sys
import tempfile

import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from tests.parity.daemon import Daemon

from permafrost import models

MODELS = {
    "gine": [], "gin": [], "gcn": [], "sage": [],
    "gin with a virtual node": ["--virtual-node"],
    "gcn with a virtual node, plain": ["--virtual-node", "--lowering", "plain"],
    "gin, plain": ["--lowering", "plain"],
    "gin, eager": ["--cache-policy", "never"],
    "gin, padded": ["--shapes", "ladder"],
}
STATISTICS = ("running_mean", "running_var", "num_batches_tracked")


def weights(daemon, work, job, *flags):
    daemon.train(job, "--dataset", "one", "--hidden", "8", "--layers", "3", "--batch-size", "4", "--optimizer", "sgd", "--loss", "mse",
                 "--seed", "6", *flags)
    daemon.client("job", "export", job, "--artifact", "last-weights", "--to", work / job)
    return work / job


def main():
    bin_dir, trial = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    x = torch.tensor([[float(v) for v in (trial / "raw" / "node-feat.csv").read_text().split("\n")[0].split(",")]])
    y = torch.tensor([[float((trial / "raw" / "graph-label.csv").read_text().split("\n")[0])]])
    no_edges, alone = torch.empty(2, 0, dtype=torch.int64), torch.zeros(1, dtype=torch.int64)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        with Daemon(bin_dir, work / "state", trial, import_as="one") as daemon:
            for number, (name, flags) in enumerate(MODELS.items()):
                flags = ["--model", name.split()[0].strip(","), *flags]
                before = weights(daemon, work, f"before-{number}", "--epochs", "1", "--lr", "1e-30", *flags)
                after = load_file(weights(daemon, work, f"after-{number}", "--epochs", "1", "--lr", "1", *flags))
                three = load_file(weights(daemon, work, f"three-{number}", "--epochs", "3", "--lr", "0.01", *flags))
                module = models.load(before)
                for key, value in module.state_dict().items():
                    if key.endswith(STATISTICS):
                        assert torch.equal(three[key], value), f"{name}: {key} is {three[key]} after three steps of one row"
                module = module.double().train()
                F.mse_loss(module(x.double(), no_edges, torch.empty(0, 0), alone, 1), y.double()).backward()
                first = load_file(before)
                largest = 0.0
                for key, parameter in module.named_parameters():
                    wanted = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                    torch.testing.assert_close((first[key] - after[key]).double(), wanted, rtol=1e-5, atol=1e-6, msg=lambda m, n=name, k=key: f"{n}: {k}: {m}")
                    largest = max(largest, wanted.abs().max().item())
                assert largest > 1e-3, f"{name}: no gradient"
                print(f"{name}: as PyG")
    return 0


if __name__ == "__main__":
    sys.exit(main())
