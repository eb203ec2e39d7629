"""The module that equals Permafrost's node2vec: the embedding of torch_geometric.nn.Node2Vec, under its name, without
the walks, for which that class needs pyg-lib."""

import torch
from torch_geometric.nn import Node2Vec


class NodeEmbedding(torch.nn.Module):
    """`embedding.weight` [nodes, channels]; `loss(pos_rw, neg_rw)` and `test` are Node2Vec's own. Its state loads into
    a Node2Vec of as many nodes and channels, and that one's into this."""

    EPS = 1e-15
    loss = Node2Vec.loss
    test = Node2Vec.test

    def __init__(self, spec):
        super().__init__()
        self.embedding_dim = spec["hidden_channels"]
        self.embedding = torch.nn.Embedding(spec["embedded_nodes"], spec["hidden_channels"])

    def reset_parameters(self):
        self.embedding.reset_parameters()

    def forward(self, batch=None):
        """The rows of the nodes in `batch`; None: of all."""
        return self.embedding.weight if batch is None else self.embedding(batch)
