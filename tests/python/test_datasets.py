"""Tests that PyG and NetworkX data are imported completely, and that others are refused in one line."""

import os
import pathlib
import shutil

import networkx
import pytest
import torch
from torch_geometric.data import Data, HeteroData, InMemoryDataset

import permafrost
from tests.python.data import citations, molecules


def test_one_graph_with_its_masks(client):
    data = citations()
    summary = client.datasets.import_pyg(data, "one", progress=False).summary
    assert summary == {"nodes": 120, "edges": data.num_edges, "train": 60, "valid": 30, "test": 30, "node features": 8,
                       "edge features": 0, "targets": 1}


def test_masks_of_several_splits(client):
    data = citations()
    masks = torch.stack([data.test_mask, data.train_mask], dim=1)
    data.train_mask, data.val_mask, data.test_mask = masks, masks.flip(1) & False, masks.flip(1)
    summary = client.datasets.import_pyg(data, "columns", mask=1, progress=False).summary
    assert (summary["train"], summary["valid"], summary["test"]) == (60, 0, 30)
    with pytest.raises(permafrost.InputError, match=r"train_mask: mask=2 is outside 0\.\.1"):
        client.datasets.import_pyg(data, "columns-2", mask=2, progress=False)


@pytest.mark.parametrize("via", ["folder", "upload"])
def test_many_graphs_with_their_splits(client, via):
    graphs = molecules()
    splits = {"train": torch.arange(40), "val": range(40, 50), "test": list(range(50, 60))}
    dataset = client.datasets.import_pyg(graphs, f"many-{via}", splits=splits, via=via, progress=False)
    assert dataset.state == "ready"
    assert dataset.summary == {"graphs": 60, "train": 40, "valid": 10, "test": 10, "nodes": sum(g.num_nodes for g in graphs),
                               "edges": sum(g.num_edges for g in graphs), "node features": 4, "edge features": 2, "targets": 2}
    features = dataset.proto.graph_set.node_features
    assert list(features.min) == pytest.approx(torch.cat([g.x for g in graphs]).min(0).values.tolist(), rel=0, abs=0)


def test_floats_are_floats_and_integers_are_categories(client):
    graphs = molecules(12)
    for graph in graphs:
        graph.x = torch.nn.functional.one_hot(torch.arange(graph.num_nodes) % 3, 3).float()
    dataset = client.datasets.import_pyg(graphs, "one-hot", progress=False).proto.graph_set
    kinds = dataset.node_features.DESCRIPTOR.enum_types_by_name["DataType"].values_by_number
    assert kinds[dataset.node_features.data_type].name == "DATA_TYPE_FLOAT32"
    assert kinds[dataset.edge_features.data_type].name == "DATA_TYPE_INT32"


def test_nothing_is_left_below_the_import_root(client, server):
    client.datasets.import_pyg(molecules(12), "left", progress=False)
    assert list(server.import_root.iterdir()) == []
    client.datasets.import_pyg(molecules(12), "left-2", via="upload", progress=False)
    assert list((server.state_dir / "uploads").iterdir()) == []


class Collated(InMemoryDataset):
    """A set like PyG's own: one large Data, and where each graph begins in it."""

    def __init__(self, graphs):
        super().__init__()
        self.data, self.slices = self.collate(graphs)

    def get_idx_split(self):
        return {"train": torch.arange(30), "valid": torch.arange(30, 45), "test": torch.arange(45, len(self))}


def test_a_dataset_brings_its_own_split(client):
    summary = client.datasets.import_pyg(Collated(molecules()), "own-split", progress=False).summary
    assert (summary["train"], summary["valid"], summary["test"]) == (30, 15, 15)


def test_three_datasets_are_one_set(client):
    parts = {"train": molecules(20), "val": molecules(5), "test": molecules(7)}
    summary = client.datasets.import_pyg(parts, "parts", progress=False).summary
    assert (summary["graphs"], summary["train"], summary["valid"], summary["test"]) == (32, 20, 5, 7)


def graphs_with(change):
    graphs = molecules(5)
    change(graphs[3])
    return graphs


