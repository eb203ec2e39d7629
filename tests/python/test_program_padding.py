"""Tests modules whose batches are padded to a ladder of shapes, as on devices that compile for each shape. They must train as at
exact shapes."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from torch import nn
from torch_geometric.data import Data

from bench import module_nets
from tests.python import zinc

pytestmark = pytest.mark.usefixtures("one_thread")

WIDTH, LAYERS, EPOCHS, BATCH, RUNGS = 8, 2, 3, 8, 2
LADDER = {"policy": "freeze", "shapes": "ladder", "rungs": RUNGS}
# Modules that fail on padded batches, because they cannot hold a graph larger than the set's largest.
EXACT = {"gps": "it fails on a padded batch"}


@pytest.fixture(scope="module")
def molecules(client):
    client.datasets.import_pyg(zinc.molecules(), "zinc-padded", splits=zinc.PARTS, progress=False)
    return "zinc-padded"


def submit(client, dataset, module, *, cache=None, **spec):
    """Submits a job. module: a module of PyTorch, or a job whose exported program is used again."""
    spec = {"epochs": EPOCHS, "batch_size": BATCH, "loss": "mse", "optimizer": "sgd", "learning_rate": 1e-4, "seed": 4, **spec}
    if not isinstance(module, nn.Module):
        return client.jobs.submit(dataset, program=module.proto.spec.model.program, graph_cache=cache or {}, **spec).wait()
    return client.jobs.submit(dataset, module, graph_cache=cache or {}, **spec).wait()


def losses_of(job):
    return torch.tensor([[epoch["train_loss"], epoch["valid_loss"]] for epoch in job.epochs()])


def relative(made, wanted):
    return ((made - wanted).abs() / wanted.abs()).max().item()


def check_padded(client, job):
    """Checks that a few executables served all batches, and that batches had more than the least padding."""
    for stats in client.cache(job).stats().values():
        assert not stats["dynamic"]
        assert 1 <= stats["captures"] <= RUNGS
        assert (stats["misses"], stats["eager_steps"], stats["audit_failures"]) == (0, 0, 0)
    train = client.cache(job).stats()["train"]
    assert train["padding_nodes"] > 2 * (train["padded_hits"] + train["hits"])
    assert job.notes == []


# The other modules differ only in what they compute for each edge.
@pytest.mark.parametrize("name", ["gine", "gatv2", "pna", "edgeconv", "gen-softmax", "gcn", "deeper-gcn", "gps"])
def test_padded_batches_train_as_exact_ones(name, client, molecules):
    torch.manual_seed(3)
    module = module_nets.make(name, WIDTH, LAYERS)
    exact = submit(client, molecules, module)
    if name in EXACT:
        with pytest.warns(UserWarning, match=f"the program's batches are not padded, because {EXACT[name]}"):
            padded = submit(client, molecules, exact, cache=LADDER)
        assert client.cache(padded).stats()["train"]["rungs"] == 0
    else:
        padded = submit(client, molecules, exact, cache=LADDER)
        check_padded(client, padded)
    losses = losses_of(padded)
    assert relative(losses, losses_of(exact)) < 1e-4
    assert losses[-1, 0] != losses[0, 0]


class Norms(nn.Module):
    """Has batch norms of nodes, edges and graphs, without affine maps and without running statistics."""

    def __init__(self, **options):
        super().__init__()
        self.atoms, self.bonds = nn.Embedding(28, WIDTH), nn.Embedding(4, WIDTH)
        self.conv, self.head = gnn.GINEConv(module_nets.mlp(WIDTH, WIDTH)), nn.Linear(WIDTH, 1)
        self.norms = nn.ModuleList(nn.BatchNorm1d(WIDTH, **options) for _ in range(3))

    def forward(self, x, edge_index, edge_attr, batch, num_graphs: int):
        e = self.norms[0](self.bonds(edge_attr.squeeze(-1)))
        h = self.norms[1](self.conv(self.atoms(x.squeeze(-1)), edge_index, e))
        return self.head(self.norms[2](gnn.global_add_pool(h.relu(), batch, num_graphs)))


@pytest.mark.parametrize("options", [{}, {"affine": False}, {"track_running_stats": False}, {"momentum": 0.5}])
def test_batch_norms_see_real_rows_alone(options, client, molecules):
    torch.manual_seed(3)
    module = Norms(**options)
    exact = submit(client, molecules, module)
    padded = submit(client, molecules, exact, cache=LADDER)
    check_padded(client, padded)
    assert relative(losses_of(padded), losses_of(exact)) < 1e-4
    one, two = exact.load_into(Norms(**options)).state_dict(), padded.load_into(Norms(**options)).state_dict()
    for key in one:
        torch.testing.assert_close(two[key], one[key], rtol=1e-3, atol=1e-4)


class Mixing(nn.Module):
    """Reads rows of other graphs in one of several ways."""

    def __init__(self, way):
        super().__init__()
        self.way, self.atoms, self.head = way, nn.Embedding(28, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, edge_attr, batch, num_graphs: int):
        h = self.atoms(x.squeeze(-1))
        if self.way == "mean":
            h = h - h.mean(0)
        elif self.way == "count":
            h = h / x.size(0)
        elif self.way == "last":
            h = h + h[-1]
        return self.head(gnn.global_add_pool(h, batch, num_graphs))


@pytest.mark.parametrize("way", ["mean", "count", "last"])
def test_what_reads_other_rows_is_run_at_exact_shapes_and_told(way, client, molecules):
    torch.manual_seed(3)
    module = Mixing(way)
    exact = submit(client, molecules, module)
    with pytest.warns(UserWarning, match="the program's batches are not padded, because its prediction in training"):
        padded = submit(client, molecules, exact, cache=LADDER)
    assert "each shape of a batch has an executable of its own" in padded.notes[0]
    train = client.cache(padded).stats()["train"]
    assert train["rungs"] == 0 and train["captures"] > RUNGS
    assert relative(losses_of(padded), losses_of(exact)) < 1e-4


class OwnLoss(nn.Module):
    """Returns its own loss. masked: leaves out missing labels."""

    def __init__(self, masked):
        super().__init__()
        self.masked, self.atoms, self.head = masked, nn.Embedding(28, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, edge_attr, batch, num_graphs: int, y):
        h = self.head(gnn.global_add_pool(self.atoms(x.squeeze(-1)), batch, num_graphs))
        h, y = h.flatten(), y.flatten()
        if not self.masked:
            return h, (h - y).square().mean()
        known = ~y.isnan()
        return h, torch.where(known, (h - y.nan_to_num()).square(), 0.0).sum() / known.sum()


def test_a_loss_of_the_module_is_padded_if_it_leaves_out_missing_labels(client, molecules):
    torch.manual_seed(3)
    for masked in (True, False):
        module = OwnLoss(masked)
        exact = submit(client, molecules, module, loss="l1")
        if masked:
            padded = submit(client, molecules, exact, cache=LADDER, loss="l1")
            check_padded(client, padded)
        else:
            with pytest.warns(UserWarning, match="not padded, because its .* in training"):
                padded = submit(client, molecules, exact, cache=LADDER, loss="l1")
        assert relative(losses_of(padded), losses_of(exact)) < 1e-4


class OfNodes(nn.Module):
    def __init__(self, conv, dropout=0.0):
        super().__init__()
        self.first, self.norm, self.second, self.dropout = conv(6, WIDTH), nn.BatchNorm1d(WIDTH), conv(WIDTH, 3), dropout

    def forward(self, x, edge_index):
        h = torch.nn.functional.dropout(self.norm(self.first(x, edge_index)).relu(), self.dropout, self.training)
        return self.second(h, edge_index)


@pytest.fixture(scope="module")
def nodes(client):
    torch.manual_seed(5)
    count = 300
    data = Data(x=torch.randn(count, 6), edge_index=torch.randint(0, count, (2, 1500)), y=torch.arange(count) % 3)
    data.edge_index = data.edge_index[:, data.edge_index[0] != data.edge_index[1]]
    kind = torch.arange(count) % 5
    data.train_mask, data.val_mask, data.test_mask = kind < 3, kind == 3, kind == 4
    client.datasets.import_pyg(data, "nodes-padded", progress=False)
    return "nodes-padded"


@pytest.mark.parametrize("conv", [gnn.SAGEConv, gnn.GCNConv, gnn.GATv2Conv])
def test_padded_blocks_train_as_exact_ones(conv, client, nodes):
    torch.manual_seed(3)
    module = OfNodes(conv)
    spec = {"loss": "cross_entropy", "fan_outs": [4, 3], "batch_size": 32, "learning_rate": 0.1}
    exact = submit(client, nodes, module, **spec)
    padded = submit(client, nodes, exact, cache=LADDER, **spec)
    check_padded(client, padded)
    assert relative(losses_of(padded), losses_of(exact)) < 1e-4
    wanted, made = exact.predict(), padded.predict()
    assert set(made) == set(wanted)
    torch.testing.assert_close(torch.tensor([made[node] for node in wanted]), torch.tensor(list(wanted.values())), rtol=1e-3, atol=1e-4)


def test_dropout_in_padded_blocks_learns(client, nodes):
    torch.manual_seed(3)
    job = submit(client, nodes, OfNodes(gnn.SAGEConv, dropout=0.3), cache=LADDER, loss="cross_entropy", fan_outs=[4, 3], batch_size=32,
                 learning_rate=0.1, epochs=20)
    check_padded(client, job)
    losses = losses_of(job)
    assert losses[-1, 0] < 0.95 * losses[0, 0]


def check_trains_padded(client, job):
    """Checks that a few executables served training. Links are evaluated outside the cache."""
    train = client.cache(job).stats()["train"]
    assert not train["dynamic"] and train["rungs"] == train["captures"] <= RUNGS
    assert (train["misses"], train["eager_steps"], train["audit_failures"]) == (0, 0, 0)
    assert train["padded_hits"] > 0 and not any("not padded" in note for note in job.notes)


def test_links_of_padded_blocks(client, nodes):
    torch.manual_seed(3)
    spec = {"link_prediction": {"valid_part": 0.1, "test_part": 0.1}, "loss": None, "fan_outs": [4, 3], "batch_size": 64, "learning_rate": 0.01}
    module = OfNodes(gnn.SAGEConv)
    exact = submit(client, nodes, module, **spec)
    padded = submit(client, nodes, exact, cache=LADDER, **spec)
    check_trains_padded(client, padded)
    assert relative(losses_of(padded), losses_of(exact)) < 1e-4


class Scorer(OfNodes):
    """Scores pairs of nodes itself."""

    def forward(self, x, edge_index, edge_label_index):
        source, target = super().forward(x, edge_index)[edge_label_index]
        return (source * target).sum(-1)


def test_scores_of_pairs_in_padded_blocks(client, nodes):
    torch.manual_seed(3)
    spec = {"link_prediction": {"valid_part": 0.1, "test_part": 0.1}, "loss": None, "fan_outs": [4, 3], "batch_size": 64, "learning_rate": 0.01}
    exact = submit(client, nodes, Scorer(gnn.SAGEConv), **spec)
    padded = submit(client, nodes, exact, cache=LADDER, **spec)
    check_trains_padded(client, padded)
    assert relative(losses_of(padded), losses_of(exact)) < 1e-4


def test_features_that_are_too_wide_for_a_trial_are_not_padded(client):
    torch.manual_seed(5)
    data = Data(x=torch.randn(60, 4100), edge_index=torch.stack([torch.arange(60), (torch.arange(60) + 1) % 60]), y=torch.arange(60) % 3)
    data.train_mask, data.val_mask, data.test_mask = torch.arange(60) < 40, torch.arange(60) // 10 == 4, torch.arange(60) >= 50
    client.datasets.import_pyg(data, "wide-padded", progress=False)

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = gnn.SAGEConv(4100, 3)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    with pytest.warns(UserWarning, match="not padded, because features of more than 4096 columns are not tried"):
        job = submit(client, "wide-padded", Wide(), cache=LADDER, loss="cross_entropy", fan_outs=[2], batch_size=16)
    assert job.state == "succeeded"
