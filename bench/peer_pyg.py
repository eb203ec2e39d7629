"""PyG in a process of its own, training the module that equals Permafrost's as fast as PyG can on the CPU.

`python -m bench.peer_pyg SETTINGS` answers each line of its standard input with a line of JSON: `load`, `prepare`, then `train SECONDS` any
number of times. SETTINGS: side, kind, data (of bench/peer_data.py), weights (a file that `permafrost job export` wrote), loss, batch_size,
fan_outs, threads, compiler.

Sides: `pyg` has its batches before the clock starts, `pyg-loader` takes them from PyG's DataLoader or NeighborLoader, and `pyg-compile` is
`pyg` under torch.compile(dynamic=True). A graph that is trained whole is one batch, for which GCNConv computes degrees once.
"""

import dataclasses
import json
import statistics
import sys
import time

import torch
import torch_geometric
from torch.nn import functional as F
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader, NeighborLoader

from bench.process_memory import memory
from tests.parity import ogb

from permafrost import models

LOSSES = {"l1": F.l1_loss, "bce": F.binary_cross_entropy_with_logits, "cross-entropy": F.cross_entropy}


class LeftOut(Exception):
    """This side cannot run here; the message has one line."""


@dataclasses.dataclass
class Batch:
    """One batch. rows: the rows of the output that enter the loss; None means all. counted: the number of graphs or seed nodes."""

    inputs: tuple
    y: torch.Tensor
    counted: int
    rows: slice | torch.Tensor | None = None
    hops: dict = dataclasses.field(default_factory=dict)


class Graphs:
    def __init__(self, settings, data):
        self.size = settings["batch_size"]
        self.parts = {part: self._apart(found) for part, found in data.items()}

    @staticmethod
    def _apart(flat):
        cut = lambda name, counts, dim=0: flat[name].split(flat[counts], dim)
        return [{"x": x, "edge_index": e, "edge_attr": a, "y": y} for x, e, a, y in
                zip(cut("x", "nodes"), cut("edge_index", "edges", 1), cut("edge_attr", "edges"), flat["y"].split(1))]

    def collated(self, part):
        graphs = self.parts.pop(part)
        order = torch.randperm(len(graphs)).tolist()
        made = [ogb.collate([graphs[i] for i in order[b : b + self.size]]) for b in range(0, len(order), self.size)]
        return [Batch(inputs, y, inputs[4]) for *inputs, y in made]

    def loader(self, part):
        loader = DataLoader([Data(**g) for g in self.parts.pop(part)], batch_size=self.size, shuffle=part == "train")
        return Each(loader, lambda b: Batch((b.x, b.edge_index, b.edge_attr, b.batch, b.num_graphs), b.y, b.num_graphs))


class Sampled:
    def __init__(self, settings, data):
        self.settings, self.data = settings, data

    @staticmethod
    def _batch(x, edge_index, y, seeds, node_counts, edge_counts):
        # With these, each layer computes only the rows that later layers need.
        hops = {} if node_counts is None else {"num_sampled_nodes_per_hop": node_counts, "num_sampled_edges_per_hop": edge_counts}
        return Batch((x, edge_index), y[:seeds], seeds, slice(seeds), hops)

    def collated(self, part):
        x, y = self.data["x"], self.data["y"]
        return [self._batch(x[nodes], edges, y[nodes], node_counts[0], node_counts, edge_counts)
                for nodes, edges, node_counts, edge_counts in self.data[f"{part}_batches"]]

    def loader(self, part):
        d = self.data
        try:
            loader = NeighborLoader(Data(x=d["x"], edge_index=d["edge_index"], y=d["y"]), list(self.settings["fan_outs"]), d[part],
                                    batch_size=self.settings["batch_size"], shuffle=part == "train")
            next(iter(loader))
        except ImportError as error:
            raise LeftOut("NeighborLoader needs torch-sparse, which --install-sampler compiles") from error
        return Each(loader, lambda b: self._batch(b.x, b.edge_index, b.y, b.batch_size, b.get("num_sampled_nodes"), b.get("num_sampled_edges")))


class Whole:
    def __init__(self, settings, data):
        self.data = data

    def collated(self, part):
        d = self.data
        return [Batch((d["x"], d["edge_index"]), d["y"][d[part]], len(d[part]), d[part])]


class Each:
    """Iterates over a loader's batches, converted to Batch."""

    def __init__(self, loader, form):
        self.loader, self.form = loader, form

    def __iter__(self):
        return map(self.form, self.loader)

    def __len__(self):
        return len(self.loader)


class CompileClock:
    """Counts the seconds that torch.compile has spent so far, and the graphs that it made."""

    def __init__(self):
        from torch._dynamo.callback import callback_handler

        self.seconds, self.begin, self.depth = 0.0, 0.0, 0
        callback_handler.register_start_callback(self._start)
        callback_handler.register_end_callback(self._end)

    def _start(self, _):
        self.depth += 1
        if self.depth == 1:
            self.begin = time.perf_counter()

    def _end(self, _):
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.perf_counter() - self.begin

    def made(self):
        """Returns the number of compiled graphs and of graph breaks."""
        from torch._dynamo.utils import counters

        return {"graphs": counters["stats"]["unique_graphs"], "graph_breaks": sum(counters["graph_break"].values())}