@pytest.mark.parametrize(("dataset", "told"), [
    (lambda: HeteroData(), "HeteroData: node and edge types are not supported"),
    (lambda: 3, "int: expected a Data, a Dataset"),
    (lambda: [3], "graph 0: is a int, expected a Data"),
    (lambda: [], "holds no graphs"),
    (lambda: Data(x=torch.zeros(2, 1)), "edge_index: missing"),
    (lambda: graphs_with(lambda g: setattr(g, "y", None)), "graph 3: y: missing"),
    (lambda: graphs_with(lambda g: setattr(g, "x", g.x[:, :3])), "graph 3: x: 3 columns, expected 4"),
    (lambda: graphs_with(lambda g: setattr(g, "x", g.x.to_sparse())), "graph 3: x: is sparse"),
    (lambda: graphs_with(lambda g: setattr(g, "edge_index", g.edge_index + 5)), r"graph 3: edge_index: edge \d+ \[.*\] is outside 0\.\.7"),
    (lambda: Data(x=torch.zeros(2, 1), edge_index=torch.zeros(2, 1).long(), train_mask=torch.ones(2).bool()), "val_mask: missing"),
])
def test_what_cannot_be_imported_is_told_in_one_line(client, dataset, told):
    with pytest.raises(permafrost.InputError, match=told) as caught:
        client.datasets.import_pyg(dataset(), "refused", progress=False)
    assert "\n" not in str(caught.value)
    with pytest.raises(permafrost.NotFound):
        client.datasets.get("refused")


def test_times_of_nodes_and_of_edges(client):
    edges = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    graphs = {
        "node-times": Data(edge_index=edges[:, :3], y=torch.arange(4), time=torch.tensor([4, 3, 2, 1]), edge_time=torch.arange(3)),
        "named-node-times": Data(edge_index=edges, y=torch.arange(4), node_time=torch.arange(4), time=torch.arange(4)),
        "edge-times": Data(edge_index=edges[:, :3], y=torch.arange(4), time=torch.arange(3)),
    }
    found = {name: client.datasets.import_pyg(data, name, progress=False).proto.graph for name, data in graphs.items()}
    assert {name: (graph.timestamped, graph.node_times) for name, graph in found.items()} == {
        "node-times": (True, True), "named-node-times": (True, True), "edge-times": (True, False)}
    with pytest.raises(permafrost.InputError, match="node_time: shape .5., expected 4 rows"):
        client.datasets.import_pyg(Data(edge_index=edges[:, :3], y=torch.arange(4), time=torch.arange(5)), "refused", progress=False)
    with pytest.raises(permafrost.InputError, match="node_time: shape .., expected 4 rows"):
        client.datasets.import_pyg(Data(edge_index=edges, y=torch.arange(4), time=5), "refused", progress=False)


@pytest.mark.parametrize("fields", [{}, {"split_seed": 1}])
def test_a_set_without_labels_is_one_to_predict_for(client, fields):
    graphs = molecules(20)
    for graph in graphs:
        graph.y = None
    with pytest.warns(UserWarning, match=r"no graph has a label \(y\): the set is imported without; jobs predict for it, and none trains"):
        dataset = client.datasets.import_pyg(graphs, f"unlabelled-{len(fields)}", progress=False, **fields)
    assert dataset.summary["graphs"] == 20
    assert dataset.proto.graph_set.num_missing_labels == 20
    with pytest.raises(permafrost.PermafrostError) as refused:
        client.jobs.submit(dataset, "gine", epochs=1)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("targets", [1, 2])
def test_a_job_predicts_for_a_set_without_labels(client, targets):
    graphs = molecules(30, targets)
    client.datasets.import_pyg(graphs, f"labelled-{targets}", splits={"train": range(20), "valid": range(20, 30)}, progress=False)
    job = client.jobs.submit(f"labelled-{targets}", "gine", epochs=2, hidden_channels=8, num_layers=2, loss="mse").wait()
    for graph in graphs:
        graph.y = None
    with pytest.warns(UserWarning, match="no graph has a label"):
        client.datasets.import_pyg(graphs, f"bare-{targets}", progress=False)
    found = job.predictions(f"bare-{targets}", rows="all")
    made = job.predict(graphs)
    assert made.shape == (30, targets)
    assert torch.allclose(torch.tensor([found[str(graph)] for graph in range(30)]), made, rtol=1e-5, atol=1e-5)


def test_a_label_that_only_a_later_graph_has_is_refused(client):
    graphs = molecules(5)
    graphs[0].y = None
    with pytest.raises(permafrost.InputError, match="graph 1: y: there is one, unlike in graph 0"):
        client.datasets.import_pyg(graphs, "refused", progress=False)


