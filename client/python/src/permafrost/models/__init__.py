"""The PyG modules that equal the server's models: what `permafrost job export` wrote loads into them, by name and shape
of every tensor. Needs torch, torch-geometric and safetensors, and neither a server nor gRPC.

A model is one entry of MODULES: its level and the server's name of its architecture, what makes the module that the
metadata of an exported file describes, and the options that this module has one value of.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from safetensors import safe_open

from permafrost.models import gine, nodes


@dataclass(frozen=True)
class Entry:
    make: Callable[[Mapping[str, Any]], torch.nn.Module]
    # What a description must say, where it says it: another value would be another model under the same weights.
    fixed: Mapping[str, Any] = field(default_factory=dict)


_PLAIN = {"residual": False, "jumping_knowledge": "last", "virtual_node": False, "heads": 1}
# By level: what predicts, "graph" (many small graphs) or "node" (one large graph).
MODULES: dict[tuple[str, str], Entry] = {
    ("graph", "gine"): Entry(gine.GINE, {**_PLAIN, "norm": "batch"}),
    ("node", "sage"): Entry(nodes.build, {**_PLAIN, "norm": "none"}),
    ("node", "gcn"): Entry(nodes.build, {**_PLAIN, "norm": "none"}),
}


def level_of(spec: Mapping[str, Any]) -> str:
    """Of descriptions by older servers, too, which do not say it."""
    return str(spec.get("level", "graph" if "pooling" in spec else "node"))


def build(spec: Mapping[str, Any]) -> torch.nn.Module:
    """The module of a description, with weights of its own; `module.spec` is the description. Errors: ValueError for
    one that no module here is equal to."""
    level, name = level_of(spec), spec["architecture"]
    entry = MODULES.get((level, name))
    if entry is None:
        known = ", ".join(f"{of} ({at})" for at, of in MODULES)
        raise ValueError(f"architecture: {name} ({level}) is none of {known}; a newer permafrost-client may know it")
    for option, value in entry.fixed.items():
        if spec.get(option, value) != value:
            raise ValueError(f"{option}: {spec[option]!r}: the module of {name} ({level}) has {value!r} only")
    module = entry.make(spec)
    module.spec = dict(spec)
    return module


def load(path: str | os.PathLike[str]) -> torch.nn.Module:
    """The module that an exported file's metadata describes, with its weights."""
    with safe_open(path, framework="pt") as file:
        module = build(json.loads(file.metadata()["permafrost.model"]))
        module.load_state_dict({name: file.get_tensor(name) for name in file.keys()}, strict=True)  # noqa: SIM118
    return module


def predict(module: torch.nn.Module, data: Any) -> torch.Tensor:
    """Outputs [graphs or nodes, outputs] of a Data or a list (or Dataset) of Data, in evaluation mode."""
    from torch_geometric.data import Batch, Data

    graphs = data if isinstance(data, Data) else Batch.from_data_list(list(data))
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            return _call(module, graphs)
    finally:
        module.train(was_training)


def _call(module: Any, graphs: Any) -> torch.Tensor:
    x = graphs.x
    if level_of(module.spec) == "node":
        edge_weight = graphs.get("edge_weight")
        more = {} if edge_weight is None or module.spec["architecture"] != "gcn" else {"edge_weight": edge_weight}
        return module(_features(x.float(), module.spec), graphs.edge_index, **more)
    rows = graphs.num_nodes
    batch = graphs.batch if graphs.get("batch") is not None else torch.zeros(rows, dtype=torch.long)
    size = graphs.num_graphs if hasattr(graphs, "num_graphs") else 1
    return module(
        _columns(x, module.spec["node"]),
        graphs.edge_index,
        _columns(graphs.get("edge_attr"), module.spec["edge"]),
        batch,
        size,
    )


def _features(x: torch.Tensor, spec: Mapping[str, Any]) -> torch.Tensor:
    if not spec.get("normalize_features"):
        return x
    sums = x.abs().sum(dim=1, keepdim=True)
    return x / sums.where(sums > 0, torch.ones_like(sums))


def _columns(table: torch.Tensor | None, spec: Mapping[str, Any]) -> torch.Tensor | None:
    """As the encoder takes them: [rows, columns], floats or categories."""
    if table is None:
        return None
    table = table.reshape(table.size(0), -1)
    return table.float() if spec["float_columns"] else table.long()
