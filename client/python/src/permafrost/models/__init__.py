"""The PyG modules that equal the server's models. A file that `permafrost job export` wrote loads into its module by
the name and shape of every tensor. Needs torch, torch-geometric and safetensors, but neither a server nor gRPC.

MODULES has one entry for each model. The key is the level and the server's name of the architecture. The value makes
the module that an exported file's metadata describes.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch
from safetensors import safe_open

from permafrost.models import graph_sets, node2vec, nodes, parts

# The key begins with the level: "graph" for many small graphs, or "node" for one large graph.
MODULES: dict[tuple[str, str], Callable[[Mapping[str, Any]], torch.nn.Module]] = {
    **{("graph", name): graph_sets.GraphSetModel for name in parts.SET_CONVOLUTIONS},
    **{("node", name): nodes.build for name in parts.NODE_CONVOLUTIONS},
    ("node", "node2vec"): node2vec.NodeEmbedding,
}
# The options that these modules take from a description. If any other option is on, a newer server wrote the
# description, and the model may differ even where its weights have the same names.
_OPTIONS = {
    *("architecture", "level", "hidden_channels", "num_layers", "dropout", "heads", "norm", "residual"),
    *("jumping_knowledge", "virtual_node", "pooling", "num_targets", "node", "edge"),
    *("in_channels", "out_channels", "input_dropout", "normalize_features", "decoder", "embedded_nodes", "aggregation"),
    "node_inputs",
    *("walk_length", "context_size", "walks_per_node", "p", "q", "num_negative_samples"),
}
_OFF = (False, 0, None, "", "none")
# The values of `node_inputs` for which the server makes the nodes' inputs, in place of features.
MADE_INPUTS = ("degree", "constant")


def level_of(spec: Mapping[str, Any]) -> str:
    """Returns the level of a model. Descriptions of older servers do not have it, so it is then inferred."""
    return str(spec.get("level", "graph" if "pooling" in spec else "node"))


def build(spec: Mapping[str, Any]) -> torch.nn.Module:
    """Returns the module of a description, with newly drawn weights; `module.spec` is the description. Errors:
    ValueError if no module here equals the described model."""
    level, name = level_of(spec), spec["architecture"]
    make = MODULES.get((level, name))
    if make is None:
        known = ", ".join(f"{of} ({at})" for at, of in MODULES)
        raise ValueError(f"architecture: {name} ({level}) is none of {known}; a newer permafrost-client may know it")
    for option, value in spec.items():
        if option not in _OPTIONS and value not in _OFF:
            raise ValueError(f"{option}: {value!r}: this permafrost-client does not know it; a newer one may")
    module = make(spec)
    module.spec = dict(spec)
    return module


def reset_parameters(module: torch.nn.Module) -> None:
    """Draws all weights of a module from `build` anew, including its decoder's, by the rules by which the server
    draws a job's first weights. The numbers differ from the server's, because torch's generator draws them."""
    parts: list[Any] = [module, getattr(module, "decoder", None)]
    for part in parts:
        if part is not None:
            part.reset_parameters()


def load(path: str | os.PathLike[str]) -> torch.nn.Module:
    """Returns the module that an exported file's metadata describes, with its weights."""
    with safe_open(path, framework="pt") as file:
        module = build(json.loads(file.metadata()["permafrost.model"]))
        module.load_state_dict({name: file.get_tensor(name) for name in file.keys()}, strict=True)  # noqa: SIM118
    return module


def predict(module: torch.nn.Module, data: Any, pairs: torch.Tensor | None = None) -> torch.Tensor:
    """Returns outputs [graphs or nodes, outputs] for a Data or a list (or Dataset) of Data, in evaluation mode. If
    the model predicts links, returns logits [pairs] for `pairs` [2, pairs] of nodes, or the nodes' representations
    without `pairs`. Errors: ValueError if `pairs` are given for a model that predicts no links, or if the data lack
    edge features that the model reads."""
    from torch_geometric.data import Batch, Data

    decoder: Any = getattr(module, "decoder", None)
    if pairs is not None and decoder is None:
        raise ValueError("pairs: the model does not predict links; leave them out")
    graphs = data if isinstance(data, Data) else Batch.from_data_list(list(data))
    was_training = module.training
    module.eval()
    try:
        with torch.no_grad():
            rows = _call(module, graphs)
            return rows if pairs is None else decoder(rows, pairs)
    finally:
        module.train(was_training)


