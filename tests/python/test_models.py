"""Compares the PyG modules with the server's models outside evaluation: initial weights, dropout, and inputs."""

import math

import pytest
import torch
from torch.nn import functional as F
from torch_geometric.data import Batch, Data

import permafrost
from permafrost import models
from tests.python.data import citations, molecules
from tests.python.test_jobs import TOLERANCE, difference

# So small a learning rate leaves the weights as they were drawn.
STILL = {"optimizer": "sgd", "learning_rate": 1e-30}


pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def sets(client):
    """Imports a set whose training split is one batch, and returns that batch."""
    graphs = molecules()
    client.datasets.import_pyg(graphs, "batch", splits={"train": range(40), "valid": range(40, 50), "test": range(50, 60)}, progress=False)
    return Batch.from_data_list(graphs[:40])


@pytest.fixture(scope="module")
def nodes(client):
    data = citations()
    client.datasets.import_pyg(data, "one-batch", progress=False)
    return data


# The model, its fields, and the places of the module that have dropout. The test must notice each place that alone does not drop.
DROPPING = [
    ("gine", {"virtual_node": True, "residual": True, "dropout": 0.7}, ["mlp_virtualnode_list"]),
    ("gine", {"virtual_node": True, "norm": "layer", "dropout": 0.9}, ["dropout"]),
    ("gatv2", {"norm": "layer", "num_layers": 1, "dropout": 0.9}, ["dropout", "convs"]),
]
DROPPING_NODES = [
    ("gatv2", {"heads": 2, "num_layers": 3, "dropout": 0.7}, ["convs"]),
    ("sage", {"norm": "layer", "dropout": 0.9}, ["dropout"]),
    ("gcn", {"input_dropout": 0.9}, ["input_dropout"]),
]
PASSES = 100


def keep(module, place):
    """Turns off dropout at a place."""
    part = getattr(module, place)
    if not isinstance(part, torch.nn.Module):
        setattr(module, place, 0.0)
        return
    for inner in part.modules():
        for name in ("p", "dropout"):
            if hasattr(inner, name):
                setattr(inner, name, 0.0)


def losses(module, loss):
    """Returns the logarithms of the losses of passes in training mode, each with other masks."""
    torch.manual_seed(1)
    module.train()
    with torch.no_grad():
        return torch.tensor([loss(module).item() for _ in range(PASSES)], dtype=torch.double).log()


def distance(a, b):
    """Returns the distance between the means, in standard errors."""
    return abs(a.mean() - b.mean()).item() / math.sqrt((a.var() + b.var()).item() / PASSES)


def compare_in_training(job, places, loss):
    """Compares the losses of both sides. The weights do not change, so losses differ only by masks, and both sides must spread around one
    mean."""
    served = torch.tensor([epoch["train_loss"] for epoch in job.wait().epochs()], dtype=torch.double).log()
    assert len(served) == PASSES
    assert served.std() > 0
    assert distance(losses(job.to_pyg("last"), loss), served) < 4
    for place in places:
        module = job.to_pyg("last")
        keep(module, place)
        assert distance(losses(module, loss), served) > 5, f"what {place} drops cannot be seen"


@pytest.mark.parametrize(("model", "fields", "places"), DROPPING)
def test_modules_of_sets_drop_where_the_server_drops(client, sets, model, fields, places):
    options = {"num_layers": 2, "pooling": "sum", "loss": "mse", "hidden_channels": 8, "batch_size": 40, "epochs": PASSES, "seed": 1}
    job = client.jobs.submit("batch", model, **{**options, **STILL, **fields})
    compare_in_training(job, places, lambda module: F.mse_loss(module(sets.x, sets.edge_index, sets.edge_attr, sets.batch, 40), sets.y))


@pytest.mark.parametrize(("model", "fields", "places"), DROPPING_NODES)
def test_modules_of_nodes_drop_where_the_server_drops(client, nodes, model, fields, places):
    options = {"hidden_channels": 8, "loss": "cross_entropy", "epochs": PASSES, "seed": 1}
    job = client.jobs.submit("one-batch", model, **{**options, **STILL, **fields})
    rows = nodes.train_mask
    compare_in_training(job, places, lambda module: F.cross_entropy(module(nodes.x, nodes.edge_index)[rows], nodes.y[rows]))


DRAWN = [
    ("batch", "gine", {"virtual_node": True}),
    ("batch", "gatv2", {"heads": 2}),
    ("batch", "gcn", {"norm": "layer"}),
    ("categories", "gin", {}),
    ("one-batch", "gatv2", {"heads": 2}),
    ("one-batch", "sage", {"jumping_knowledge": "cat", "norm": "batch"}),
    ("one-batch", "gcn", {}),
    ("one-batch", "gin", {"node_inputs": "learned"}),
    ("one-batch", "sage", {"link_prediction": {"decoder": "mlp", "valid_part": 0.2, "test_part": 0.2}}),
    ("categories-of-edges", "gine", {}),
    ("one-batch", "node2vec", {"walk_length": 5, "context_size": 3}),
]


def spread(values):
    return values.double().square().mean().sqrt().item()


