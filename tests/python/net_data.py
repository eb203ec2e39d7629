"""Values for the modules of tests/python/nets.py."""

import torch
from torch_geometric.data import Batch, Data

_OF_FLOATS = ("nodes", "links")


def graph(generator, nodes, edges, floats):
    def draw(*size, to=9):
        return torch.randint(0, to, size, generator=generator)

    x = torch.randn(nodes, 5, generator=generator) if floats else draw(nodes)
    return Data(x=x, edge_index=draw(2, edges, to=nodes), edge_attr=draw(edges, to=4), pos=torch.randn(nodes, 3, generator=generator),
                y=torch.randn(1, generator=generator))


def example(floats=False):
    return graph(torch.Generator().manual_seed(1), 6, 10, floats)


def example_for(name):
    """Returns the data that a module of NETS is exported with."""
    given = example(floats=name in _OF_FLOATS)
    if name == "links":
        given.edge_label_index, given.y = torch.tensor([[0, 1], [2, 3]]), None
    return given


def another(name):
    """Returns values for a module in sizes other than those of its export, with the number of graphs and the largest
    graph's number of nodes."""
    generator = torch.Generator().manual_seed(2)
    sizes = [(4, 9)] if name in _OF_FLOATS else [(4, 9), (9, 17), (3, 4), (12, 31)]
    batch = Batch.from_data_list([graph(generator, *size, name in _OF_FLOATS) for size in sizes])
    values = {key: batch[key] for key in ("x", "edge_index", "edge_attr", "pos", "y", "batch")}
    values["edge_label_index"] = torch.randint(0, 4, (2, 6), generator=generator)
    return batch, {**values, "batch_size": len(sizes), "num_graphs": len(sizes), "max_num_nodes": 12}


def call(name, module, batch, values):
    if name == "of_data":
        return module(batch)
    return module(**{key: values[key] for key in module.forward.__code__.co_varnames if key in values})
