"""PyG's own GraphSAGE and GCN with the weights that `permafrost job export` wrote for a node-level job, strictly."""

import json

from safetensors import safe_open
from torch_geometric.nn.models import GCN, GraphSAGE

MODULES = {"sage": GraphSAGE, "gcn": GCN}


def build(spec):
    """The module that an exported file's metadata describes, with weights of its own."""
    return MODULES[spec["architecture"]](spec["in_channels"], spec["hidden_channels"], spec["num_layers"],
                                         spec["out_channels"], dropout=spec["dropout"])


def load(path):
    """The module with the file's weights; every tensor must match by name and shape. And its spec."""
    with safe_open(path, framework="pt") as file:
        spec = json.loads(file.metadata()["permafrost.model"])
        module = build(spec)
        module.load_state_dict({name: file.get_tensor(name) for name in file.keys()}, strict=True)
    return module, spec
