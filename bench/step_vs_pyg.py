"""Milliseconds a training step: Permafrost's daemon against PyG, side by side in one run.

Interleaved pairs: in each pair Permafrost trains one epoch, then PyG trains one epoch of the equal module (same data, batch
size, fused Adam, threads), once over batches collated beforehand and once through PyG's DataLoader. A step's time is an epoch's
training time over its steps; the first pair warms up and is not counted. Ratios are taken pair by pair. Permafrost's job runs two
epochs, of whose time the captures are taken off and given apart: a job pays them once, however long it is.

usage: step_vs_pyg.py BIN_DIR DATASET_DIR [--pairs 7] [--batch-size 32] [--hidden 64] [--layers 4] [--threads 2]
                      [--cache-policy freeze] [--json FILE]
"""

import argparse
import json
import pathlib
import statistics
import sys
import tempfile
import time

import torch
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "parity"))
import gine  # noqa: E402
from daemon import Daemon  # noqa: E402
import ogb  # noqa: E402


class Permafrost:
    def __init__(self, arguments, work):
        self.arguments = arguments
        self.daemon = Daemon(arguments.bin_dir, work, arguments.dataset, arguments.threads)
        self.jobs = 0

    def epoch(self):
        """Milliseconds of a step of a short job, waiting for batches included and captures not; and those of the captures."""
        name = f"bench-{self.jobs}"
        self.jobs += 1
        a = self.arguments
        self.daemon.client("job", "submit", "--id", name, "--dataset", "set", "--epochs", 2, "--batch-size", a.batch_size,
                           "--hidden", a.hidden, "--layers", a.layers, "--cache-policy", a.cache_policy, "--watch")
        job, cache = self.daemon.json("job", "show", name), self.daemon.json("cache", "show", name)
        captures = 1e3 * sum(mode.get("captureSeconds", 0) for mode in cache["statistics"])
        return job["result"]["meanStepMilliseconds"] - captures / int(job["progress"]["step"]), captures

    def export(self, path):
        self.daemon.client("job", "export", f"bench-{self.jobs - 1}", "--artifact", "last-weights", "--to", path)

    def stop(self):
        self.daemon.stop()


class Pyg:
    def __init__(self, module, arguments):
        torch.set_num_threads(arguments.threads)
        graphs = ogb.read(arguments.dataset)
        train = [graphs[i] for i in ogb.split(arguments.dataset, "train")]
        self.module = module.train()
        # Embedding tables with few rows, and no value read back in a step: PyG at its best on CPU.
        self.optimizer = torch.optim.Adam(module.parameters(), lr=1e-3, fused=True)
        order = torch.randperm(len(train)).tolist()
        size = arguments.batch_size
        self.batches = [ogb.collate([train[i] for i in order[b : b + size]]) for b in range(0, len(order), size)]
        self.loader = DataLoader([Data(**g) for g in train], batch_size=size, shuffle=True)

    def _step(self, x, edge_index, edge_attr, batch, size, y):
        self.optimizer.zero_grad(set_to_none=True)
        loss = (self.module(x, edge_index, edge_attr, batch, size) - y).abs().mean()
        loss.backward()
        self.optimizer.step()

    def collated_epoch(self):
        begin = time.perf_counter()
        for batch in self.batches:
            self._step(*batch)
        return 1e3 * (time.perf_counter() - begin) / len(self.batches)

    def loader_epoch(self):
        begin = time.perf_counter()
        for b in self.loader:
            self._step(b.x, b.edge_index, b.edge_attr, b.batch, b.num_graphs, b.y)
        return 1e3 * (time.perf_counter() - begin) / len(self.loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("dataset", type=lambda p: pathlib.Path(p).resolve())
    for flag, value in (("--pairs", 7), ("--batch-size", 32), ("--hidden", 64), ("--layers", 4), ("--threads", 2)):
        parser.add_argument(flag, type=int, default=value)
    parser.add_argument("--cache-policy", default="freeze")
    parser.add_argument("--json", type=pathlib.Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        permafrost = Permafrost(arguments, work)
        try:
            permafrost.epoch()
            weights = pathlib.Path(work) / "weights.safetensors"
            permafrost.export(weights)
            pyg = Pyg(gine.load(weights), arguments)
            rows = []
            for pair in range(arguments.pairs + 1):
                step, captures = permafrost.epoch()
                row = {"permafrost": step, "captures": captures, "pyg": pyg.collated_epoch(), "pyg_loader": pyg.loader_epoch()}
                if pair > 0:
                    rows.append(row)
        finally:
            permafrost.stop()
    median = lambda values: statistics.median(values)
    result = {
        "pairs": arguments.pairs, "batch_size": arguments.batch_size, "hidden": arguments.hidden, "layers": arguments.layers,
        "threads": arguments.threads, "torch": torch.__version__,
        "milliseconds_per_step": {k: median([r[k] for r in rows]) for k in ("permafrost", "pyg", "pyg_loader")},
        "capture_seconds_per_job": median([r["captures"] / 1e3 for r in rows]),
        "pyg_over_permafrost": {k: median([r[k] / r["permafrost"] for r in rows]) for k in ("pyg", "pyg_loader")},
        "rows": rows,
    }
    print(f"{'':26}{'ms/step':>9}{'ratio':>8}   median of {arguments.pairs} interleaved pairs, {arguments.threads} threads")
    print(f"captures of a job, once: {result['capture_seconds_per_job']:.1f} s")
    print(f"{'Permafrost, with batching':26}{result['milliseconds_per_step']['permafrost']:9.2f}{1:8.2f}")
    for key, name in (("pyg", "PyG, collated before"), ("pyg_loader", "PyG with its DataLoader")):
        print(f"{name:26}{result['milliseconds_per_step'][key]:9.2f}{result['pyg_over_permafrost'][key]:8.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
