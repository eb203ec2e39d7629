"""A few molecules of the ZINC sample in PyG's form, and a step of the server in PyTorch."""

import functools

import torch
from torch_geometric.data import Batch, Data

from tests.parity import ogb
from tests.python.conftest import ROOT

PARTS = {"train": range(40), "valid": range(40, 48), "test": range(48, 60)}


@functools.cache
def _graphs():
    return ogb.read(ROOT / "deploy" / "sample" / "zinc")[: PARTS["test"].stop]


def molecules():
    """Returns Data with x [nodes, 1] and edge_attr [edges], with each edge in both directions. All calls share the
    tensors."""
    return [Data(x=g["x"], edge_index=g["edge_index"], edge_attr=g["edge_attr"].squeeze(1), y=g["y"]) for g in _graphs()]


def batch_of(graphs):
    """Returns one batch with its edges sorted by target, as on the server, so that sums of messages are in one order."""
    batch = Batch.from_data_list(graphs)
    by_target = batch.edge_index[1].argsort(stable=True)
    batch.edge_index, batch.edge_attr = batch.edge_index[:, by_target], batch.edge_attr[by_target]
    return batch


def predict(module, batch):
    """Calls a forward that takes the batch's tensors by these names. Returns [graphs]."""
    return module(batch.x, batch.edge_index, batch.edge_attr, batch.batch, batch.num_graphs).flatten()


def order(graphs, seed, epoch):
    """Returns the server's order of an epoch: Fisher and Yates's shuffle by numbers of SplitMix64 (Steele, Lea, Flood
    2014)."""
    most = 2**64 - 1

    def mix(z):
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & most
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & most
        return z ^ (z >> 31)

    state = mix(mix(seed) ^ epoch)

    def below(bound):
        nonlocal state
        while True:
            state = (state + 0x9E3779B97F4A7C15) & most
            drawn = mix(state) & (2 ** (bound - 1).bit_length() - 1)
            if drawn < bound:
                return drawn

    shuffled = list(graphs)
    for i in range(len(shuffled), 1, -1):
        other = below(i)
        shuffled[i - 1], shuffled[other] = shuffled[other], shuffled[i - 1]
    return shuffled


def train(module, graphs, *, steps, learning_rate, seed):
    """Trains `steps` steps, each on all graphs at once, in the server's order. Returns the losses."""
    optimizer = torch.optim.Adam(module.parameters(), lr=learning_rate)
    module.train()
    losses = []
    for step in range(steps):
        batch = batch_of(order(graphs, seed, step))
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(predict(module, batch), batch.y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