def _call(module: Any, graphs: Any) -> torch.Tensor:
    spec = module.spec
    if spec.get("embedded_nodes") and graphs.num_nodes != spec["embedded_nodes"]:
        embedded = spec["embedded_nodes"]
        raise ValueError(f"data: has {graphs.num_nodes} nodes, and the embeddings are of {embedded}")
    if spec["architecture"] == "node2vec":
        return module()
    if level_of(spec) == "node":
        return module(_node_rows(graphs, spec), graphs.edge_index, **_node_edges(graphs, spec))
    rows = graphs.num_nodes
    batch = graphs.batch if graphs.get("batch") is not None else torch.zeros(rows, dtype=torch.long)
    size = graphs.num_graphs if hasattr(graphs, "num_graphs") else 1
    made = spec.get("node_inputs") in MADE_INPUTS
    reads_edges = hasattr(module, "edge_encoder")
    return module(
        _encoded(_made(graphs, spec) if made else graphs.x, spec["node"], "x"),
        graphs.edge_index,
        _encoded(graphs.get("edge_attr"), spec["edge"], "edge_attr") if reads_edges else None,
        batch,
        size,
    )


def _node_rows(graphs: Any, spec: Mapping[str, Any]) -> torch.Tensor | None:
    """Returns the input of one large graph's nodes, [nodes, in_channels]. Returns None if the model has embeddings of
    its own."""
    if spec.get("embedded_nodes"):
        return None
    width = spec["in_channels"]
    if spec.get("node_inputs") == "degree":
        return torch.nn.functional.one_hot(_degrees(graphs, width - 1), width).float()
    x = _made(graphs, spec) if spec.get("node_inputs") == "constant" else graphs.x
    return _encoded(x, {"float_columns": width, "categories": []}, "x")


def _node_edges(graphs: Any, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Returns what the model of one large graph reads of the edges, by the name of its argument."""
    edge = spec.get("edge")
    if edge:
        name = "edge_weight" if edge["weights"] else "edge_attr"
        return {"edge_attr": _encoded(graphs.get(name), edge, name)}
    weights = graphs.get("edge_weight")
    return {} if weights is None or spec["architecture"] != "gcn" else {"edge_weight": weights}


def _made(graphs: Any, spec: Mapping[str, Any]) -> torch.Tensor:
    if spec["node_inputs"] == "constant":
        return torch.ones(graphs.num_nodes, 1)
    return _degrees(graphs, spec["node"]["categories"][0] - 1)


def _degrees(graphs: Any, cap: int) -> torch.Tensor:
    """Returns the in-degree of each node, [nodes], capped at `cap`."""
    return torch.bincount(graphs.edge_index[1], minlength=graphs.num_nodes).clamp(max=cap)


def _encoded(table: torch.Tensor | None, spec: Mapping[str, Any], name: str) -> torch.Tensor | None:
    """Returns a table as the encoder takes it: [rows, columns] of floats or categories. Returns None if the encoder
    reads no columns."""
    columns = spec["float_columns"] or len(spec["categories"])
    if columns == 0:
        return None
    if table is None:
        raise ValueError(f"data: has no {name}, which the model reads")
    if table.dim() != 2:
        # A -1 would fail for a graph without edges.
        table = table.reshape(table.size(0), math.prod(table.shape[1:]))
    if table.size(1) != columns:
        raise ValueError(f"data: {name} has {table.size(1)} columns, and the model reads {columns}")
    if spec["float_columns"]:
        return table.float()
    # The fraction of a non-finite value is not 0 either.
    broken = table[table.double().frac() != 0]
    if broken.numel():
        raise ValueError(f"data: {name}: {float(broken[0]):g} is no whole number, and the model reads categories")
    table = table.long()
    for column, most in enumerate(spec["categories"]):
        bad = table[(table[:, column] < 0) | (table[:, column] >= most), column]
        if bad.numel():
            told = f"{int(bad[0])} is outside 0..{most - 1}, the categories that were trained"
            raise ValueError(f"data: {name}: column {column}: {told}")
    return table
