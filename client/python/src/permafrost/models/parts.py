"""The parts of models for sets of graphs and for one large graph: convolutions and norms of PyG."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import Identity, Linear, ReLU, Sequential
from torch_geometric.nn import BatchNorm, GATv2Conv, GCNConv, GINConv, GINEConv, LayerNorm, SAGEConv
from torch_geometric.nn.models import MLP

Convolution = Callable[[int, int, Mapping[str, Any]], torch.nn.Module]


def _mlp(inputs: int, outputs: int) -> Sequential:
    return Sequential(Linear(inputs, outputs), ReLU(), Linear(outputs, outputs))


def _gatv2(inputs: int, outputs: int, spec: Mapping[str, Any]) -> GATv2Conv:
    heads = spec["heads"]
    joined = spec["joins_heads"]
    return GATv2Conv(
        inputs,
        outputs // heads if joined else outputs,
        heads,
        joined,
        dropout=spec.get("dropout", 0.0),
        edge_dim=spec["edge_channels"],
    )


# Convolutions by name. Beside a model's description, `spec` has joins_heads (whether the outputs of heads are
# concatenated) and edge_channels (the width of encoded edge features, or None without them).
SET_CONVOLUTIONS: dict[str, Convolution] = {
    "gine": lambda inputs, outputs, spec: GINEConv(_mlp(inputs, outputs)),
    "gin": lambda inputs, outputs, spec: GINConv(_mlp(inputs, outputs)),
    "gcn": lambda inputs, outputs, spec: GCNConv(inputs, outputs),
    "sage": lambda inputs, outputs, spec: SAGEConv(inputs, outputs, aggr=spec.get("aggregation", "mean")),
    "gatv2": _gatv2,
}
NODE_CONVOLUTIONS: dict[str, Convolution] = {
    **SET_CONVOLUTIONS,
    # GIN is built as in PyG's own GIN model.
    "gin": lambda inputs, outputs, spec: GINConv(MLP([inputs, outputs, outputs], norm=None)),
    "gine": lambda inputs, outputs, spec: GINEConv(
        MLP([inputs, outputs, outputs], norm=None), edge_dim=spec["edge_channels"]
    ),
}


def make_batch_norm(width: int) -> BatchNorm:
    """Normalises a batch of one row by the running statistics, as the server does."""
    return BatchNorm(width, allow_single_element=True)


def make_norm(name: str, width: int) -> torch.nn.Module:
    if name == "none":
        return Identity()
    return make_batch_norm(width) if name == "batch" else LayerNorm(width, mode="node")


def join(outputs: list[torch.Tensor], how: str) -> torch.Tensor:
    """Joins the outputs of all layers by jumping knowledge."""
    if how == "cat":
        return torch.cat(outputs, dim=1)
    return torch.stack(outputs).max(dim=0).values if how == "max" else outputs[-1]