def test_splits_out_of_range(client):
    with pytest.raises(permafrost.InputError, match=r"splits: test: 5 is outside 0\.\.4"):
        client.datasets.import_pyg(molecules(5), "refused", splits={"test": [5]}, progress=False)


def test_a_set_has_no_weights_and_times_of_edges(client):
    graphs = molecules()
    for graph in graphs:
        graph.edge_weight = graph.edge_time = torch.ones(graph.edge_index.size(1))
        graph.time = torch.tensor([1])
    with pytest.warns(UserWarning, match="Data: not imported: edge_time, edge_weight, time; .*: put edge_weight into edge_attr"):
        client.datasets.import_pyg(graphs, "weighted-set", progress=False)


def test_positions_of_a_set(client):
    graphs = molecules()
    for graph in graphs:
        graph.pos = torch.rand(graph.num_nodes, 3, dtype=torch.float64)
    dataset = client.datasets.import_pyg(graphs, "placed", progress=False)
    assert dataset.summary["position columns"] == 3
    graphs[0].pos[2, 1] = float("nan")
    with pytest.raises(permafrost.ImportFailed, match=r'raw/node-pos.csv:3: column 2: "nan" is not a finite number'):
        client.datasets.import_pyg(graphs, "refused", progress=False)
    graphs[4].pos = None
    with pytest.raises(permafrost.InputError, match="graph 4: pos: missing, unlike in graph 0"):
        client.datasets.import_pyg(graphs, "refused", progress=False)
    graphs[0].pos = torch.rand(graphs[0].num_nodes, 17)
    with pytest.raises(permafrost.ImportFailed, match=r"raw/node-pos.csv:1: 17 columns; 1\.\.16 are accepted for positions"):
        client.datasets.import_pyg(graphs[:1], "refused", progress=False)
    graphs[0].pos = torch.rand(1, 3)
    with pytest.raises(permafrost.InputError, match=r"graph 0: pos: shape \[1, 3\], expected"):
        client.datasets.import_pyg(graphs[:1], "refused", progress=False)


def test_what_is_not_imported_is_said(client):
    data = citations()
    data.place = torch.zeros(120, 3)
    with pytest.warns(UserWarning, match="not imported: place"):
        client.datasets.import_pyg(data, "places", progress=False)


def test_positions_of_one_graph(client):
    data = citations()
    data.pos = torch.rand(120, 3, dtype=torch.float64)
    assert client.datasets.import_pyg(data, "placed-graph", progress=False).summary["position columns"] == 3
    data.pos[2, 1] = float("inf")
    with pytest.raises(permafrost.ImportFailed, match=r"node_pos.npy: element \[2, 1\]: is not a finite number"):
        client.datasets.import_pyg(data, "refused", progress=False)
    data.pos = torch.rand(120, 17)
    with pytest.raises(permafrost.ImportFailed, match=r"node_pos.npy: 17 columns; 1\.\.16 are accepted for positions"):
        client.datasets.import_pyg(data, "refused", progress=False)
    data.pos = torch.rand(1, 3)
    with pytest.raises(permafrost.InputError, match=r"pos: shape \[1, 3\], expected 120 rows"):
        client.datasets.import_pyg(data, "refused", progress=False)


def test_a_fault_that_the_server_finds(client):
    data = citations()
    data.y = data.y.float()
    data.y[3] = float("inf")
    with pytest.raises(permafrost.ImportFailed, match="node_label.npy"):
        client.datasets.import_pyg(data, "infinite", progress=False)


def test_names_and_listing(client):
    client.datasets.import_pyg(molecules(12), "listed", progress=False)
    with pytest.raises(permafrost.AlreadyExists):
        client.datasets.import_pyg(molecules(12), "listed", progress=False)
    assert "listed" in [dataset.id for dataset in client.datasets]
    client.datasets.delete("listed")
    with pytest.raises(permafrost.NotFound):
        client.datasets.get("datasets/listed")


def test_import_path(client, server):
    (server.import_root / "edges.csv").write_text("0,1\n1,2\n")
    try:
        assert client.datasets.import_path(server.import_root / "edges.csv", "edges", progress=False).summary["nodes"] == 3
    finally:
        (server.import_root / "edges.csv").unlink()
    with pytest.raises(permafrost.PermissionDenied, match="not below an import root"):
        client.datasets.import_path("/etc/passwd", "secret", progress=False)


