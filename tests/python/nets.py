"""Small modules of PyG's layers, as users write them, from which programs are exported."""

import torch
import torch_geometric.nn as gnn
from torch import nn
from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock

WIDTH = 8


def mlp(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, outputs), nn.ReLU(), nn.Linear(outputs, outputs))


class Net(nn.Module):
    """Has one layer of a convolution, as for molecules, and infers the number of graphs."""

    def __init__(self, conv, edges):
        super().__init__()
        self.nodes, self.bonds, self.edges = nn.Embedding(9, WIDTH), nn.Embedding(4, WIDTH), edges
        self.conv, self.norm = conv(), nn.BatchNorm1d(WIDTH)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, edge_attr, batch):
        h, e = self.nodes(x), self.bonds(edge_attr)
        h = self.norm(self.conv(h, edge_index, e) if self.edges else self.conv(h, edge_index)).relu()
        return self.head(gnn.global_add_pool(h, batch)).squeeze(-1)


class Gps(nn.Module):
    """Has a layer of attention over the nodes of each graph, in a dense batch."""

    def __init__(self):
        super().__init__()
        self.nodes = nn.Embedding(9, WIDTH)
        self.conv = gnn.GPSConv(WIDTH, gnn.GINConv(mlp(WIDTH, WIDTH)), heads=2)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, batch):
        return self.head(gnn.global_mean_pool(self.conv(self.nodes(x), edge_index, batch), batch)).squeeze(-1)


class Points(nn.Module):
    """PointNet++'s layer, with edges that the dataset holds."""

    def __init__(self):
        super().__init__()
        self.conv = gnn.PointNetConv(mlp(3, WIDTH), mlp(WIDTH, WIDTH), add_self_loops=False)
        self.head = nn.Linear(WIDTH, 2)

    def forward(self, pos, edge_index, batch):
        return self.head(gnn.global_max_pool(self.conv(None, pos, edge_index), batch))


class SchNet(nn.Module):
    """SchNet's interactions, by the lengths of the dataset's edges."""

    def __init__(self):
        super().__init__()
        self.nodes = nn.Embedding(9, WIDTH)
        self.distances = GaussianSmearing(0.0, 10.0, 6)
        self.interaction = InteractionBlock(WIDTH, 6, WIDTH, 10.0)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, pos, edge_index, batch, batch_size: int):
        h = self.nodes(x)
        weight = (pos[edge_index[0]] - pos[edge_index[1]] + 0.1).norm(dim=-1)
        h = h + self.interaction(h, edge_index, weight, self.distances(weight))
        return self.head(gnn.global_add_pool(h, batch, batch_size)).squeeze(-1)


class OwnConv(gnn.MessagePassing):
    """A layer that no library has."""

    def __init__(self):
        super().__init__(aggr="mean")
        self.gate, self.value = nn.Linear(2 * WIDTH, 1), nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, x, edge_index, edge_attr):
        return x + self.propagate(edge_index, x=x, e=edge_attr)

    def message(self, x_i, x_j, e):
        return self.gate(torch.cat([x_i, x_j], -1)).sigmoid() * (self.value(x_j) + e)


class DeeperGcn(nn.Module):
    """DeeperGCN's layers with residuals, normalised by graph."""

    def __init__(self):
        super().__init__()
        self.nodes, self.bonds = nn.Embedding(9, WIDTH), nn.Embedding(4, WIDTH)
        self.layers = nn.ModuleList(
            gnn.DeepGCNLayer(gnn.GENConv(WIDTH, WIDTH, aggr="softmax", learn_t=True, num_layers=2, norm="layer"), nn.LayerNorm(WIDTH),
                             nn.ReLU(), block="res+") for _ in range(2))
        self.norm = gnn.GraphNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, edge_attr, batch):
        h, e = self.nodes(x), self.bonds(edge_attr)
        for layer in self.layers:
            h = layer(h, edge_index, e)
        return self.head(gnn.global_mean_pool(self.norm(h, batch), batch)).squeeze(-1)


