"""Tests client.jobs.submit(dataset, module): the example that a dataset makes, the program's name, and loading the
weights back."""

import copy
import re

import permafrost
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from google.protobuf import text_format
from safetensors.torch import save_file
from torch import nn

from permafrost.v1 import dataset_pb2, job_pb2
from tests.python.net_data import example_for
from tests.python.nets import NETS, WIDTH, Links, Nodes, mlp
from tests.python.program_server import ProgramServer
from tests.python.test_export import read_program

pytestmark = pytest.mark.usefixtures("one_thread")

# A dataset with ZINC's atoms and bonds.
ZINC = """name: "datasets/zinc" graph_set { num_targets: 1
  node_features { data_type: DATA_TYPE_INT32 width: 1 min: 0 max: 8 } edge_features { data_type: DATA_TYPE_INT32 width: 1 min: 0 max: 3 } }"""
POINTS = """name: "datasets/points" graph_set { num_targets: 1
  node_features { data_type: DATA_TYPE_FLOAT32 width: 3 min: [-1, -1, -1] max: [1, 1, 1] }
  edge_features { data_type: DATA_TYPE_INT32 width: 2 min: [0, 0] max: [3, 2] } }"""
CITATIONS = """name: "datasets/citations" graph { weighted: true num_targets: 1
  node_features { data_type: DATA_TYPE_FLOAT16 width: 5 min: [0, 0, 0, 0, 0] max: [1, 1, 1, 1, 1] } links { num_train: 9 } }"""


def dataset(text):
    return text_format.Parse(text, dataset_pb2.Dataset())


class Molecules(nn.Module):
    """Takes ZINC in PyG's form: x [N, 1], edge_attr [E]."""

    def __init__(self, atoms=9):
        super().__init__()
        self.nodes, self.bonds = nn.Embedding(atoms, WIDTH), nn.Embedding(4, WIDTH)
        self.conv, self.head = gnn.GINEConv(mlp(WIDTH, WIDTH)), nn.Linear(WIDTH, 1)

    def forward(self, x, edge_index, edge_attr, batch):
        h = self.conv(self.nodes(x[:, 0]), edge_index, self.bonds(edge_attr))
        return self.head(gnn.global_add_pool(h, batch)).squeeze(-1)


