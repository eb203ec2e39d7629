"""The PyG modules that equal Permafrost's models for sets of graphs. A state dict exported by `permafrost job export` loads into them, strictly."""

import torch
from torch.nn import Dropout, Embedding, Linear, ModuleList, ReLU, Sequential
from torch.nn.functional import dropout
from torch_geometric.nn import global_add_pool, global_mean_pool
from torch_geometric.nn.inits import reset, zeros

from permafrost.models.encoder import Encoder
from permafrost.models.parts import SET_CONVOLUTIONS, join, make_batch_norm, make_norm


def reads_edges(spec):
    """Returns whether the model reads edge features. GINE always does, and GATv2 does if there are any."""
    has_features = spec["edge"]["float_columns"] > 0 or bool(spec["edge"]["categories"])
    return spec["architecture"] == "gine" or (spec["architecture"] == "gatv2" and has_features)


class GraphSetModel(torch.nn.Module):
    """Layers of convolution, norm, ReLU and dropout, as in OGB's models, followed by pooling and a head of two layers. In training every layer has
    dropout, including the last one, the end of the virtual node's MLP, and attention."""

    def __init__(self, spec):
        super().__init__()
        hidden, layers = spec["hidden_channels"], spec["num_layers"]
        self.pool = {"mean": global_mean_pool, "sum": global_add_pool}[spec["pooling"]]
        self.residual = spec.get("residual", False)
        self.jumping_knowledge = spec.get("jumping_knowledge", "last")
        self.dropout = spec.get("dropout", 0.0)
        self.node_encoder = Encoder(spec["node"], hidden)
        if reads_edges(spec):
            self.edge_encoder = Encoder(spec["edge"], hidden)
        of_conv = {"heads": 1, **spec, "joins_heads": True, "edge_channels": hidden if reads_edges(spec) else None}
        make = SET_CONVOLUTIONS[spec["architecture"]]
        self.convs = ModuleList(make(hidden, hidden, of_conv) for _ in range(layers))
        self.norms = ModuleList(make_norm(spec.get("norm", "batch"), hidden) for _ in range(layers))
        if spec.get("virtual_node", False):
            self.virtualnode_embedding = Embedding(1, hidden)
            self.mlp_virtualnode_list = ModuleList(
                Sequential(Linear(hidden, 2 * hidden), make_batch_norm(2 * hidden), ReLU(), Linear(2 * hidden, hidden),
                           make_batch_norm(hidden), ReLU(), Dropout(self.dropout))
                for _ in range(layers - 1)
            )
        joined = hidden * layers if self.jumping_knowledge == "cat" else hidden
        half = max(1, joined // 2)
        self.head = Sequential(Linear(joined, half), ReLU(), Linear(half, spec["num_targets"]))
        self.reset_parameters()

    def reset_parameters(self):
        """Draws new weights by the rules by which the server draws a job's first weights. The virtual node begins at 0."""
        for part in self.children():
            reset(part)
        if hasattr(self, "virtualnode_embedding"):
            zeros(self.virtualnode_embedding.weight)

    def forward(self, x, edge_index, edge_attr, batch, size):
        h = self.node_encoder(x, batch.numel())
        edges = ()
        if hasattr(self, "edge_encoder"):
            edges = (self.edge_encoder(edge_attr, edge_index.size(1)),)
        virtual = self.virtualnode_embedding.weight.expand(size, -1) if hasattr(self, "virtualnode_embedding") else None
        outputs = []
        for layer, (conv, norm) in enumerate(zip(self.convs, self.norms)):
            if virtual is not None:
                h = h + virtual[batch]
            out = dropout(norm(conv(h, edge_index, *edges)).relu(), self.dropout, self.training)
            if virtual is not None and layer + 1 < len(self.convs):
                made = self.mlp_virtualnode_list[layer](global_add_pool(h, batch, size) + virtual)
                virtual = made + virtual if self.residual else made
            h = out + h if self.residual else out
            outputs.append(h)
        return self.head(self.pool(join(outputs, self.jumping_knowledge), batch, size))
