"""Tests that labels of the nodes of many graphs, which sets do not support, are reported for any sizes of the graphs."""

import pathlib

import networkx as nx
import pytest
import torch
from torch_geometric.data import Data

import permafrost
from permafrost.sources import networkx as networkx_source
from permafrost.sources import pyg


def path_of(nodes: int, y: torch.Tensor) -> Data:
    ends = torch.arange(nodes - 1)
    return Data(x=torch.ones(nodes, 1), edge_index=torch.stack([ends, ends + 1]), y=y)


def write_pyg(graphs: list[Data], folder: pathlib.Path) -> list[str]:
    pyg.write(graphs, folder, None, 0)
    return (folder / "raw" / "graph-label.csv").read_text().split()


@pytest.mark.parametrize("sizes", [(5, 5, 5), (3, 5, 4), (1, 4), (2,)])
@pytest.mark.parametrize("columns", [(), (1,), (2,)])
def test_a_label_a_node_is_refused_in_sets(
    tmp_path: pathlib.Path, sizes: tuple[int, ...], columns: tuple[int, ...]
) -> None:
    graphs = [
        path_of(n, torch.arange(n).reshape(n, *(1,) * len(columns)).expand(n, *columns))
        for n in sizes
    ]
    with pytest.raises(permafrost.InputError) as refused:
        write_pyg(graphs, tmp_path)
    assert (
        "y: each graph has a label for each of its nodes, which sets of graphs do not support"
        in str(refused.value)
    )
    assert "y.reshape(1, -1)" in str(refused.value)


def test_targets_of_graphs_are_no_labels_of_nodes(tmp_path: pathlib.Path) -> None:
    # Each case has as many targets as nodes, in a row; as many as nodes in only one of the graphs; or one for each graph of one node.
    cases = [
        [path_of(3, torch.tensor([[1, 2, 3]])), path_of(3, torch.tensor([[4, 5, 6]]))],
        [path_of(3, torch.tensor([1, 2, 3])), path_of(4, torch.tensor([4, 5, 6]))],
        [path_of(1, torch.tensor([1])), path_of(4, torch.tensor([2]))],
        [path_of(1, torch.tensor([1])), path_of(1, torch.tensor([2]))],
    ]
    wanted = [["1,2,3", "4,5,6"], ["1,2,3", "4,5,6"], ["1", "2"], ["1", "2"]]
    for number, (graphs, want) in enumerate(zip(cases, wanted, strict=True)):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert write_pyg(graphs, folder) == want


def test_attributes_of_nodes_are_no_labels_of_networkx_graphs(
    tmp_path: pathlib.Path,
) -> None:
    graphs = [nx.path_graph(n) for n in (3, 4)]
    for graph in graphs:
        nx.set_node_attributes(graph, {node: node % 2 for node in graph}, "y")

    def write(name: str, nodes: tuple[str, ...] = ()) -> list[str]:
        folder = tmp_path / name
        folder.mkdir()
        networkx_source.write(graphs, folder, nodes, (), "y", None, None)
        return (folder / "raw" / "graph-label.csv").read_text().split()

    with pytest.raises(
        permafrost.InputError,
        match="graph 0: y: 3 nodes have it and the graph has not: sets of graphs",
    ):
        write("nodes")
    with pytest.warns(UserWarning, match="no graph has a label"):
        assert write("features", nodes=("y",)) == ["nan", "nan"]
    for number, graph in enumerate(graphs):
        graph.graph["y"] = number
    assert write("graphs") == ["0", "1"]
