"""permafrost.export: each refusal is one line, which names what is wrong and where; and what the archive says of a module."""

import builtins
import json
import sys
import zipfile

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn  # noqa: E402
from torch import nn  # noqa: E402
from torch_geometric.data import Batch, Data  # noqa: E402

from tests.python.nets import NETS, Points  # noqa: E402
from tests.python.test_export import example, read_program  # noqa: E402


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.nodes, self.conv, self.head = nn.Embedding(9, 8), gnn.SAGEConv(8, 8), nn.Linear(8, 1)


class Unknown(Base):
    def forward(self, x, edge_index, distances):
        return x


class Nothing(Base):
    def forward(self, *, training=False):
        return self.head.weight


class Branches(Base):
    def forward(self, x, edge_index):
        h = self.conv(self.nodes(x), edge_index)
        if h.sum() > 0:
            h = h * 2
        return self.head(h)


class TakesNumber(Base):
    def forward(self, x, edge_index):
        return self.head(self.conv(self.nodes(x), edge_index)[: int(x.max())])


class BuildsEdges(Base):
    def forward(self, x, pos, batch):
        edge_index = gnn.knn_graph(pos, 4, batch)
        return self.head(self.conv(self.nodes(x), edge_index))


class ReadsPtr(Base):
    def forward(self, data):
        return self.head(self.nodes(data.x))[data.ptr[:-1]]


class Pairs(Base):
    def forward(self, x, edge_index):
        return self.head(self.conv(self.nodes(x), edge_index.view(2, -1, 2)[:, :, 0]))


class LoopsOverGraphs(Base):
    def forward(self, x, batch):
        h = self.head(self.nodes(x))
        return torch.stack([h[batch == one].sum() for one in range(int(batch.max()) + 1)])


class FixedSize(Base):
    def forward(self, x, edge_index):
        return self.head(self.nodes(x)) + torch.zeros(23, 1)


class OneRow(Base):
    def forward(self, x, edge_index):
        return self.head(self.conv(self.nodes(x), edge_index).mean(0, keepdim=True))


class ReturnsDict(Base):
    def forward(self, x, edge_index):
        return {"prediction": self.head(self.nodes(x))}


class ReturnsLabels(Base):
    def forward(self, x, edge_index):
        return self.nodes(x).argmax(-1)


class LossWithoutTarget(Base):
    def forward(self, x, edge_index):
        h = self.head(self.nodes(x))
        return h, h.mean()


class LossOfRows(Base):
    def forward(self, x, edge_index, y):
        h = self.head(self.nodes(x))
        return h, h.squeeze(-1)


class Lazy(Base):
    def __init__(self):
        super().__init__()
        self.head = gnn.Linear(-1, 1)

    def forward(self, x, edge_index):
        return self.head(self.nodes(x))


REFUSED = [
    (Unknown, "forward: the parameter 'distances' is unknown; accepted are x, edge_index, "),
    (Nothing, "forward: it takes none of x, "),
    (Branches, "`if h.sum() > 0:`: Python branches on the values of a tensor; use torch.where"),
    (TakesNumber, "[: int(x.max())])`: a size or a number depends on the values of a tensor (.item(), "),
    (BuildsEdges, "`edge_index = gnn.knn_graph(pos, 4, batch)`: edges are built in forward; build them in the dataset"),
    (ReadsPtr, "[data.ptr[:-1]]`: the Data has no 'ptr'; it has "),
    (Pairs, "edge_index.view(2, -1, 2)[:, :, 0]))`: the number of edges becomes a constant or must have a divisor"),
    (LoopsOverGraphs, "for one in range(int(batch.max()) + 1)])`: the number of graphs becomes a constant"),
    (FixedSize, "torch.zeros(23, 1)`: RuntimeError: The size of tensor a"),
    (OneRow, "forward: its prediction has 1 rows; accepted is one for each of edges, nodes"),
    (ReturnsDict, "forward: it returns 'dict'; accepted are a prediction, and (prediction, loss)"),
    (ReturnsLabels, "forward: its prediction is int64 ["),
    (LossWithoutTarget, "forward: it returns a loss, but takes no y"),
    (LossOfRows, "forward: its loss is float32 ["),
    (Lazy, "module: it has parameters without a size yet"),
]


@pytest.mark.parametrize(("cls", "says"), REFUSED, ids=lambda value: getattr(value, "__name__", ""))
def test_names_the_line(cls, says, tmp_path, capfd):
    from permafrost import InputError, export

    with pytest.raises(InputError) as caught:
        export(cls(), example(), tmp_path / "program.pt2")
    message = str(caught.value)
    assert says in message and "\n" not in message
    if "`" in says:
        assert message.startswith("test_export_refusals.py:")
    assert not (tmp_path / "program.pt2").exists()
    assert capfd.readouterr().err == ""


X, EDGES = torch.zeros(6, dtype=torch.long), torch.zeros(2, 10, dtype=torch.long)


