"""PyG in a process of its own on any device, training the module that equals Permafrost's over batches that were made beforehand.

`python -m bench.peer_gpu SETTINGS` answers the commands of `bench.peer_pyg`, and `kernels STEPS`. SETTINGS are those of `bench.peer_pyg`
and `device`.

  pyg                   batches of their own shapes, which lie on the device before the clock starts
  pyg-graph             the whole step, with Adam, is one CUDA graph; a step copies its batch, on the device, into the graph's inputs
  pyg-reduce-overhead   torch.compile(mode="reduce-overhead")
  pyg-device            sampled: features lie on the device, and rows are gathered there
  pyg-pinned            sampled: features lie in the host's memory; rows are gathered into one of two pinned buffers, and copied

pyg-graph and pyg-reduce-overhead need one shape. Padding up to the largest batch belongs to a dummy graph and a dummy node, and batches
that are not full are left out. Batch norm sees the dummy's rows, so compare the times of these sides, not their losses.
"""

import dataclasses
import json
import sys
import time

import torch
import torch_geometric

from bench.peer_pyg import Batch, LeftOut, Peer, Sampled, serve

# The steps before the first turn, in which a side captures and compiles.
WARM_UP_STEPS = 12
STATIC = ("pyg-graph", "pyg-reduce-overhead")


class Drawn(Sampled):
    """Sampled batches that hold the ids of their nodes instead of the rows."""

    def collated(self, part):
        y = self.data["y"]
        return [self._batch(nodes, edges, y[nodes], node_counts[0], node_counts, edge_counts)
                for nodes, edges, node_counts, edge_counts in self.data[f"{part}_batches"]]


def filled(table, rows, value):
    return torch.cat([table, table.new_full((rows - table.size(0), *table.shape[1:]), value)])


def of_one_shape(batches):
    """Pads the full batches to one shape: the nodes and edges of the largest, plus one dummy node and one dummy graph, to which all padding
    belongs. Drops batches that are not full."""
    graphs = max(batch.counted for batch in batches)
    full = [batch for batch in batches if batch.counted == graphs]
    nodes, edges = (1 + max(b.inputs[0].size(0) for b in full), max(b.inputs[1].size(1) for b in full))

    def padded(batch):
        x, edge_index, edge_attr, of_graph, _ = batch.inputs
        return Batch((filled(x, nodes, 0), filled(edge_index.T, edges, nodes - 1).T.contiguous(), filled(edge_attr, edges, 0),
                      filled(of_graph, nodes, graphs), graphs + 1), batch.y, graphs, slice(graphs))

    return [padded(batch) for batch in full]


class Pinned:
    """Copies rows of a table in the host's memory to the device. Of two buffers, one is filled while the other is copied."""

    def __init__(self, table, rows, device):
        pin = device.type == "cuda"
        self.table, self.device = table, device
        self.buffers = [torch.empty(rows, table.size(1), dtype=table.dtype, pin_memory=pin) for _ in range(2)]
        self.copied = [torch.cuda.Event() for _ in range(2)] if pin else []

    def rows(self, ids):
        self.buffers.reverse()
        self.copied.reverse()
        if self.copied:
            self.copied[0].synchronize()
        gathered = torch.index_select(self.table, 0, ids, out=self.buffers[0][: len(ids)])
        rows = gathered.to(self.device, non_blocking=True)
        if self.copied:
            self.copied[0].record()
        return rows


