"""Tests that node-level weights that Permafrost trained and exported, loaded into PyG's GraphSAGE and GCN, give Permafrost's predictions.

usage: python -m tests.parity.node_parity_test BIN_DIR DATASET_DIR     DATASET_DIR: a graph in OGB's node-property CSV layout
"""

import csv
import pathlib
import sys
import tempfile

import torch

from tests.parity import ogb
from tests.parity.daemon import Daemon

from permafrost import models

TOLERANCE = 1e-5
SKIPPED = 77

TRAINING = ["--loss", "cross-entropy", "--epochs", "5", "--lr", "0.01", "--hidden", "16", "--dropout", "0.3", "--layers", "2"]
# Predicts over the whole graph, as PyG does below. A sampled evaluation would see other neighbours.
SAMPLED = ["--fan-out", "15,10", "--batch-size", "64", "--layer-wise-eval"]
WHOLE = []
JOBS = {
    "sage-sampled": ["--architecture", "sage", *SAMPLED],
    "sage-whole": ["--architecture", "sage", *WHOLE],
    "gcn-sampled": ["--architecture", "gcn", *SAMPLED],
    "gcn-whole": ["--architecture", "gcn", *WHOLE],
}


def train_and_export(bin_dir, dataset, work):
    """Trains all jobs. Writes JOB.safetensors and JOB.csv into `work` for each."""
    with Daemon(bin_dir, work / "state", dataset, import_as="graph") as daemon:
        for job, flags in JOBS.items():
            daemon.train(job, "--dataset", "graph", *TRAINING, *flags)
            daemon.client("job", "export", job, "--artifact", "best-weights", "--to", work / f"{job}.safetensors")
            daemon.client("job", "export", job, "--artifact", "test-predictions", "--to", work / f"{job}.csv")


def read_predictions(path):
    """Returns the rows of the graph, and their predictions [rows, outputs]."""
    with open(path) as file:
        table = list(csv.reader(file))
    assert table[0][0] == "node", f"the first column is {table[0][0]}"
    return [int(row[0]) for row in table[1:]], torch.tensor([[float(value) for value in row[1:]] for row in table[1:]])


def compare(job, work, x, edge_index, test_rows):
    rows, predicted = read_predictions(work / f"{job}.csv")
    assert rows == test_rows, "predictions are not those of the test split, in its order"
    module = models.load(work / f"{job}.safetensors")
    spec = module.spec
    assert job.startswith(spec["architecture"]), f"{job} is a {spec['architecture']}"

    def difference(candidate):
        with torch.no_grad():
            made = candidate.eval()(x, edge_index)[rows]
        return ((made - predicted).abs() / predicted.abs().clamp_min(1)).max().item()

    # Other weights must give other predictions, or the comparison proves nothing.
    worst, control = difference(module), difference(models.build(spec))
    print(f"{job}: {len(rows)} test nodes: largest relative difference {worst:.2e}; an untrained module differs by {control:.2f}")
    assert worst <= TOLERANCE, f"{job}: {worst} > {TOLERANCE}"
    assert control > 1e-2, f"{job}: an untrained module predicts the same"


def main():
    bin_dir, dataset = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    if not dataset.is_dir():
        print(f"skipped: {dataset} is not there")
        return SKIPPED
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        train_and_export(bin_dir, dataset, work)
        x, edge_index = ogb.read_nodes(dataset)
        test_rows = ogb.split(dataset, "test")
        for job in JOBS:
            compare(job, work, x, edge_index, test_rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
