"""Tests the files that Python's data become, without a server."""

import networkx
import numpy as np
import pytest
import torch
from torch_geometric.data import Data, InMemoryDataset

import permafrost
from permafrost import models
from permafrost.sources import files, pyg
from permafrost.sources import networkx as source
from tests.python.data import citations

NO_EDGES = torch.zeros(2, 0, dtype=torch.long)


def table(folder, name):
    return (folder / "raw" / f"{name}.csv").read_text().splitlines()


def write_networkx(graphs, folder, nodes=(), edges=(), **options):
    return source.write(graphs, folder, nodes, edges, "y", None, None, **options)


def test_floats_that_happen_to_be_whole_stay_floats(tmp_path):
    rows = torch.tensor([[1.0, -2.0], [0.5, 1e9]])
    graphs = [Data(x=rows, edge_index=torch.tensor([[0, 1], [1, 0]]), edge_attr=torch.tensor([3, 4]), y=torch.tensor([1.0])),
              Data(x=rows.round(), edge_index=NO_EDGES, edge_attr=torch.zeros(0, 1), num_nodes=2, y=torch.tensor([0.0]))]
    pyg.write(graphs, tmp_path, None, 0)
    assert table(tmp_path, "node-feat") == ["1.0,-2.0", "0.5,1e+09", "1.0,-2.0", "0.0,1e+09"]
    assert table(tmp_path, "edge-feat") == ["3", "4"], "a float table without rows makes no floats of integers"
    assert table(tmp_path, "graph-label") == ["1", "0"]


@pytest.mark.parametrize(("values", "dtype"), [
    ([1, True], np.int32), ([[1, 2], np.array([3, 4])], np.int32), ([1.0, 2.0], np.float32), ([1, 2.0], np.float32), ([1, 2**31], np.float32),
    ([], np.int32),
])
def test_only_ints_and_bools_are_categories(values, dtype):
    assert files.rows_of(["a"], [{"a": value} for value in values], "graph").dtype == dtype


@pytest.mark.parametrize("directed", [False, True])
def test_a_loop_of_a_networkx_set_is_one_edge(tmp_path, directed):
    graph = (networkx.DiGraph if directed else networkx.Graph)([(0, 1), (1, 1)], y=1)
    networkx.set_edge_attributes(graph, {(0, 1): 5, (1, 1): 6}, "kind")
    assert write_networkx([graph], tmp_path, edges=["kind"]) == {"format": "ogb_graphs", "no_inverse_edges": True}
    assert table(tmp_path, "edge") == (["0,1", "1,1"] if directed else ["0,1", "1,0", "1,1"])
    assert table(tmp_path, "edge-feat") == (["5", "6"] if directed else ["5", "5", "6"])


@pytest.mark.parametrize(("asked", "option", "rows"), [
    ("keep", {"no_inverse_edges": True}, ["0,1"]),
    ("add", {"no_inverse_edges": True}, ["0,1", "1,0"]),
    ("auto", {"inverse_edges": "auto"}, ["0,1"]),
])
def test_what_is_asked_of_a_networkx_sets_edges_is_done(tmp_path, asked, option, rows):
    graph = (networkx.DiGraph if asked == "add" else networkx.Graph)([(0, 1)], y=1)
    assert write_networkx([graph], tmp_path, inverse_edges=asked) == {"format": "ogb_graphs", **option}
    assert table(tmp_path, "edge") == rows


def test_negative_and_infinite_weights_are_refused(tmp_path):
    edges = torch.tensor([[0, 1], [1, 0]])
    for bad, shown in ((-1.0, "-1.0"), (float("inf"), "inf")):
        data = Data(edge_index=edges, edge_weight=torch.tensor([0.0, bad]), num_nodes=2)
        with pytest.raises(permafrost.InputError, match=f"edge_weight: edge 1 has {shown}; finite weights of at least 0"):
            pyg.write(data, tmp_path, None, 0)
    graph = networkx.Graph()
    graph.add_edge(0, 1, w=-0.5)
    with pytest.raises(permafrost.InputError, match="edge_weight: edge 0 has -0.5"):
        source.write(graph, tmp_path, (), (), "y", "w", None)


class OneGraph(InMemoryDataset):
    """A dataset like OGB's node datasets: a Data without masks, and a split beside it."""

    def __init__(self):
        super().__init__()
        data = citations()
        self.data, self.slices = self.collate([Data(x=data.x, edge_index=data.edge_index, y=data.y)])

    def get_idx_split(self):
        return {"train": torch.arange(10), "valid": torch.arange(10, 30), "test": torch.arange(30, 70)}


@pytest.mark.parametrize(("given", "sizes"), [(None, [10, 20, 40]), ({"train": range(5), "val": range(5, 7), "test": [8]}, [5, 2, 1])])
def test_a_dataset_of_one_graph_brings_its_own_split(tmp_path, given, sizes):
    pyg.write(OneGraph(), tmp_path, given, 0)
    assert [np.load(tmp_path / f"{name}_idx.npy").size for name in files.SPLITS] == sizes


@pytest.mark.parametrize(("shape", "width"), [((0,), 1), ((0, 3), 3), ((0, 2, 3), 6)])
def test_tables_of_no_rows_keep_their_columns(shape, width):
    assert files._table(np.zeros(shape, np.float32), "x").shape == (0, width)
    encoded = models._encoded(torch.zeros(shape), {"float_columns": width, "categories": []}, "edge_attr")
    assert encoded.shape == (0, width)


@pytest.mark.parametrize("value", [0.5, -0.25, float("nan"), float("inf")])
def test_fractions_are_no_categories(value):
    spec = {"float_columns": 0, "categories": [3]}
    assert models._encoded(torch.tensor([0.0, 2.0]), spec, "x").tolist() == [[0], [2]]
    with pytest.raises(ValueError, match=f"data: x: {value} is no whole number, and the model reads categories"):
        models._encoded(torch.tensor([1.0, value]), spec, "x")


@pytest.mark.parametrize("labels", [{"fold": 3}, {3: "fold"}])
def test_labels_are_text(labels):
    from permafrost import fields

    with pytest.raises(permafrost.InputError, match="submit: labels: .*: 3 is no text; accepted: '3'"):
        fields.set_labels({}, labels, "submit")