class OfData(nn.Module):
    """Takes a Data, reads its number of graphs, and has a loss of its own."""

    def __init__(self):
        super().__init__()
        self.nodes, self.conv = nn.Embedding(9, WIDTH), gnn.SAGEConv(WIDTH, WIDTH)
        self.norm = gnn.InstanceNorm(WIDTH)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, data):
        h = self.norm(self.conv(self.nodes(data.x), data.edge_index), data.batch)
        prediction = self.head(gnn.global_add_pool(h, data.batch, data.num_graphs)).squeeze(-1)
        return prediction, nn.functional.l1_loss(prediction, data.y)


class Sorted(nn.Module):
    """SortPooling, which takes the largest nodes of each graph from a dense batch."""

    def __init__(self):
        super().__init__()
        self.nodes, self.conv, self.pool = nn.Embedding(9, WIDTH), gnn.GraphConv(WIDTH, WIDTH), gnn.SortAggregation(k=3)
        self.head = nn.Linear(3 * WIDTH, 1)

    def forward(self, x, edge_index, batch):
        return self.head(self.pool(self.conv(self.nodes(x), edge_index), batch)).squeeze(-1)


class Inferred(nn.Module):
    """Infers sizes in the ways in which users do."""

    def __init__(self):
        super().__init__()
        self.nodes, self.pool, self.head = nn.Embedding(9, WIDTH), gnn.Set2Set(WIDTH, 2), nn.Linear(2 * WIDTH, 1)
        self.norms = nn.ModuleList([gnn.GraphSizeNorm(), gnn.LayerNorm(WIDTH), gnn.PairNorm(), gnn.MeanSubtractionNorm()])

    def forward(self, x, edge_index, batch):
        h = self.nodes(x)
        for norm in self.norms:
            h = norm(h, batch)
        graphs = int(batch.max()) + 1
        sums = h.new_zeros(graphs, WIDTH).index_add(0, batch, h)
        counts = h.new_zeros(batch[-1].item() + 1).index_add(0, batch, torch.ones_like(h[:, 0]))
        degrees = h.new_zeros(int(edge_index.max() + 1)).index_add(0, edge_index[1], h[edge_index[0], 0])
        h = h + degrees.unsqueeze(-1)
        return self.head(self.pool(h, batch)).squeeze(-1) + (sums / counts.unsqueeze(-1)).sum(-1)


class Nodes(nn.Module):
    """Classifies the nodes of one large graph, with dropout."""

    def __init__(self):
        super().__init__()
        self.first, self.second = gnn.GCNConv(5, WIDTH), gnn.GCNConv(WIDTH, 4, cached=True)

    def forward(self, x, edge_index, edge_weight=None):
        return self.second(nn.functional.dropout(self.first(x, edge_index, edge_weight).relu(), 0.0, self.training), edge_index)


class Links(nn.Module):
    """Scores pairs of nodes. Both layers share their weights, and the second layer's bias is not trained."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 5), nn.Linear(5, 5)
        self.second.weight = self.first.weight
        self.second.bias.requires_grad_(False)

    def forward(self, x, edge_index, edge_label_index):
        h = x.new_zeros(x.shape).index_add(0, edge_index[1], self.first(x)[edge_index[0]])
        h = self.second(h)
        return (h[edge_label_index[0]] * h[edge_label_index[1]]).sum(-1)


# One module for each thing that an export must handle. tests/program runs thirty of PyG's layers.
_PNA = (["mean", "min", "max", "std"], ["identity", "amplification", "attenuation"], torch.tensor([0, 10, 20, 30, 10]))
W = WIDTH
NETS = {
    "gine": lambda: Net(lambda: gnn.GINEConv(mlp(W, W)), True),
    "gcn": lambda: Net(lambda: gnn.GCNConv(W, W), False),
    "gat": lambda: Net(lambda: gnn.GATConv(W, W // 4, heads=4, edge_dim=W), True),
    "pna": lambda: Net(lambda: gnn.PNAConv(W, W, *_PNA, edge_dim=W), True),
    "cheb": lambda: Net(lambda: gnn.ChebConv(W, W, 3), False),
    "own": lambda: Net(OwnConv, True),
    "gps": Gps,
    "points": Points,
    "schnet": SchNet,
    "deepergcn": DeeperGcn,
    "of_data": OfData,
    "sorted": Sorted,
    "inferred": Inferred,
    "nodes": Nodes,
    "links": Links,
}
