"""The PyG modules that equal Permafrost's models of one large graph: PyG's own convolutions, with the weights that `permafrost job export` wrote."""

import torch
from torch.nn import Embedding, Linear, ModuleList
from torch_geometric.nn.inits import reset
from torch_geometric.nn.models import GCN, GraphSAGE

from permafrost.models.encoder import Encoder
from permafrost.models.parts import NODE_CONVOLUTIONS, join, make_norm


class NodeModel(torch.nn.Module):
    """Works as PyG's BasicGNN: norm, ReLU and dropout follow every convolution except an output layer. Residuals are added between layers of
    `hidden_channels`. Jumping knowledge other than "last" ends in a linear layer."""

    def __init__(self, spec):
        super().__init__()
        hidden, layers, outputs = spec["hidden_channels"], spec["num_layers"], spec["out_channels"]
        self.dropout, self.input_dropout = spec["dropout"], spec.get("input_dropout", 0.0)
        self.normalize_features = spec.get("normalize_features", False)
        self.residual = spec.get("residual", False)
        self.jumping_knowledge = spec.get("jumping_knowledge", "last")
        joined = self.jumping_knowledge != "last"
        if spec.get("embedded_nodes", 0) > 0:
            self.embedding = Embedding(spec["embedded_nodes"], spec["in_channels"])
        edge = spec.get("edge")
        edge_channels = None
        if edge:
            edge_channels = hidden if edge["categories"] else edge["float_columns"]
        if edge and edge["categories"]:
            self.edge_encoder = Encoder(edge, hidden)
        make = NODE_CONVOLUTIONS[spec["architecture"]]
        self.convs = ModuleList()
        for layer in range(layers):
            is_output = layer + 1 == layers and not joined
            of_conv = {"heads": 1, **spec, "joins_heads": not is_output, "edge_channels": edge_channels}
            self.convs.append(make(spec["in_channels"] if layer == 0 else hidden, outputs if is_output else hidden, of_conv))
        self.norms = ModuleList(make_norm(spec.get("norm", "none"), hidden) for _ in range(layers if joined else layers - 1))
        if joined:
            self.lin = Linear(hidden * layers if self.jumping_knowledge == "cat" else hidden, outputs)

    def reset_parameters(self):
        """Draws new weights by the rules by which the server draws a job's first weights."""
        for part in self.children():
            reset(part)

    def forward(self, x, edge_index, edge_weight=None, edge_attr=None):
        """Returns the outputs of all nodes. x: the features. For a model that learned embeddings, x holds the nodes' numbers; None means all nodes.
        edge_attr: for a model that reads edge features; if it was trained on weights, they are its one column."""
        if hasattr(self, "embedding"):
            x = self.embedding.weight if x is None else self.embedding(x)
        elif self.normalize_features:
            sums = x.abs().sum(dim=1, keepdim=True)
            x = x / sums.where(sums > 0, torch.ones_like(sums))
        h = torch.nn.functional.dropout(x, self.input_dropout, self.training)
        weights = () if edge_weight is None else (edge_weight,)
        if edge_attr is not None:
            weights = (self.edge_encoder(edge_attr, edge_index.size(1)) if hasattr(self, "edge_encoder") else edge_attr,)
        outputs = []
        for layer, conv in enumerate(self.convs):
            out = conv(h, edge_index, *weights)
            if layer < len(self.norms):
                out = torch.nn.functional.dropout(self.norms[layer](out).relu(), self.dropout, self.training)
                if self.residual and layer > 0:
                    out = out + h
            h = out
            outputs.append(h)
        return self.lin(join(outputs, self.jumping_knowledge)) if hasattr(self, "lin") else h


class LinkDecoder(torch.nn.Module):
    """Computes logits of pairs [2, pairs] from the representations of their nodes: the dot product ("dot"), or two layers over the elementwise
    product ("mlp"), as in OGB's LinkPredictor."""

    def __init__(self, name, channels):
        super().__init__()
        self.name = name
        if name == "mlp":
            self.lins = ModuleList([Linear(channels, channels), Linear(channels, 1)])

    def reset_parameters(self):
        for part in self.children():
            reset(part)

    def forward(self, rows, pairs):
        product = rows[pairs[0]] * rows[pairs[1]]
        if self.name == "dot":
            return product.sum(dim=1)
        return self.lins[1](self.lins[0](product).relu()).squeeze(1)


PYG_MODELS = {"sage": GraphSAGE, "gcn": GCN}
# The values of options for which a model equals PyG's own.
PLAIN = {"residual": False, "jumping_knowledge": "last", "norm": "none", "aggregation": "mean", "input_dropout": 0, "normalize_features": False, "embedded_nodes": 0}


def build(spec):
    """Returns PyG's own model if one is equal, else a NodeModel; the names of weights are the same. For a job that predicts links, the module
    returns the nodes' representations, and its `decoder` scores pairs of them."""
    own = PYG_MODELS.get(spec["architecture"])
    if own is None or any(spec.get(option, value) != value for option, value in PLAIN.items()):
        module = NodeModel(spec)
    else:
        module = own(spec["in_channels"], spec["hidden_channels"], spec["num_layers"], spec["out_channels"], dropout=spec["dropout"])
    if spec.get("decoder"):
        module.decoder = LinkDecoder(spec["decoder"], spec["out_channels"])
    return module
