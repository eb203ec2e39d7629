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


# By name. A specification has, beside what a model's description says: joins_heads (whether the outputs of heads stand
# side by side) and edge_channels (of encoded edge features; None: there are none).
SET_CONVOLUTIONS: dict[str, Convolution] = {
    "gine": lambda inputs, outputs, spec: GINEConv(_mlp(inputs, outputs)),
    "gin": lambda inputs, outputs, spec: GINConv(_mlp(inputs, outputs)),
    "gcn": lambda inputs, outputs, spec: GCNConv(inputs, outputs),
    "sage": lambda inputs, outputs, spec: SAGEConv(inputs, outputs, aggr=spec.get("aggregation", "mean")),
    "gatv2": _gatv2,
}
NODE_CONVOLUTIONS: dict[str, Convolution] = {
    **SET_CONVOLUTIONS,
    # As PyG's own model of the first of these names has it.
    "gin": lambda inputs, outputs, spec: GINConv(MLP([inputs, outputs, outputs], norm=None)),
    "gine": lambda inputs, outputs, spec: GINEConv(
        MLP([inputs, outputs, outputs], norm=None), edge_dim=spec["edge_channels"]
    ),
}


def make_batch_norm(width: int) -> BatchNorm:
    """As the server trains it: a batch of one row is normalized by the running statistics."""
    return BatchNorm(width, allow_single_element=True)


def make_norm(name: str, width: int) -> torch.nn.Module:
    if name == "none":
        return Identity()
    return make_batch_norm(width) if name == "batch" else LayerNorm(width, mode="node")


def join(outputs: list[torch.Tensor], how: str) -> torch.Tensor:
    """Jumping knowledge: of each layer's output."""
    if how == "cat":
        return torch.cat(outputs, dim=1)
    return torch.stack(outputs).max(dim=0).values if how == "max" else outputs[-1]
