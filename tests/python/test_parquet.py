"""Tests Parquet tables of edges and nodes."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import permafrost
from permafrost.sources import parquet
from permafrost.v1 import dataset_pb2


def write(path, **columns):
    pq.write_table(pa.table(columns), path)
    return path


@pytest.fixture
def edges(tmp_path):
    return write(tmp_path / "edges.parquet", source=[30, 10, 20, 10], target=[10, 20, 30, 40], weight=[1.0, 2.5, 3.0, 4.0], time=[4, 3, 2, 1])


@pytest.fixture
def nodes(tmp_path):
    return write(tmp_path / "nodes.parquet", key=[40, 10, 30, 20], a=[1.0, 2.0, 3.0, 4.0], b=[1, 2, 3, 4], name=["w", "x", "y", "z"],
                 label=[0, 1, None, 1], part=["train", "val", "test", None])


def test_nodes_by_id(client, edges, nodes, monkeypatch):
    # Reads two rows in a batch, so that there are several batches, as in large tables.
    monkeypatch.setattr(parquet, "_ROWS", 2)
    dataset = client.datasets.import_parquet(edges, "tables", nodes=nodes, id="key", label="label", split="part", weight="weight",
                                             timestamp="time", progress=False)
    assert dataset.summary == {"nodes": 4, "edges": 4, "train": 1, "valid": 1, "test": 1, "node features": 2, "edge features": 0, "targets": 1}
    graph = dataset.proto.graph
    assert (graph.weighted, graph.timestamped, graph.num_missing_labels) == (True, True, 1)
    assert list(graph.node_features.max) == [4.0, 4.0]


def test_ids_become_rows(edges, nodes, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    tables = parquet.Tables(edges=edges, nodes=nodes, source="source", target="target", weight=None, timestamp=None, id="key",
                            features=["b"], labels=[], split=None)
    parquet.write(tables, out)
    assert np.load(out / "edge_index.npy").tolist() == [[2, 1], [1, 3], [3, 2], [1, 0]]
    assert np.load(out / "node_feat.npy").tolist() == [[1], [2], [3], [4]]


@pytest.mark.parametrize("at_once", [1, 2])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_the_edges_are_those_of_the_table(client, tmp_path, monkeypatch, rows, at_once):
    monkeypatch.setattr(parquet, "_ROWS", at_once)
    ends = {"source": [0, 2, 1][:rows], "target": [1, 3, 3][:rows]}
    dataset = client.datasets.import_parquet(write(tmp_path / "edges.parquet", **ends), f"few-{rows}-{at_once}", progress=False)
    request = dataset_pb2.SampleDatasetRequest(name=dataset.proto.name, nodes=range(dataset.summary["nodes"]))
    request.neighbors.fan_outs.append(-1)
    drawn = client._connection.call(client._connection.datasets.SampleDataset, request).edges
    assert sorted((edge.source, edge.target) for edge in drawn) == sorted(zip(ends["source"], ends["target"], strict=True))


def test_edges_bring_features(client, edges, nodes, tmp_path):
    for columns, kind in ((["time"], np.int64), (["time", "weight"], np.float32)):
        out = tmp_path / kind.__name__
        out.mkdir()
        tables = parquet.Tables(edges=edges, nodes=None, source="time", target="time", weight=None, timestamp=None, id=None, features=None,
                                labels=[], split=None, edge_features=columns)
        with pytest.warns(UserWarning, match="edges.parquet: columns that are not imported: source, target"):
            parquet.write(tables, out)
        made = np.load(out / "edge_feat.npy")
        assert made.dtype == kind
        assert made[:, 0].tolist() == [4, 3, 2, 1]
    with pytest.warns(UserWarning, match="nodes.parquet: columns that are not imported: b, name, label, part"):
        dataset = client.datasets.import_parquet(edges, "featured", nodes=nodes, id="key", features=["a"], edge_features=["weight", "time"],
                                                 progress=False)
    assert dataset.summary["edge features"] == 2
    with pytest.raises(permafrost.InputError, match="edges.parquet: none: there is no such column"):
        client.datasets.import_parquet(edges, "none", nodes=nodes, id="key", features=["a"], edge_features=["none"], progress=False)


@pytest.mark.parametrize(("kind", "values", "wanted"), [
    (pa.int32(), [3, 1, 2], [3, 1, 2]),
    (pa.timestamp("ms"), [1700000000000, -5, 0], [1700000000000, -5, 0]),
    # Parquet has no timestamps in seconds, and pyarrow writes milliseconds.
    (pa.timestamp("s"), [1700000000, -5, 0], [1700000000000, -5000, 0]),
    (pa.timestamp("us", tz="Europe/Berlin"), [2**53 + 1, 1, 2], [2**53 + 1, 1, 2]),
    (pa.date32(), [19000, 0, -1], [19000, 0, -1]),
    # pyarrow writes these as days.
    (pa.date64(), [86400000, 0, 172800000], [1, 0, 2]),
    (pa.time32("ms"), [1, 2, 3], [1, 2, 3]),
    (pa.time64("ns"), [1, 2, 3], [1, 2, 3]),
    (pa.duration("ms"), [1, -2, 3], [1, -2, 3]),
])
def test_times_of_edges_are_numbers_of_their_unit(tmp_path, kind, values, wanted):
    width = pa.int32() if kind.bit_width == 32 else pa.int64()
    edges = write(tmp_path / "edges.parquet", source=[0, 1, 2], target=[1, 2, 0], at=pa.array(values, width).cast(kind))
    tables = parquet.Tables(edges=edges, nodes=None, source="source", target="target", weight=None, timestamp="at", id=None, features=None,
                            labels=[], split=None)
    parquet.write(tables, tmp_path)
    made = np.load(tmp_path / "edge_time.npy")
    assert (made.dtype, made.tolist()) == (np.int64, wanted)


def test_timestamps_make_a_temporal_dataset(client, tmp_path):
    edges = write(tmp_path / "edges.parquet", source=[0, 1], target=[1, 2], at=pa.array([5, 7], pa.int64()).cast(pa.timestamp("ms")))
    assert client.datasets.import_parquet(edges, "dated", timestamp="at", progress=False).proto.graph.timestamped


@pytest.mark.parametrize(("values", "told"), [
    (pa.array([5, None], pa.timestamp("s")), "edges.parquet: row 1: at: None is missing"),
    (["yesterday", "today"], "edges.parquet: row 0: at: 'string' is the column's type, expected integers, timestamps, dates, times or durations"),
    ([0.5, 1.5], "edges.parquet: row 0: at: 'double' is the column's type, expected integers, timestamps"),
])
def test_a_bad_time_is_told_by_row_and_column(client, tmp_path, values, told):
    edges = write(tmp_path / "edges.parquet", source=[0, 1], target=[1, 2], at=values)
    with pytest.raises(permafrost.InputError, match=told):
        client.datasets.import_parquet(edges, "refused", timestamp="at", progress=False)


def test_text_ids(client, tmp_path):
    edges = write(tmp_path / "e.parquet", source=pa.array(["b", "a"]).dictionary_encode(), target=["a", "long"])
    nodes = write(tmp_path / "n.parquet", key=["a", "long", "b"], f=[1.0, 2.0, 3.0])
    assert client.datasets.import_parquet(edges, "text", nodes=nodes, id="key", progress=False).summary["edges"] == 2


def test_edges_alone(client, tmp_path):
    edges = write(tmp_path / "e.parquet", u=[0, 5], v=[1, 0])
    dataset = client.datasets.import_parquet(edges, "alone", source="u", target="v", no_inverse_edges=False, progress=False)
    assert (dataset.summary["nodes"], dataset.summary["edges"]) == (6, 4)


@pytest.mark.parametrize(("source", "told"), [
    ([0, 9, 1], r"edges.parquet: row 1: source: 9 is outside 0\.\.3, the rows of nodes"),
    ([0, -1, 1], "edges.parquet: row 1: source: -1 is outside"),
    ([0, None, 1], "edges.parquet: row 1: source: None is missing"),
    ([0.5, 1.0, 2.0], "edges.parquet: row 0: source: 'double' is the column's type, expected integers"),
    (["a", "b", "c"], "source: 'string' is the column's type"),
    (pa.array([0, 2**63 + 5, 1], pa.uint64()), r"row 1: source: 9223372036854775813 is outside 0\.\.2\^63-1"),
])
def test_a_bad_edge_is_told_by_row_and_column(client, tmp_path, nodes, source, told):
    edges = write(tmp_path / "edges.parquet", source=source, target=[0, 0, 0])
    with pytest.raises(permafrost.InputError, match=told):
        client.datasets.import_parquet(edges, "refused", nodes=nodes, features=["a"], progress=False)


@pytest.mark.parametrize(("columns", "options", "told"), [
    ({"key": [10, 10, 30, 40]}, {"id": "key"}, "nodes.parquet: row 1: key: 10 is the id of row 0 too"),
    ({"key": [10, None, 30, 40]}, {"id": "key"}, "nodes.parquet: row 1: key: None is missing"),
    ({"key": [10, 21, 30, 40]}, {"id": "key"}, "edges.parquet: row 2: source: 20 is no id of nodes"),
    ({"key": ["a", "b", "c", "d"]}, {"id": "key"}, "edges.parquet: row 0: source: 30 is of another type than the ids"),
    ({"key": [10, 20, 30, 40], "a": [1.0, float("nan"), 0.0, 0.0]}, {"id": "key"}, "nodes.parquet: row 1: a: nan is not a finite number"),
    ({"key": [10, 20, 30, 40], "a": [1.0, 2.0, 1e300, 0.0]}, {"id": "key"}, r"nodes.parquet: row 2: a: 1e\+300 is out of float32's range"),
    ({"key": [10, 20, 30, 40]}, {"id": "kee"}, "nodes.parquet: kee: there is no such column; there are key"),
])
def test_a_bad_node_is_told_by_row_and_column(client, tmp_path, edges, columns, options, told):
    nodes = write(tmp_path / "nodes.parquet", **columns)
    with pytest.raises(permafrost.InputError, match=told):
        client.datasets.import_parquet(edges, "refused", nodes=nodes, progress=False, **options)


def test_files_that_are_none(client, tmp_path, edges):
    (tmp_path / "no.parquet").write_text("source,target\n")
    with pytest.raises(permafrost.InputError, match="no.parquet: not a Parquet file"):
        client.datasets.import_parquet(tmp_path / "no.parquet", "refused")
    with pytest.raises(permafrost.InputError, match="label|labels: is a column of nodes, and nodes is not given"):
        client.datasets.import_parquet(edges, "refused", label="label")
    damaged = bytearray(edges.read_bytes())
    damaged[4:40] = b"x" * 36
    (tmp_path / "damaged.parquet").write_bytes(damaged)
    with pytest.raises(permafrost.InputError, match="damaged.parquet: row 0 and after: cannot be read"):
        client.datasets.import_parquet(tmp_path / "damaged.parquet", "refused")