class Columns(nn.Module):
    """Takes float columns of nodes, and categorical columns of edges."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.conv = nn.Embedding(4, WIDTH), nn.Embedding(3, WIDTH), gnn.GINEConv(mlp(3, 1), edge_dim=WIDTH)

    def forward(self, x, edge_index, edge_attr, batch):
        return gnn.global_mean_pool(self.conv(x, edge_index, self.first(edge_attr[:, 0]) + self.second(edge_attr[:, 1])), batch)


@pytest.mark.parametrize(("text", "module", "wanted"), [
    (ZINC, Molecules, {"x": ["nodes", 1], "edge_attr": ["edges"]}),
    (ZINC, NETS["gine"], {"x": ["nodes"], "edge_attr": ["edges"]}),
    (ZINC, NETS["gcn"], {"x": ["nodes"], "edge_attr": ["edges", 1]}),
    (POINTS, Columns, {"x": ["nodes", 3], "edge_attr": ["edges", 2]}),
    (CITATIONS, Nodes, {"x": ["nodes", 5], "edge_weight": ["edges"]}),
    (CITATIONS, Links, {"x": ["nodes", 5], "edge_label_index": [2, "links"]}),
], ids=["zinc", "no-columns", "edges-unread", "columns", "nodes", "links"])
def test_a_dataset_makes_the_example(text, module, wanted, tmp_path):
    from permafrost.exporting.export import export_for

    described = read_program(export_for(module(), dataset(text), tmp_path / "module.pt2", links=module is Links))[1]
    shapes = {one["name"]: one.get("shape") for one in described["inputs"]}
    assert {name: shapes[name] for name in wanted} == wanted


class PredictsNodes(Molecules):
    def forward(self, x, edge_index, edge_attr, batch):
        return self.nodes(x.view(-1))


@pytest.mark.parametrize(("module", "says"), [
    (lambda: Molecules(atoms=8), r"Molecules: it does not fit datasets/zinc: with x int64\[N, 1\], edge_attr int64\[E, 1\]: test_modules.py:\d+: "
                                 r"`h = self.conv\(.*; with x int64\[N, 1\], edge_attr int64\[E\]: .*IndexError: index out of range.*give"),
    (Links, r"forward: it takes edge_label_index; accepted: with link_prediction"),
    (PredictsNodes, r"forward: its prediction is \[nodes, 1?8\]; accepted are one or two dimensions, and a row for each of graphs"),
])
def test_says_what_each_form_makes_of_a_module(module, says, tmp_path):
    from permafrost.exporting.export import export_for

    with pytest.raises(permafrost.InputError, match=says) as caught:
        export_for(module(), dataset(ZINC), tmp_path / "module.pt2")
    assert "\n" not in str(caught.value)


@pytest.fixture
def served():
    """Yields a client of a server that has ZINC and runs no job, and that server."""
    server = ProgramServer(dataset(ZINC))
    with permafrost.Client(server.target) as client:
        yield client, server
    server.server.stop(0)


def programs_of(server):
    return [request.spec.model.program for request in server.created]


def test_equal_modules_share_a_program(served):
    client, server = served
    torch.manual_seed(1)
    module = Molecules()
    other = Molecules()
    for one in (module, copy.deepcopy(module), other):
        job = client.jobs.submit("zinc", one, loss="l1", epochs=2)
    names = programs_of(server)
    assert names[0] == names[1] and names == [f"programs/{client.programs.get(name).id}" for name in names]
    assert [program.proto.name for program in client.programs] == sorted({names[0], names[2]})
    assert re.fullmatch(r"programs/molecules-[0-9a-f]{8}", names[0])
    assert client.programs.get(names[0]).xxh3.startswith(names[0][-8:])
    assert (server.created[0].spec.dataset, server.created[0].spec.epochs) == ("datasets/zinc", 2)
    assert names[2].removeprefix("programs/") in job._repr_html_()
    with pytest.raises(permafrost.InputError, match=r"to_pyg: job made trains a program; accepted: job.load_into\(module\)"):
        job.to_pyg()


def test_a_program_is_named_in_three_ways(served, tmp_path):
    client, server = served
    path = tmp_path / "net.pt2"
    path.write_bytes(b"program")
    program = client.programs.import_file("net", path, progress=False)
    client.jobs.submit("zinc", program)
    client.jobs.submit("zinc", {"program": "net"})
    client.jobs.submit("zinc", program="net")
    client.jobs.validate("zinc", program)
    assert programs_of(server) == ["programs/net"] * 4


def test_an_example_stands_for_the_dataset(served):
    client, server = served
    client.jobs.submit("unknown", NETS["links"](), example=example_for("links"))
    assert programs_of(server)[0].startswith("programs/links-")
    with pytest.raises(permafrost.InputError, match=r"submit: example: it is for a torch.nn.Module, which is not given"):
        client.jobs.submit("zinc", "gine", example=example_for("links"))


def test_a_dataset_that_is_not_ready_has_no_columns(served):
    client, server = served
    server.dataset = dataset_pb2.Dataset(name="datasets/zinc")
    with pytest.raises(permafrost.InputError, match=r"submit: datasets/zinc is not ready, so that its columns are unknown; give example="):
        client.jobs.submit("zinc", Molecules())


def test_a_check_alone_takes_no_module(served):
    client, server = served
    with pytest.raises(permafrost.InputError, match=r"validate: model: a module; accepted: a program"):
        client.jobs.validate("zinc", Molecules())
    assert server.created == [] and server.requests == []


@pytest.mark.parametrize(("name", "wanted"), [
    ("MyNet", "my-net"), ("GINENet2", "gine-net2"), ("_net_of_3D", "net-of-3-d"), ("_", "module"), ("Ünit", "nit"), ("A" * 80, "a" * 54)])
def test_names_programs_by_their_class(name, wanted):
    from permafrost.modules import _name_of

    assert _name_of(type(name, (), {})) == wanted


def job_with(weights, monkeypatch):
    """Returns a job that has these weights, best and last."""
    job = permafrost.Job(None, job_pb2.Job(name="jobs/made"))

    def export(path, artifact):
        save_file({name: value.clone() for name, value in weights[artifact].items()}, path)
        return path

    monkeypatch.setattr(job, "export", export)
    return job


def state_of(module):
    return {name: value.clone() for name, value in module.state_dict().items()}


def test_weights_come_back(monkeypatch):
    best, last, module = NETS["gine"](), NETS["gine"](), NETS["gine"]().eval()
    last.norm.num_batches_tracked.add_(7)
    job = job_with({"best_weights": best.state_dict(), "last_weights": last.state_dict()}, monkeypatch)
    assert job.load_into(module) is module and not module.training
    assert all(torch.equal(value, best.state_dict()[name]) for name, value in module.state_dict().items())
    module.train()
    job.load_into(module, "last")
    assert module.training and module.norm.num_batches_tracked == 7
    assert torch.equal(module.head.weight, last.head.weight)
    with pytest.raises(permafrost.InputError, match="load_into: weights: 'first' is none of best, last"):
        job.load_into(module, "first")


def test_tied_weights_are_saved_by_one_name(monkeypatch):
    trained, module = Links(), Links()
    weights = state_of(trained)
    del weights["second.weight"]
    job_with({"best_weights": weights}, monkeypatch).load_into(module)
    assert module.second.weight is module.first.weight
    assert torch.equal(module.second.weight, trained.first.weight)


@pytest.mark.parametrize(("change", "says"), [
    (lambda weights: weights.pop("head.bias"), "load_into: Net: head.bias has no weights"),
    (lambda weights: weights.update({"tail.bias": torch.zeros(1)}), "load_into: Net: there is no tail.bias"),
    (lambda weights: weights.update({"head.bias": torch.zeros(2)}), "load_into: Net: head.bias is [1], its weights [2]"),
])
def test_other_weights_change_nothing(change, says, monkeypatch):
    weights, module = state_of(NETS["gine"]()), NETS["gine"]()
    before = state_of(module)
    change(weights)
    with pytest.raises(permafrost.InputError) as caught:
        job_with({"best_weights": weights}, monkeypatch).load_into(module)
    assert str(caught.value) == says
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
