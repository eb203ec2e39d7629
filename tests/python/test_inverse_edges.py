"""Tests that a source has the same edges, whichever client imports it."""

import pathlib

import networkx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data

import permafrost
from permafrost.v1 import dataset_pb2 as pb

TRIALS = pathlib.Path(__file__).parent.parent / "trials"
BOTH = [[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]
NOT_ADDED = "inverse edges: not added, since the source lists both directions of every edge"
ADDED = "inverse edges: added, since the source lists some edges in one direction alone"


@pytest.mark.parametrize(("source", "edges"), [("both.csv", 6), ("npy", 6), ("ogb", 6), ("set", 12)])
def test_both_directions_are_not_doubled(client, source, edges):
    name = f"both-{source.partition('.')[0]}"
    dataset = client.datasets.upload_path(TRIALS / "both-directions" / source, name, progress=False)
    assert dataset.summary["edges"] == edges
    assert NOT_ADDED in dataset.import_notes
    assert (dataset.proto.graph_set if source == "set" else dataset.proto.graph).directions == pb.EDGE_DIRECTIONS_LISTED


def test_what_python_holds_keeps_its_edges(client, tmp_path):
    data = Data(x=torch.eye(4), edge_index=torch.tensor(BOTH), y=torch.tensor([0, 1, 0, 1]))
    kept = client.datasets.import_pyg(data, "both-pyg", progress=False)
    assert kept.proto.graph.num_edges == 6
    assert kept.proto.graph.directions == pb.EDGE_DIRECTIONS_KEPT_BOTH
    one_way = Data(x=torch.eye(4), edge_index=torch.tensor(BOTH)[:, ::2], y=torch.tensor([0, 1, 0, 1]))
    assert client.datasets.import_pyg(one_way, "one-pyg", progress=False).proto.graph.directions == pb.EDGE_DIRECTIONS_KEPT
    auto = client.datasets.import_pyg(one_way, "auto-pyg", inverse_edges="auto", progress=False)
    assert (auto.proto.graph.num_edges, auto.import_notes) == (6, [ADDED])
    path = networkx.path_graph(4)
    added = client.datasets.import_networkx(path, "both-networkx", progress=False).proto.graph
    assert (added.num_edges, added.directions) == (6, pb.EDGE_DIRECTIONS_ADDED)
    kept = client.datasets.import_networkx(path.to_directed(), "kept-networkx", progress=False).proto.graph
    assert (kept.num_edges, kept.directions) == (6, pb.EDGE_DIRECTIONS_KEPT_BOTH)
    pq.write_table(pa.table({"source": BOTH[0], "target": BOTH[1]}), tmp_path / "e.parquet")
    parquet = client.datasets.import_parquet(tmp_path / "e.parquet", "both-parquet", progress=False).proto.graph
    assert (parquet.num_edges, parquet.directions) == (6, pb.EDGE_DIRECTIONS_KEPT_BOTH)


def test_contradictions_and_negative_weights_are_refused(client, tmp_path):
    with pytest.raises(permafrost.InputError, match="no_inverse_edges: stands beside inverse_edges"):
        client.datasets.import_networkx(networkx.path_graph(3), "x", no_inverse_edges=True, inverse_edges="add", progress=False)
    with pytest.raises(permafrost.InputError, match="inverse_edges: 'both' is none of auto, add, keep"):
        client.datasets.import_networkx(networkx.path_graph(3), "x", inverse_edges="both", progress=False)
    pq.write_table(pa.table({"source": [0, 1], "target": [1, 2], "w": np.array([0, -2], np.float32)}), tmp_path / "w.parquet")
    with pytest.raises(permafrost.InputError, match=r"w.parquet: row 1: w: -2.0 is negative; weights of at least 0"):
        client.datasets.import_parquet(tmp_path / "w.parquet", "x", weight="w", progress=False)


def test_files_that_are_not_read_are_told(client, tmp_path):
    zst = client.datasets.upload_path(TRIALS / "unread-files" / "zst", "zst", progress=False)
    assert zst.summary["node features"] == 2
    with pytest.raises(permafrost.ImportFailed, match="raw/edge.csv: stands beside raw/edge.csv.gz, which is read"):
        client.datasets.upload_path(TRIALS / "stale", "stale", progress=False)
    np.save(tmp_path / "edge_index.npy", np.array(BOTH))
    np.save(tmp_path / "other.npy", np.zeros(4))
    assert "files that were not read: other.npy" in client.datasets.upload_path(tmp_path, "beside", progress=False).import_notes
    np.savez(tmp_path / "node_label.npz", np.zeros(4))
    with pytest.raises(permafrost.ImportFailed, match="node_label.npz: no file of this name is read; accepted: node_label.npy"):
        client.datasets.upload_path(tmp_path, "refused", progress=False)
    with pytest.raises(permafrost.ImportFailed, match="RST2_A.txt: node ids: all edges are among the first 3 nodes"):
        client.datasets.upload_path(TRIALS / "tu-restarted" / "RST2", "restarted", progress=False)
