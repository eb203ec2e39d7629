"""The PyG module that equals Permafrost's GINE: a state dict exported by `permafrost job export` loads into it, strictly."""

import torch
from torch.nn import Embedding, Linear, ModuleList, ReLU, Sequential
from torch_geometric.nn import BatchNorm, GINEConv, global_add_pool, global_mean_pool


class Encoder(torch.nn.Module):
    """Sum of one embedding a categorical column (as OGB's AtomEncoder), or a linear map of float columns."""

    def __init__(self, table, hidden):
        super().__init__()
        self.float_columns = table["float_columns"]
        self.learned_vector = not self.float_columns and not table["categories"]
        if self.float_columns:
            self.linear = Linear(self.float_columns, hidden)
        else:
            self.embeddings = ModuleList(Embedding(n, hidden) for n in table["categories"] or [1])

    def forward(self, features, rows):
        if self.float_columns:
            return self.linear(features)
        if self.learned_vector:
            return self.embeddings[0].weight.expand(rows, -1)
        return sum(embedding(features[:, c]) for c, embedding in enumerate(self.embeddings))


class GINE(torch.nn.Module):
    def __init__(self, spec):
        super().__init__()
        hidden = spec["hidden_channels"]
        self.pool = {"mean": global_mean_pool, "sum": global_add_pool}[spec["pooling"]]
        self.node_encoder = Encoder(spec["node"], hidden)
        self.edge_encoder = Encoder(spec["edge"], hidden)
        mlp = lambda: Sequential(Linear(hidden, hidden), ReLU(), Linear(hidden, hidden))  # noqa: E731
        self.convs = ModuleList(GINEConv(mlp()) for _ in range(spec["num_layers"]))
        self.norms = ModuleList(BatchNorm(hidden) for _ in range(spec["num_layers"]))
        half = max(1, hidden // 2)
        self.head = Sequential(Linear(hidden, half), ReLU(), Linear(half, spec["num_targets"]))

    def forward(self, x, edge_index, edge_attr, batch, size):
        h = self.node_encoder(x, batch.numel())
        e = self.edge_encoder(edge_attr, edge_index.size(1))
        for conv, norm in zip(self.convs, self.norms):
            h = norm(conv(h, edge_index, e)).relu()
        return self.head(self.pool(h, batch, size))