@pytest.mark.parametrize(("given", "says"), [
    ({"edge_index": EDGES}, "example: x is missing, which forward takes"),
    ({"x": X, "edge_index": EDGES, "color": X}, "example: 'color' is unknown; accepted are x, "),
    ({"x": X, "edge_index": EDGES, "edge_attr": torch.zeros(9)}, "example: edge_attr has 9 edges, others have 10"),
    ({"x": X, "edge_index": [[0], [1]]}, "example: edge_index is no dense tensor with rows"),
    ({"x": X, "edge_index": EDGES[:, :0]}, "example: edge_index is no dense tensor with rows"),
    (X, "example: a Data, a list of Data or a dict of tensors is needed, not "),
])
def test_refuses_an_example_that_does_not_fit(given, says, tmp_path):
    from permafrost import InputError, export

    with pytest.raises(InputError) as caught:
        export(Branches(), given, tmp_path / "program.pt2")
    assert str(caught.value).startswith(says)


def test_refuses_a_y_whose_rows_are_nothing(tmp_path):
    from permafrost import InputError, export

    with pytest.raises(InputError, match=r"example: y has 4 rows; accepted are 1 \(graphs\), 6 \(nodes\), 10 \(edges\)"):
        export(LossOfRows(), {"x": X, "edge_index": EDGES, "y": torch.zeros(4)}, tmp_path / "program.pt2")


def test_refuses_other_paths_and_other_modules(tmp_path):
    from permafrost import InputError, export

    with pytest.raises(InputError, match="does not end in .pt2"):
        export(Branches(), example(), tmp_path / "program.zip")
    with pytest.raises(InputError, match=r"a torch.nn.Module is needed, not a function"):
        export(test_refuses_other_paths_and_other_modules, example(), tmp_path / "program.pt2")


def test_says_that_torch_is_missing(monkeypatch, tmp_path):
    from permafrost import InputError, export

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"export needs the package torch: pip install 'permafrost-client\[pyg\]'"):
        export(None, None, tmp_path / "program.pt2")


def test_describes_what_the_server_needs(tmp_path):
    from permafrost import export

    _, described = read_program(export(NETS["of_data"](), example(), tmp_path / "data.pt2"))
    assert described["format"] == 1 and described["torch"] == torch.__version__
    assert described["module"] == "tests.python.nets.OfData"
    assert described["inputs"] == [
        {"name": "x", "dtype": "int64", "shape": ["nodes"]},
        {"name": "edge_index", "dtype": "int64", "shape": [2, "edges"]},
        {"name": "batch", "dtype": "int64", "shape": ["nodes"]},
        {"name": "y", "dtype": "float32", "shape": ["graphs"]},
        {"name": "num_graphs", "number": "graphs"},
    ]
    assert described["outputs"] == [{"name": "prediction", "dtype": "float32", "shape": ["graphs"]},
                                    {"name": "loss", "dtype": "float32", "shape": []}]
    assert described["least"] == {"nodes": 2, "edges": 2, "graphs": 2}

    given = Data(x=torch.randn(6, 5), edge_index=EDGES, edge_label_index=EDGES[:, :4])
    _, described = read_program(export(NETS["links"](), given, tmp_path / "links.pt2"))
    assert described["outputs"] == [{"name": "prediction", "dtype": "float32", "shape": ["links"]}]
    assert {one["name"]: one["trained"] for one in described["parameters"]} == {
        "first.weight": True, "first.bias": True, "second.weight": True, "second.bias": False}
    assert described["tied"] == [["first.weight", "second.weight"]]

    # Sorts the three largest nodes of each graph, for which a batch must have three.
    _, described = read_program(export(NETS["sorted"](), example(), tmp_path / "sorted.pt2"))
    assert described["least"]["nodes of the largest graph"] == 3


def test_stores_weights_once(tmp_path):
    from permafrost import export

    module = NETS["gine"]()
    path = export(module, Batch.from_data_list([example()] * 2), tmp_path / "program.pt2")
    with zipfile.ZipFile(path) as archive:
        names = [name.partition("/")[2] for name in archive.namelist()]
        folder = archive.namelist()[0].partition("/")[0]
        configs = [json.loads(archive.read(f"{folder}/data/weights/{form}_weights_config.json"))["config"]
                   for form in ("train", "eval")]
    paths = [{name: weight["path_name"] for name, weight in config.items()} for config in configs]
    assert paths[0] == paths[1] and set(paths[0]) == set(module.state_dict())
    assert sum(name.startswith("data/weights/weight_") for name in names) == len(module.state_dict())
    assert {"models/train.json", "models/eval.json", "extra/permafrost.json"} <= set(names)


def test_leaves_python_and_the_generator_as_they_were(tmp_path):
    from permafrost import export

    module, state = Points(), torch.get_rng_state()
    export(module, [example()] * 3, tmp_path / "program.pt2")
    assert torch.equal(torch.get_rng_state(), state)
    changed = [name for name, module in sys.modules.items() if getattr(module, "int", builtins.int) is not builtins.int
               and name.startswith(("torch_geometric", "tests."))]
    assert changed == []
