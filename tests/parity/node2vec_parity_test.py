"""Compares node2vec with PyG: the loss and the embeddings after one step, with Node2Vec.loss and torch's own optimizers on the same walks.
Also tests an exported job in Python, and that a job whose server is killed goes on to the bit.

usage: python -m tests.parity.node2vec_parity_test BIN_DIR GRAPH_DIR
  GRAPH_DIR: one large graph in OGB's node-property layout

The walks on a ring of edges in one direction are known without a draw. The nodes of negative walks are drawn here again, as the server
draws them.
"""


import pathlib
import signal
import sys
import tempfile
import time

import torch
from safetensors.torch import load_file, save_file
from torch_geometric.nn import Node2Vec

from tests.parity.daemon import Daemon
from tests.parity.links_parity_test import WORD, draws

from permafrost import models

TOLERANCE = 1e-5
SKIPPED = 77
PATIENCE = 120  # seconds
ENDED = ("STATE_SUCCEEDED", "STATE_FAILED", "STATE_CANCELLED")
NODES, CHANNELS, SEED = 37, 24, 5
LENGTH, CONTEXT, WALKS, NEGATIVES = 7, 4, 2, 3
RATE = 0.5
WALK_SEED, NEGATIVE_STREAM = 0x77616C6B73, 1 << 63
OPTIMIZERS = {
    "sparse-adam": lambda weights: torch.optim.SparseAdam(weights, lr=RATE),
    "adam": lambda weights: torch.optim.Adam(weights, lr=RATE),
    "sgd": lambda weights: torch.optim.SGD(weights, lr=RATE),
}


def write_ring(folder):
    (folder / "raw").mkdir(parents=True)
    (folder / "raw" / "num-node-list.csv").write_text(f"{NODES}\n")
    (folder / "raw" / "edge.csv").write_text("".join(f"{node},{(node + 1) % NODES}\n" for node in range(NODES)))
    (folder / "raw" / "node-feat.csv").write_text("0\n" * NODES)
    (folder / "raw" / "node-label.csv").write_text("0\n" * NODES)


def order_of_epoch():
    """Returns the order of the first epoch: all nodes in one batch, shuffled from the end. A draw beyond the bound is repeated."""
    nodes, random = list(range(NODES)), draws(SEED, 0)
    for left in range(NODES, 1, -1):
        mask = (1 << (left - 1).bit_length()) - 1
        place = next(draw & mask for draw in random if draw & mask < left)
        nodes[left - 1], nodes[place] = nodes[place], nodes[left - 1]
    return nodes


