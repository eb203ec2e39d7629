"""PyG's side of `sets`: reads settings as JSON from standard input, writes {valid, test, seconds, version} as JSON, with one value for each
seed."""

import json
import sys
import time

import torch
import torch_geometric
from torch_geometric.data import Data

from bench import peer_training
from tests.parity import ogb


def main():
    settings = json.load(sys.stdin)
    torch.set_num_threads(settings["threads"])
    graphs = [Data(**graph) for graph in ogb.read(settings["dataset"])]
    parts = {name: [graphs[i] for i in ogb.split(settings["dataset"], name)] for name in ("train", "valid", "test")}
    begin = time.perf_counter()
    found = [peer_training.train(settings, parts, seed) for seed in settings["seeds"]]
    print(json.dumps({"valid": [valid for valid, _ in found], "test": [test for _, test in found],
                      "seconds": time.perf_counter() - begin, "version": f"PyG {torch_geometric.__version__}"}))


if __name__ == "__main__":
    main()
