"""The encoder of Permafrost's models for node and edge features."""

import torch
from torch.nn import Embedding, Linear, ModuleList
from torch_geometric.nn.inits import glorot


class Encoder(torch.nn.Module):
    """The sum of one embedding for each categorical column (as in OGB's AtomEncoder), or a linear map of float
    columns."""

    def __init__(self, table, hidden):
        super().__init__()
        self.float_columns = table["float_columns"]
        self.learned_vector = not self.float_columns and not table["categories"]
        if self.float_columns:
            self.linear = Linear(self.float_columns, hidden)
        else:
            self.embeddings = ModuleList(Embedding(n, hidden) for n in table["categories"] or [1])
        self.reset_parameters()

    def reset_parameters(self):
        """Draws embeddings as the server draws them, by Glorot's rule. torch's default would be about ten times as
        large."""
        if self.float_columns:
            self.linear.reset_parameters()
            return
        for embedding in self.embeddings:
            glorot(embedding.weight)

    def forward(self, features, rows):
        if self.float_columns:
            return self.linear(features)
        if self.learned_vector:
            return self.embeddings[0].weight.expand(rows, -1)
        return sum(embedding(features[:, c]) for c, embedding in enumerate(self.embeddings))
