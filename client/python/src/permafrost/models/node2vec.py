"""The module that equals Permafrost's node2vec. It has the embedding of torch_geometric.nn.Node2Vec under the same
name, but not the walks, for which that class needs pyg-lib."""

import torch
from torch_geometric.nn import Node2Vec


class NodeEmbedding(torch.nn.Module):
    """`embedding.weight` is [nodes, channels]; `loss(pos_rw, neg_rw)` and `test` are those of Node2Vec. A state dict
    of this class loads into a Node2Vec with as many nodes and channels, and the other way round."""

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
        """Returns the embeddings of the nodes in `batch`, or of all nodes if it is None."""
        return self.embedding.weight if batch is None else self.embedding(batch)