def test_networkx(client):
    graph = networkx.karate_club_graph()
    networkx.set_node_attributes(graph, {n: [float(n), 1.5] for n in graph}, "place")
    networkx.set_node_attributes(graph, {n: int(v["club"] == "Officer") for n, v in graph.nodes(data=True)}, "y")
    dataset = client.datasets.import_networkx(graph, "karate", node_attributes=["place"], weight="weight",
                                              splits={"train": range(20), "valid": range(20, 27), "test": range(27, 34)}, progress=False)
    assert dataset.summary == {"nodes": 34, "edges": 156, "train": 20, "valid": 7, "test": 7, "node features": 2, "edge features": 0,
                               "targets": 1}
    assert dataset.proto.graph.weighted
    directed = client.datasets.import_networkx(networkx.DiGraph([(0, 1), (1, 2)]), "arrows", progress=False)
    assert directed.summary["edges"] == 2


def test_networkx_sets(client):
    graphs = [networkx.cycle_graph(4 + i) for i in range(10)]
    for i, graph in enumerate(graphs):
        graph.graph["y"] = i % 2
        networkx.set_node_attributes(graph, {n: n % 3 for n in graph}, "kind")
    summary = client.datasets.import_networkx(graphs, "cycles", node_attributes=["kind"], progress=False).summary
    assert (summary["graphs"], summary["nodes"], summary["edges"]) == (10, 85, 170)
    bare = [networkx.cycle_graph(4 + i) for i in range(3)]
    with pytest.warns(UserWarning, match="import_networkx: .*no graph has a label"):
        assert client.datasets.import_networkx(bare, "bare-cycles", progress=False).proto.graph_set.num_missing_labels == 3
    del graphs[4].nodes[2]["kind"]
    with pytest.raises(permafrost.InputError, match="graph 4: node 2: kind: missing"):
        client.datasets.import_networkx(graphs, "cycles-2", node_attributes=["kind"], progress=False)


def test_a_folder_is_readable_whatever_the_umask(client, monkeypatch):
    """The server may run as another user."""
    from permafrost.datasets import Datasets

    modes = []
    plain = Datasets._import

    def look(datasets, name, options, upload, progress):
        folder = pathlib.Path(options["source_path"])
        modes.extend((path.is_dir(), path.stat().st_mode & 0o777) for path in (folder, *folder.rglob("*")))
        return plain(datasets, name, options, upload, progress)

    monkeypatch.setattr(Datasets, "_import", look)
    before = os.umask(0o077)
    try:
        client.datasets.import_pyg(molecules(12), "umask", via="folder", progress=False)
    finally:
        os.umask(before)
    assert len(modes) > 3
    assert set(modes) == {(True, 0o755), (False, 0o644)}


def test_a_deletion_is_of_the_dataset_that_was_seen(client):
    first = client.datasets.import_pyg(molecules(12), "seen", progress=False)
    assert first.uid and first.etag
    assert client.datasets.get("seen").etag == first.etag
    client.datasets.delete("seen", etag=first.etag)
    second = client.datasets.import_pyg(molecules(12), "seen", progress=False)
    assert second.uid != first.uid and second.etag != first.etag
    with pytest.raises(permafrost.Aborted, match="has changed since: its etag is"):
        client.datasets.delete("seen", etag=first.etag)
    client.datasets.delete("seen")


def test_an_import_is_checked_and_not_begun(client, server):
    source = server.import_root / "checked"
    (source / "raw").mkdir(parents=True)
    (source / "raw" / "edge.csv").write_text("0,1\n1,2\n")
    (source / "raw" / "num-node-list.csv").write_text("3\n")
    checked = client.datasets.import_path(source, "checked", validate_only=True)
    assert (checked.id, checked.uid, checked.etag) == ("checked", "", "")
    with pytest.raises(permafrost.NotFound):
        client.datasets.get("checked")
    (source / "raw" / "edge.csv").unlink()
    with pytest.raises(permafrost.InvalidArgument, match="the directory holds none of"):
        client.datasets.import_path(source, "checked", validate_only=True)
    client.datasets.import_pyg(molecules(12), "there", progress=False)
    with pytest.raises(permafrost.AlreadyExists):
        client.datasets.import_pyg(molecules(12), "there", validate_only=True, progress=False)
    shutil.rmtree(source)
