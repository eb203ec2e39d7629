"""Modules as users of PyG write them for ZINC, which `bench/run programs` trains. Most have a convolution, batch norm and ReLU in each
layer, summed over each graph; some are more complex."""

import torch
import torch_geometric.nn as gnn
from torch import nn


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))


class Net(nn.Module):
    """A network of one kind of convolution. conv: makes a convolution of a given width. edges: whether the convolution takes edge features."""

    def __init__(self, conv, edges, hidden, layers):
        super().__init__()
        self.atoms, self.bonds = nn.Embedding(28, hidden), nn.Embedding(4, hidden) if edges else None
        self.convs = nn.ModuleList(conv(hidden) for _ in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, 1)

    def forward(self, x, edge_index, edge_attr, batch, batch_size: int):
        h = self.atoms(x.squeeze(-1))
        features = () if self.bonds is None else (self.bonds(edge_attr.squeeze(-1)),)
        for conv, norm in zip(self.convs, self.norms):
            h = norm(conv(h, edge_index, *features)).relu()
        return self.head(gnn.global_add_pool(h, batch, batch_size))


class Layers(nn.Module):
    """A network of layers that have their own norms and residuals."""

    def __init__(self, layer, hidden, layers):
        super().__init__()
        self.atoms, self.bonds = nn.Embedding(28, hidden), nn.Embedding(4, hidden)
        self.layers, self.head = nn.ModuleList(layer(hidden) for _ in range(layers)), nn.Linear(hidden, 1)

    def forward(self, x, edge_index, edge_attr, batch, batch_size: int):
        h, e = self.atoms(x.squeeze(-1)), self.bonds(edge_attr.squeeze(-1))
        for layer in self.layers:
            h = layer(h, edge_index, e)
        return self.head(gnn.global_mean_pool(h, batch, batch_size))


class Gps(Layers):
    """Adds attention over the nodes of each graph to message passing."""

    def forward(self, x, edge_index, edge_attr, batch, batch_size: int):
        h, e = self.atoms(x.squeeze(-1)), self.bonds(edge_attr.squeeze(-1))
        for layer in self.layers:
            h = layer(h, edge_index, batch, edge_attr=e)
        return self.head(gnn.global_mean_pool(h, batch, batch_size))


class OwnConv(gnn.MessagePassing):
    """A convolution that no library has."""

    def __init__(self, hidden):
        super().__init__(aggr="mean")
        self.gate, self.value, self.update_of = nn.Linear(2 * hidden, 1), nn.Linear(hidden, hidden, bias=False), nn.GRUCell(hidden, hidden)

    def forward(self, x, edge_index, edge_attr):
        return self.update_of(self.propagate(edge_index, x=x, e=edge_attr), x)

    def message(self, x_i, x_j, e):
        return self.gate(torch.cat([x_i, x_j], -1)).sigmoid() * (self.value(x_j) + e)


def deeper_gcn(hidden):
    conv = gnn.GENConv(hidden, hidden, aggr="softmax", learn_t=True, num_layers=2, norm="layer")
    return gnn.DeepGCNLayer(conv, nn.LayerNorm(hidden), nn.ReLU(), block="res+")


# The third entry is the histogram of in-degrees of ZINC's atoms.
_PNA = (["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"], torch.tensor([0, 41130, 117278, 70152, 3104]))
_WITH_EDGES = {
    "gine": lambda h: gnn.GINEConv(mlp(h, h)),
    "gat": lambda h: gnn.GATConv(h, h // 4, heads=4, edge_dim=h),
    "gatv2": lambda h: gnn.GATv2Conv(h, h // 4, heads=4, edge_dim=h),
    "transformer": lambda h: gnn.TransformerConv(h, h // 4, heads=4, edge_dim=h),
    "pna": lambda h: gnn.PNAConv(h, h, *_PNA, edge_dim=h),
    "resgated": lambda h: gnn.ResGatedGraphConv(h, h, edge_dim=h),
    "gen": lambda h: gnn.GENConv(h, h),
    "gen-softmax": lambda h: gnn.GENConv(h, h, aggr="softmax", learn_t=True),
    "nnconv": lambda h: gnn.NNConv(h, h, nn.Linear(h, h * h)),
    "general": lambda h: gnn.GeneralConv(h, h, in_edge_channels=h),
}
_WITHOUT_EDGES = {
    "gin": lambda h: gnn.GINConv(mlp(h, h), train_eps=True),
    "gcn": lambda h: gnn.GCNConv(h, h),
    "sage": lambda h: gnn.SAGEConv(h, h),
    "edgeconv": lambda h: gnn.EdgeConv(mlp(2 * h, h)),
    "tag": lambda h: gnn.TAGConv(h, h),
    "cheb": lambda h: gnn.ChebConv(h, h, 3),
    "graphconv": lambda h: gnn.GraphConv(h, h),
}
_LAYERS = {
    "deeper-gcn": (Layers, deeper_gcn),
    "own": (Layers, OwnConv),
    "gps": (Gps, lambda h: gnn.GPSConv(h, gnn.GINEConv(mlp(h, h)), heads=4)),
}
NAMES = (*_WITH_EDGES, *_WITHOUT_EDGES, *_LAYERS)


def make(name, hidden, layers):
    if name in _LAYERS:
        kind, layer = _LAYERS[name]
        return kind(layer, hidden, layers)
    return Net({**_WITH_EDGES, **_WITHOUT_EDGES}[name], name in _WITH_EDGES, hidden, layers)