def walks_of_step():
    """Returns the walks of the first step: those along edges, and those of random nodes."""
    keys = draws(SEED ^ WALK_SEED, 0)
    next(keys)  # for the walks, which need no draws here
    key = next(keys) ^ NEGATIVE_STREAM
    starts = [node for node in order_of_epoch() for _ in range(WALKS)]
    positive = [[(start + i) % NODES for i in range(LENGTH)] for start in starts]
    negative = []
    for walk in range(len(starts) * NEGATIVES):
        random = draws(key & WORD, walk)
        negative.append([starts[walk // NEGATIVES], *(next(random) * NODES >> 64 for _ in range(LENGTH - 1))])
    return torch.tensor(positive), torch.tensor(negative)


def windows(walks):
    """Cuts walks into windows, as Node2Vec.pos_sample does."""
    return torch.cat([walks[:, j : j + CONTEXT] for j in range(LENGTH - CONTEXT + 1)])


def compare_step(daemon, work, initial, name):
    flags = ["--model", "node2vec", "--hidden", CHANNELS, "--walk-length", LENGTH, "--context-size", CONTEXT, "--walks-per-node", WALKS,
             "--negatives", NEGATIVES, "--batch-size", NODES, "--epochs", 1, "--lr", RATE, "--seed", SEED, "--optimizer", name,
             "--init-file", initial]
    job = daemon.train(f"one-{name}", "--dataset", "ring", *flags)
    file = work / f"{name}.safetensors"
    daemon.client("job", "export", f"one-{name}", "--artifact", "last-weights", "--to", file)
    trained = load_file(file)["embedding.weight"]

    module = models.load(file)
    assert isinstance(module, torch.nn.Module) and module.embedding.weight.equal(trained)
    module.embedding = torch.nn.Embedding(NODES, CHANNELS, sparse=name == "sparse-adam")
    module.load_state_dict(load_file(initial))
    optimizer = OPTIMIZERS[name](list(module.parameters()))
    positive, negative = walks_of_step()
    loss = Node2Vec.loss(module, windows(positive), windows(negative))
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        worst = (module.embedding.weight - trained).abs().max().item()
        moved = (trained - load_file(initial)["embedding.weight"]).abs().max().item()
    told = job["epochs"][0]["trainLoss"]
    print(f"{name}: loss {told:.6f}, of PyG {loss.item():.6f}; largest difference of embeddings {worst:.2e}, which moved by {moved:.2f}")
    assert abs(told - loss.item()) <= TOLERANCE * loss.item(), f"{told} is not {loss.item()}"
    assert moved > 1e-3 and worst <= TOLERANCE * max(1, moved), f"{name}: {worst}"


def wait_for_step(daemon, job, least):
    """Waits until the job has run `least` steps. Errors: RuntimeError if it ended before, or after two minutes."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        shown = daemon.json("job", "show", job)
        step = int(shown.get("progress", {}).get("step", 0))
        if shown["state"] in ENDED:
            raise RuntimeError(f"job {job} ended as {shown['state']} at step {step}; the test needs it to run at step {least}")
        if step >= least:
            return
        time.sleep(0.01)
    raise RuntimeError(f"job {job} is at step {step} as {shown['state']} after {PATIENCE} s; the test needs it to run at step {least}")


def undisturbed_and_killed(bin_dir, dataset, work):
    """Tests that a job that was stopped once and killed twice ends with the bits of an undisturbed job."""
    flags = ["--dataset", "graph", "--model", "node2vec", "--hidden", 64, "--epochs", 25, "--p", 0.5, "--q", 2]
    weights = {}
    state = work / "state"
    with Daemon(bin_dir, state, dataset, import_as="graph") as daemon:
        daemon.train("undisturbed", *flags)
        daemon.client("job", "export", "undisturbed", "--artifact", "last-weights", "--to", work / "undisturbed.safetensors")
        daemon.client("job", "submit", "--id", "killed", *flags)
        wait_for_step(daemon, "killed", 1)  # a job without a step has nothing to resume
    for _ in range(2):
        daemon = Daemon(bin_dir, state, dataset)
        before = int(daemon.json("job", "show", "killed").get("progress", {}).get("step", 0))
        wait_for_step(daemon, "killed", before + 21)
        daemon.process.send_signal(signal.SIGKILL)
        daemon.process.wait()
    with Daemon(bin_dir, state, dataset) as daemon:
        daemon.client("job", "wait", "killed")
        job = daemon.json("job", "show", "killed")
        daemon.client("job", "export", "killed", "--artifact", "last-weights", "--to", work / "killed.safetensors")
    for name in ("undisturbed", "killed"):
        weights[name] = load_file(work / f"{name}.safetensors")["embedding.weight"]
    print(f"killed: {job.get('resumes', 0)} resumes; equal bits: {weights['killed'].equal(weights['undisturbed'])}")
    assert int(job.get("resumes", 0)) == 3, "it was not killed while it ran"
    assert weights["killed"].equal(weights["undisturbed"])


def main():
    bin_dir, dataset = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    if not dataset.is_dir():
        print(f"skipped: {dataset} is not there")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="permafrost-") as folder:
        work = pathlib.Path(folder)
        write_ring(work / "ring")
        initial = work / "ring" / "initial.safetensors"
        generator = torch.Generator().manual_seed(1)
        save_file({"embedding.weight": torch.randn(NODES, CHANNELS, generator=generator)}, initial)
        with Daemon(bin_dir, work / "ring-state", work / "ring", import_as="ring", import_flags=["--directed"]) as daemon:
            for name in OPTIMIZERS:
                compare_step(daemon, work, initial, name)
        undisturbed_and_killed(bin_dir, dataset, work)
    return 0


if __name__ == "__main__":
    sys.exit(main())