class DevicePeer(Peer):
    DATA = Peer.DATA | {"sampled": Drawn}

    def __init__(self, settings):
        self.device = torch.device(settings["device"])
        self.on_gpu = self.device.type == "cuda"
        if self.device.index is not None:
            torch.cuda.set_device(self.device)
        super().__init__(settings)
        self.module.to(self.device).train()
        self.rows = None
        if settings["kind"] == "sampled":
            self._place_features(settings)
        if self.side in STATIC:
            self.train_batches = of_one_shape(self.train_batches)
        self.train_batches = [self._placed(batch) for batch in self.train_batches]
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=1e-3, fused=True, capturable=self.side == "pyg-graph")
        if self.side == "pyg-reduce-overhead":
            # Other backends, which are for rehearsal, have no mode.
            way = {"mode": "reduce-overhead"} if settings["compiler"] == "inductor" else {"backend": settings["compiler"]}
            self.call = torch.compile(self.module, **way)

    def _place_features(self, settings):
        x = torch.load(settings["data"])["x"]
        if self.side == "pyg-device":
            self.rows = x.to(self.device).__getitem__
        else:
            self.rows = Pinned(x, max(len(batch.inputs[0]) for batch in self.train_batches), self.device).rows

    def _placed(self, batch):
        """Moves a batch to the device, except ids that are looked up on the host."""
        to = lambda value: value.to(self.device) if isinstance(value, torch.Tensor) else value
        inputs = [to(value) for value in batch.inputs]
        if self.side == "pyg-pinned":
            inputs[0] = batch.inputs[0]
        return dataclasses.replace(batch, inputs=tuple(inputs), y=to(batch.y))

    def commands(self):
        return super().commands() | {"kernels": self.kernels}

    def _settle(self):
        if self.on_gpu:
            torch.cuda.synchronize()

    def _step(self, batch):
        if self.rows is not None:
            batch = dataclasses.replace(batch, inputs=(self.rows(batch.inputs[0]), *batch.inputs[1:]))
        super()._step(batch)

    def _capture(self):
        """Captures a step. Later steps replay it."""
        first = self.train_batches[0]
        kept = dataclasses.replace(first, inputs=tuple(v.clone() if isinstance(v, torch.Tensor) else v for v in first.inputs), y=first.y.clone())
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._step(kept)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step(kept)
        tensors = lambda batch: [value for value in (*batch.inputs, batch.y) if isinstance(value, torch.Tensor)]
        targets = tensors(kept)

        def replay(batch):
            for target, source in zip(targets, tensors(batch)):
                target.copy_(source)
            graph.replay()

        self._step = replay

    def prepare(self):
        begin = time.perf_counter()
        if self.side == "pyg-graph":
            self._capture()
        for _ in range(WARM_UP_STEPS):
            self._step(next(self.stream))
        self._settle()
        shapes = {tuple(batch.inputs[0].shape[:1]) + tuple(batch.inputs[1].shape[1:]) for batch in self.train_batches}
        return {"optimizer": "fused", "parameters": sum(p.numel() for p in self.module.parameters()), "batches": len(self.train_batches),
                "shapes": len(shapes), "warm_up_seconds": time.perf_counter() - begin,
                "version": f"PyG {torch_geometric.__version__}, torch {torch.__version__}"}

    def train(self, seconds):
        answer = super().train(seconds)
        return answer | {"device_bytes": torch.cuda.max_memory_reserved() if self.on_gpu else None}

    def kernels(self, steps):
        """Sums the seconds of a step's kernels, and of its copies to the device and within it, as CUPTI reports them."""
        if not self.on_gpu:
            raise LeftOut("not on this device: kernels are a GPU's")
        self._settle()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(int(steps)):
                self._step(next(self.stream))
            self._settle()
        of_device = [event for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA and not event.is_user_annotation]
        copies = [event for event in of_device if event.name.startswith(("Memcpy", "Memset"))]
        seconds = lambda events: sum(event.time_range.elapsed_us() for event in events) / 1e6 / steps
        if len(of_device) == len(copies):
            raise RuntimeError("the profiler saw no kernel")
        return {"kernels": (len(of_device) - len(copies)) / steps, "kernel_seconds": seconds(of_device) - seconds(copies),
                "copy_seconds": seconds(copies)}


def main():
    serve(DevicePeer, json.loads(sys.argv[1]))


if __name__ == "__main__":
    main()
