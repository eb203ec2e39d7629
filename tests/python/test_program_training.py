"""Compares modules of the user's own, trained by the server, with PyTorch: equal losses, one executable for every shape, and the weights
back."""

import copy
import re
import subprocess

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from torch import nn
from torch_geometric.nn.models.schnet import GaussianSmearing, InteractionBlock

import permafrost
from bench import module_nets
from tests.python import zinc

pytestmark = pytest.mark.usefixtures("one_thread")

STEPS, WIDTH, LAYERS, LEARNING_RATE, SEED = 50, 8, 2, 0.001, 6
# Sums of batch norm and of the loss round differently from PyTorch's on one thread.
TOLERANCE = 1e-4
# These have layer norms instead of batch norms. A bias before batch norm has the gradient 0, but Adam makes full steps of the rounding that
# is left of it. Even PyTorch differs from itself by up to 5e-3 then, if it takes the same graphs in another order.
LAYER_NORMS = ("gine", "gin", "edgeconv", "resgated")
# These run eager, each because of an operator that the cache cannot record.
EAGER = {"masked": "aten::index +train +1 +the shape of its output depends on values"}


class Masked(nn.Module):
    """Removes edges by their features."""

    def __init__(self):
        super().__init__()
        self.atoms, self.conv, self.head = nn.Embedding(28, WIDTH), gnn.GraphConv(WIDTH, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, edge_attr, batch, batch_size: int):
        kept = edge_index[:, edge_attr.view(-1) > 1]
        return self.head(gnn.global_add_pool(self.conv(self.atoms(x.squeeze(-1)), kept).tanh(), batch, batch_size))


class SchNet(nn.Module):
    """SchNet's interaction, with a distance for each kind of bond."""

    def __init__(self):
        super().__init__()
        self.atoms, self.lengths = nn.Embedding(28, WIDTH), nn.Embedding(4, 1)
        self.distances, self.interaction = GaussianSmearing(0.0, 4.0, 6), InteractionBlock(WIDTH, 6, WIDTH, 10.0)
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, edge_attr, batch, batch_size: int):
        h, length = self.atoms(x.squeeze(-1)), self.lengths(edge_attr.view(-1)).abs().view(-1)
        h = h + self.interaction(h, edge_index, length, self.distances(length))
        return self.head(gnn.global_add_pool(h, batch, batch_size))


class Recurrent(nn.Module):
    """Uses a GRU whose state belongs to a node, an LSTM over the layers, and Set2Set, whose LSTM reads a graph's nodes repeatedly."""

    def __init__(self):
        super().__init__()
        self.atoms, self.conv, self.gru = nn.Embedding(28, WIDTH), gnn.GraphConv(WIDTH, WIDTH), nn.GRU(WIDTH, WIDTH)
        self.jump, self.pool, self.head = gnn.JumpingKnowledge("lstm", WIDTH, 3), gnn.Set2Set(WIDTH, 2), nn.Linear(2 * WIDTH, 1)

    def forward(self, x, edge_index, edge_attr, batch, batch_size: int):
        h = self.atoms(x.squeeze(-1))
        layers = [h]
        for _ in range(2):
            out, _ = self.gru(self.conv(layers[-1], edge_index).tanh().unsqueeze(0), layers[-1].unsqueeze(0).contiguous())
            layers.append(out.squeeze(0))
        return self.head(self.pool(self.jump(layers), batch, dim_size=batch_size))


class Norms(nn.Module):
    """Has norms by graph, and infers the number of graphs and the largest graph's size."""

    def __init__(self):
        super().__init__()
        self.atoms, self.conv, self.head = nn.Embedding(28, WIDTH), gnn.SAGEConv(WIDTH, WIDTH), nn.Linear(2 * WIDTH, 1)
        self.norms = nn.ModuleList([gnn.GraphNorm(WIDTH), gnn.InstanceNorm(WIDTH), gnn.PairNorm(), gnn.GraphSizeNorm()])

    def forward(self, x, edge_index, edge_attr, batch, batch_size: int):
        h = self.atoms(x.squeeze(-1))
        for norm in self.norms:
            h = norm(h + self.conv(h, edge_index).tanh(), batch)
        return self.head(torch.cat([gnn.global_mean_pool(h, batch), gnn.global_max_pool(h, batch)], -1))


