"""Data that several tests import."""

import torch
from torch_geometric.data import Data


def molecules(count=60, targets=2):
    """Returns small graphs with float node features and categorical edge features, each edge in both directions."""
    generator = torch.Generator().manual_seed(0)
    graphs = []
    for i in range(count):
        nodes = 5 + i % 7
        edges = torch.randint(0, nodes, (2, 2 * nodes), generator=generator)
        edges = torch.cat([edges, edges.flip(0)], dim=1)
        graphs.append(Data(x=torch.randn(nodes, 4, generator=generator), edge_index=edges,
                           edge_attr=torch.randint(0, 3, (edges.size(1), 2), generator=generator),
                           y=torch.randn(1, targets, generator=generator)))
    return graphs


def citations(nodes=120):
    """Returns one graph of two classes, which features and neighbours reveal."""
    generator = torch.Generator().manual_seed(0)
    y = torch.arange(nodes) % 2
    ends = torch.randint(0, nodes, (2, 4 * nodes), generator=generator)
    ends = ends[:, (y[ends[0]] == y[ends[1]]) & (ends[0] != ends[1])]
    x = torch.randn(nodes, 8, generator=generator) + y.unsqueeze(1)
    part = torch.arange(nodes) % 4
    return Data(x=x, edge_index=torch.cat([ends, ends.flip(0)], dim=1), y=y, train_mask=part < 2, val_mask=part == 2,
                test_mask=part == 3)
