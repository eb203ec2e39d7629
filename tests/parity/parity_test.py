"""Tests that weights that Permafrost trained and exported, loaded into the equal PyG module, give Permafrost's predictions.

usage: python -m tests.parity.parity_test BIN_DIR DATASET_DIR
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


def train_and_export(bin_dir, dataset, work):
    """Runs the real daemon and client. Writes best.safetensors, last.safetensors and predictions.csv into `work`."""
    with Daemon(bin_dir, work / "state", dataset, import_as="sample") as daemon:
        daemon.train("parity", "--dataset", "sample", "--epochs", "2", "--batch-size", "64")
        daemon.client("job", "export", "parity", "--artifact", "best-weights", "--to", work / "best.safetensors")
        daemon.client("job", "export", "parity", "--artifact", "last-weights", "--to", work / "last.safetensors")
        daemon.client("job", "export", "parity", "--artifact", "test-predictions", "--to", work / "predictions.csv")


def main():
    bin_dir, dataset = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).resolve()
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        train_and_export(bin_dir, dataset, work)
        with open(work / "predictions.csv") as file:
            rows = list(csv.DictReader(file))
        ids = [int(row["graph"]) for row in rows]
        assert ids == ogb.split(dataset, "test"), "predictions are not those of the test split, in its order"
        graphs = ogb.read(dataset)
        batch = ogb.collate([graphs[i] for i in ids])
        predicted = torch.tensor([float(row["prediction_0"]) for row in rows])
        models.load(work / "last.safetensors")
        best = models.load(work / "best.safetensors").eval()
        # Other weights must give other predictions, or the comparison proves nothing.
        untrained = models.build(best.spec).eval()

        def difference(module):
            with torch.no_grad():
                return ((module(*batch[:5]).squeeze(1) - predicted).abs() / predicted.abs().clamp_min(1)).max().item()

        worst, control = difference(best), difference(untrained)
        print(f"{len(ids)} test graphs: largest relative difference {worst:.2e}; an untrained module differs by {control:.2f}")
        assert worst <= TOLERANCE, f"{worst} > {TOLERANCE}"
        assert control > 1e-2, "an untrained module predicts the same"


if __name__ == "__main__":
    main()
