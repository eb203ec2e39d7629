"""The workloads of `compare`: the model, batch and data of each."""

import dataclasses
import json
import pathlib
import subprocess

from bench import tools, tu


@dataclasses.dataclass(frozen=True)
class Workload:
    """One workload. kind: `graphs` (many small ones), or `sampled` or `whole` (one large one). data: the path below --data; None means
    shipped or made here. epochs: the epochs of Permafrost's job, more than the rounds last."""

    name: str
    kind: str
    hidden: int
    layers: int
    batch_size: int
    loss: str
    data: str | None = None
    fan_outs: tuple = ()
    epochs: int = 1000
    model: str | None = None
    heads: int = 1

    @property
    def architecture(self):
        return self.model or {"graphs": "gine", "sampled": "sage", "whole": "gcn"}[self.kind]

    @property
    def title(self):
        batch = {"graphs": f"batches of {self.batch_size}", "sampled": f"{self.batch_size} seeds, fan-outs {self.fan_outs}", "whole": "the whole graph"}
        heads = f", {self.heads} heads" if self.heads > 1 else ""
        return f"{self.name}: {self.architecture.upper()}, {self.hidden} channels{heads}, {self.layers} layers, {batch[self.kind]}"

    def job_flags(self):
        """Returns the flags for `permafrost job submit`."""
        flags = ["--architecture", self.architecture, "--hidden", self.hidden, "--layers", self.layers, "--loss", self.loss, "--epochs", self.epochs]
        if self.heads > 1:
            flags += ["--heads", self.heads]
        if self.kind != "whole":
            flags += ["--batch-size", self.batch_size]
        return flags + (["--fan-out", ",".join(map(str, self.fan_outs))] if self.fan_outs else [])


def _small(name, epochs):
    """Makes a workload on a small set, whose epochs take milliseconds. The job's schedule covers only the first 2^25 graphs."""
    return Workload(name.lower(), "graphs", 64, 4, 32, "bce", f"tu/{name}.zip", epochs=epochs)


WORKLOADS = {workload.name: workload for workload in [
    Workload("zinc-gine-64", "graphs", 64, 4, 32, "l1"),
    Workload("zinc-gine-256", "graphs", 256, 4, 32, "l1"),
    Workload("zinc-gin-64", "graphs", 64, 4, 32, "l1", model="gin"),
    Workload("zinc-gatv2-64", "graphs", 64, 4, 32, "l1", model="gatv2", heads=4),
    _small("MUTAG", 200_000),
    _small("PROTEINS", 30_000),
    _small("IMDB-BINARY", 30_000),
    Workload("molhiv-gine-300", "graphs", 300, 5, 128, "bce", "graphs/molhiv", epochs=100),
    Workload("sage", "sampled", 64, 2, 1024, "cross-entropy", fan_outs=(15, 10), epochs=10_000),
    Workload("sage-musae", "sampled", 64, 2, 1024, "cross-entropy", "node/musae_git", fan_outs=(15, 10), epochs=10_000),
    Workload("gcn", "whole", 64, 2, 0, "cross-entropy", epochs=200_000),
    Workload("gcn-cora", "whole", 64, 2, 0, "cross-entropy", "node/cora", epochs=200_000),
    Workload("gatv2-cora", "whole", 64, 2, 0, "cross-entropy", "node/cora", epochs=200_000, model="gatv2", heads=8),
]}


def missing(workload, data):
    """Returns one line if the workload's data are missing, else None."""
    if workload.data is None or (data / workload.data).exists():
        return None
    return f"{data / workload.data} is not there; --data DIR names the folder of {workload.data}"


def _made(workload, arguments, tools_, python):
    """Makes a power-law graph of --nodes, --edges and --features. A graph that is trained whole has a tenth of the nodes and edges."""
    part = 10 if workload.kind == "whole" else 1
    size = {"nodes": arguments.nodes // part, "edges": arguments.edges // part, "features": arguments.features}
    flags = [str(word) for name, value in size.items() for word in (f"--{name}", value)]
    done = subprocess.run([python, "-m", "bench", "graph", *flags, "--work", tools_.work, "--output", "json"], cwd=tools.ROOT, check=True,
                          stdout=subprocess.PIPE, text=True)
    return pathlib.Path(json.loads(done.stdout)["folder"])


def folder(workload, arguments, tools_, python):
    """Returns the folder that Permafrost imports and the peers read."""
    if workload.data is None:
        return arguments.sample if workload.kind == "graphs" else _made(workload, arguments, tools_, python)
    path = arguments.data / workload.data
    return tu.folder(path, tools_.work) if path.suffix == ".zip" else path