def pna():
    """Returns PNA without "std". For a node with one neighbour, that would be the square root of the rounding left of a variance of 0."""
    degrees = torch.tensor([0, 41130, 117278, 70152, 3104])
    scalers = ["identity", "amplification", "attenuation"]
    return module_nets.Layers(lambda h: gnn.PNAConv(h, h, ["mean", "min", "max", "sum"], scalers, degrees, edge_dim=h), WIDTH, LAYERS)


OWN = {"pna": pna, "schnet": SchNet, "norms": Norms, "recurrent": Recurrent, "masked": Masked}
NAMES = sorted({*module_nets.NAMES, *OWN})


def make(name):
    torch.manual_seed(3)
    if name in OWN:
        return OWN[name]()
    module = module_nets.make(name, WIDTH, LAYERS)
    if name in LAYER_NORMS:
        module.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in module.norms)
    return module


@pytest.fixture(scope="module")
def molecules(client):
    """Imports the dataset "zinc-part", and returns its graphs."""
    graphs = zinc.molecules()
    client.datasets.import_pyg(graphs, "zinc-part", splits=zinc.PARTS, progress=False)
    return graphs


def submit(client, module):
    return client.jobs.submit("zinc-part", module, epochs=STEPS, batch_size=len(zinc.PARTS["train"]), loss="mse", optimizer="adam",
                              learning_rate=LEARNING_RATE, seed=SEED).wait()


def relative(made, wanted):
    return ((made - wanted).abs() / wanted.abs()).max().item()


@pytest.mark.parametrize("name", NAMES)
def test_trains_as_pytorch_does(name, client, server, molecules):
    module = make(name)
    job = submit(client, module)
    losses = [epoch["train_loss"] for epoch in job.epochs()]
    expected = zinc.train(copy.deepcopy(module), [molecules[i] for i in zinc.PARTS["train"]], steps=STEPS, learning_rate=LEARNING_RATE, seed=SEED)
    assert relative(torch.tensor(losses), torch.tensor(expected)) < TOLERANCE
    assert losses[-1] < 0.99 * losses[0]

    untrained = copy.deepcopy(module).eval()
    test = zinc.batch_of([molecules[i] for i in zinc.PARTS["test"]])
    job.load_into(module.eval())
    with torch.no_grad():
        made, before = zinc.predict(module, test), zinc.predict(untrained, test)
    predicted = torch.tensor([job.predict()[str(i)][0] for i in zinc.PARTS["test"]])
    assert (made - predicted).abs().max() < 1e-4 * predicted.abs().max()
    assert (before - predicted).abs().max() > 1e-2 * predicted.abs().max(), "an untrained module predicts the same"
    check_cache(name, client, server, job)


def explain(server, job):
    return subprocess.run([server.program.parent / "permafrost", "--server", server.target, "job", "explain", job.id], check=True,
                          stdout=subprocess.PIPE, text=True).stdout


def check_cache(name, client, server, job):
    modes = client.cache(job).stats()
    if name not in EAGER:
        for mode in ("train", "eval"):
            assert {of: modes[mode][of] for of in ("entries", "captures", "misses", "eager_steps")} == {
                "entries": 1, "captures": 1, "misses": 0, "eager_steps": 0}
            assert modes[mode]["dynamic"]
        assert modes["train"]["hits"] == STEPS
        told = explain(server, job)
        assert re.search(r"^[0-9.]+ ms +[0-9.]+ ms +[0-9.]+ % +\w+\.py:\d+ in ", told, re.MULTILINE), told
        return
    assert (modes["train"]["captures"], modes["train"]["eager_steps"]) == (0, STEPS)
    told = explain(server, job)
    assert re.search(f"^{EAGER[name]}", told, re.MULTILINE), told


class Dropping(nn.Module):
    def __init__(self):
        super().__init__()
        self.atoms, self.gru = nn.Embedding(28, WIDTH), nn.GRU(WIDTH, 1, num_layers=2, dropout=0.5)

    def forward(self, x, batch, batch_size: int):
        out, _ = self.gru(self.atoms(x.squeeze(-1)).unsqueeze(0))
        return gnn.global_add_pool(out.squeeze(0), batch, batch_size)


class Projecting(Dropping):
    def __init__(self):
        super().__init__()
        self.gru = nn.LSTM(WIDTH, 2, proj_size=1)


@pytest.mark.parametrize(("module", "line"), [(Dropping, "recurrent layers take dropout=0"), (Projecting, "use proj_size=0")])
def test_recurrent_layers_that_do_not_run_are_refused(module, line, client, molecules):
    with pytest.raises(permafrost.InvalidArgument, match=line):
        client.jobs.submit("zinc-part", module(), loss="l1", epochs=1)