class Peer:
    DATA = {"graphs": Graphs, "sampled": Sampled, "whole": Whole}

    def __init__(self, settings):
        torch.set_num_threads(settings["threads"])
        torch.manual_seed(1)
        self.side = settings["side"]
        data = self.DATA[settings["kind"]](settings, torch.load(settings["data"]))
        make = data.loader if self.side == "pyg-loader" else data.collated
        self.train_batches, self.valid_batches = make("train"), make("valid")
        del data
        self.module = self.load_module(settings)
        if settings["kind"] == "whole":
            for conv in self.module.convs:
                conv.cached = True
            with torch.no_grad():
                self.module(*self.train_batches[0].inputs)
        self.loss, self.call, self.clock = LOSSES[settings["loss"]], self.module, None
        if self.side == "pyg-compile":
            self.clock = CompileClock()
            self.call = torch.compile(self.module, dynamic=True, backend=settings["compiler"])
        self.stream = self._forever()

    def load_module(self, settings):
        return models.load(settings["weights"])

    def commands(self):
        """Returns the functions that `serve` calls, by command. Words after a command are numbers."""
        return {"prepare": self.prepare, "train": self.train}

    def _settle(self):
        """Waits for work that was started asynchronously. A CPU has finished it when a call returns."""

    def _forever(self):
        while True:
            yield from self.train_batches

    def _loss(self, batch):
        out = self.call(*batch.inputs, **batch.hops)
        return self.loss(out if batch.rows is None else out[batch.rows], batch.y)

    def _step(self, batch):
        self.optimizer.zero_grad(set_to_none=True)
        self._loss(batch).backward()
        self.optimizer.step()

    def _evaluate(self):
        """Returns the seconds of a pass over the validation split."""
        begin, total = time.perf_counter(), 0
        self.module.eval()
        with torch.no_grad():
            for batch in self.valid_batches:
                total += self._loss(batch) * batch.counted
        float(total)
        self.module.train()
        return time.perf_counter() - begin

    def _choose_optimizer(self):
        """Chooses Adam: the fused one, unless it is slower."""
        kept = {name: value.clone() for name, value in self.module.state_dict().items()}
        ways = {name: torch.optim.Adam(self.module.parameters(), lr=1e-3, **flags) for name, flags in
                (("fused", {"fused": True}), ("foreach", {"foreach": True}))}
        seconds = {name: [] for name in ways}
        for _ in range(15):
            for name, way in ways.items():
                begin = time.perf_counter()
                way.step()
                seconds[name].append(time.perf_counter() - begin)
        median = {name: statistics.median(values) for name, values in seconds.items()}
        # A difference of 5 % is noise of this measurement.
        best = "foreach" if median["foreach"] < 0.95 * median["fused"] else "fused"
        self.module.load_state_dict(kept)
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=1e-3, **{best: True})
        return best

    def prepare(self):
        self.module.train()
        self._loss(next(self.stream)).backward()
        optimizer = self._choose_optimizer()
        # The first evaluation warms up and compiles, and does not count.
        self._evaluate()
        return {"optimizer": optimizer, "parameters": sum(p.numel() for p in self.module.parameters()),
                "evaluation_seconds": min(self._evaluate() for _ in range(2)), "batches": len(self.train_batches),
                "version": f"PyG {torch_geometric.__version__}, torch {torch.__version__}"}

    def train(self, seconds):
        """Trains for the given seconds, but at least one step. Subtracts the time of compilation."""
        compiled = self.clock.seconds if self.clock else 0
        self._settle()
        begin, steps, counted = time.perf_counter(), 0, 0
        while steps == 0 or time.perf_counter() - begin < seconds:
            batch = next(self.stream)
            self._step(batch)
            steps += 1
            counted += batch.counted
        self._settle()
        spent = time.perf_counter() - begin
        now = self.clock.seconds if self.clock else 0
        rss, peak = memory("self")
        return {"steps": steps, "counted": counted, "seconds": spent - (now - compiled), "compile_seconds": now, "rss": rss, "peak": peak,
                "compiled": self.clock.made() if self.clock else None}


def serve(make, settings):
    """Answers the lines of standard input. `load` makes the peer, and all other lines are its commands."""
    peer = None
    for line in sys.stdin:
        command, *values = line.split()
        try:
            if command == "load":
                peer, answer = make(settings), {}
            else:
                answer = peer.commands()[command](*map(float, values))
        except LeftOut as why:
            answer = {"left_out": str(why)}
        except Exception as error:
            why = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            # A failure of the compiler is a finding. A failure of PyG itself is a fault of this benchmark.
            answer = {"left_out" if settings["side"] == "pyg-compile" and command == "prepare" else "error": why}
        print("\n" + json.dumps(answer), flush=True)


def main():
    serve(Peer, json.loads(sys.argv[1]))


if __name__ == "__main__":
    main()
