"""PyG's own GraphSAGE and GCN with the weights that `permafrost job export` wrote for a node-level job, strictly."""

from torch_geometric.nn.models import GCN, GraphSAGE

MODULES = {"sage": GraphSAGE, "gcn": GCN}


def build(spec):
    """The module that an exported file's metadata describes, with weights of its own."""
    return MODULES[spec["architecture"]](spec["in_channels"], spec["hidden_channels"], spec["num_layers"],
                                         spec["out_channels"], dropout=spec["dropout"])