@pytest.mark.parametrize(("dataset", "model", "fields"), DRAWN)
def test_modules_begin_with_weights_as_the_servers(client, sets, nodes, dataset, model, fields):
    """Compares each tensor's scale on both sides. For a uniform distribution, the standard deviation and the largest value determine it."""
    if dataset not in [known.id for known in client.datasets]:
        if dataset == "categories":
            client.datasets.import_pyg([Data(x=torch.arange(40) % 7, edge_index=graph.edge_index % 40, y=graph.y) for graph in molecules(30)],
                                       dataset, split_seed=1, progress=False)
        else:
            data = citations()
            data.edge_attr = torch.stack([data.edge_index.sum(dim=0) % 5, data.edge_index[0] % 3], dim=1)
            client.datasets.import_pyg(data, dataset, progress=False)
    still = STILL if model != "node2vec" else {"learning_rate": 1e-30}
    job = client.jobs.submit(dataset, model, epochs=1, hidden_channels=64, num_layers=None if model == "node2vec" else 3, seed=1, **still, **fields)
    module = job.wait().to_pyg("last")
    drawn = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
    torch.manual_seed(2)
    models.reset_parameters(module)
    assert drawn
    for name, parameter in module.named_parameters():
        # A tiny step turns a 0 into almost 0.
        made, served = parameter.detach(), drawn[name].where(drawn[name].abs() > 1e-20, 0)
        if served.min() == served.max() and served.numel() > 1:
            assert made.equal(served), name
            continue
        assert not made.equal(served), name
        if served.numel() >= 64:
            assert 0.75 < spread(made) / spread(served) < 1.33, name
            assert 0.75 < made.abs().max() / served.abs().max() < 1.33, name
    torch.manual_seed(2)
    built = models.build(module.spec)
    for name, parameter in built.named_parameters():
        if drawn[name].numel() >= 64:
            assert spread(parameter.detach()) == pytest.approx(spread(module.get_parameter(name).detach()), rel=0.33), name


@pytest.mark.parametrize("featured", [True, False])
@pytest.mark.parametrize("inputs", ["learned", "degree", "constant"])
@pytest.mark.parametrize("model", ["gcn", "sage", "gatv2"])
def test_a_graphs_module_makes_what_its_nodes_begin_with(client, nodes, model, inputs, featured):
    data = nodes if featured else Data(**{**nodes.to_dict(), "x": None}, num_nodes=nodes.num_nodes)
    name = "one-batch" if featured else "bare-graph"
    if name not in [dataset.id for dataset in client.datasets]:
        client.datasets.import_pyg(data, name, progress=False)
    options = {} if inputs == "learned" and not featured else {"node_inputs": inputs}
    job = client.jobs.submit(name, model, epochs=5, hidden_channels=8, learning_rate=0.02, **options).wait()
    assert job.to_pyg().spec.get("node_inputs", "learned") == inputs
    assert difference(job.predict(data), job.predict()) < TOLERANCE


@pytest.mark.parametrize("inputs", ["degree", "constant"])
def test_a_sets_module_makes_what_its_nodes_begin_with(client, sets, inputs):
    job = client.jobs.submit("batch", "gin", epochs=3, hidden_channels=8, num_layers=2, node_inputs=inputs).wait()
    bare = [Data(edge_index=graph.edge_index, num_nodes=graph.num_nodes) for graph in molecules()]
    assert difference(job.predict(bare), job.predict()) < TOLERANCE


@pytest.mark.parametrize(("dataset", "change", "told"), [
    ("one-batch", {"x": None}, "data: has no x, which the model reads"),
    ("one-batch", {"x": torch.zeros(120, 7)}, "data: x has 7 columns, and the model reads 8"),
    ("batch", {"x": None}, "data: has no x, which the model reads"),
    ("batch", {"edge_attr": None}, "data: has no edge_attr, which the model reads"),
    ("batch", {"edge_attr": torch.full((24, 2), 3)}, r"data: edge_attr: column 0: 3 is outside 0\.\.2, the categories that were trained"),
])
def test_data_that_does_not_fit_is_told_in_one_line(client, sets, nodes, dataset, change, told):
    model = "gcn" if dataset == "one-batch" else "gine"
    name = f"{dataset}-{model}"
    known = [job for job in client.jobs if job.id == name]
    job = known[0] if known else client.jobs.submit(dataset, model, id=name, epochs=1, hidden_channels=8, num_layers=2).wait()
    data = (nodes if dataset == "one-batch" else molecules(2)[1]).clone()
    for field, value in change.items():
        data.num_nodes = data.num_nodes
        setattr(data, field, value)
    with pytest.raises(permafrost.InputError, match=told):
        job.predict(data)


def test_embeddings_are_of_as_many_nodes(client, nodes):
    job = client.jobs.submit("one-batch", "gcn", epochs=1, hidden_channels=8, node_inputs="learned").wait()
    with pytest.raises(permafrost.InputError, match="data: has 3 nodes, and the embeddings are of 120"):
        job.predict(Data(num_nodes=3, edge_index=torch.zeros(2, 0, dtype=torch.long)))
