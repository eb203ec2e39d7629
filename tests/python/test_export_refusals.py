"""Tests that each refusal of export is one line, which names what is wrong and where."""

import builtins
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch_geometric")

import torch_geometric.nn as gnn
from torch import nn

from tests.python.net_data import example
from tests.python.nets import Links, Points


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


def test_refuses_a_folder_that_is_not_there(tmp_path):
    from permafrost import InputError, export

    with pytest.raises(InputError, match=r"^path: .*/none/program.pt2: No such file or directory$"):
        export(Links(), {"x": torch.randn(6, 5), "edge_index": EDGES, "edge_label_index": EDGES}, tmp_path / "none" / "program.pt2")


def test_says_that_torch_is_too_old(monkeypatch, tmp_path):
    from permafrost import InputError, export

    monkeypatch.setattr(torch, "__version__", "2.10.1+cpu")
    with pytest.raises(InputError, match=r"export: torch 2.10.1\+cpu is installed; 2.11 or a later one is needed"):
        export(None, None, tmp_path / "program.pt2")


def test_says_that_torch_is_missing(monkeypatch, tmp_path):
    from permafrost import InputError, export

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=r"export needs the package torch: pip install 'permafrost-client\[pyg\]'"):
        export(None, None, tmp_path / "program.pt2")


def test_leaves_python_and_the_generator_as_they_were(tmp_path):
    from permafrost import export

    module, state = Points(), torch.get_rng_state()
    export(module, [example()] * 3, tmp_path / "program.pt2")
    assert torch.equal(torch.get_rng_state(), state)
    changed = [name for name, module in sys.modules.items() if getattr(module, "int", builtins.int) is not builtins.int
               and name.startswith(("torch_geometric", "tests."))]
    assert changed == []
