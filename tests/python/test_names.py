"""Tests the names of nodes and splits from each importer."""

import pathlib
import warnings

import networkx
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch_geometric.data import Data

import permafrost
from permafrost.public import own_errors
from permafrost.sources import files, parquet, pyg
from permafrost.sources import networkx as networkx_source
from tests.python.data import citations

TRIALS = pathlib.Path(__file__).resolve().parent.parent / "trials"
LINE = {"source": [0, 1, 2], "target": [1, 2, 3]}


def predicted(client, dataset):
    """Returns the names by which a job predicts its nodes."""
    job = client.jobs.submit(dataset, "gcn", epochs=1, hidden_channels=4, loss="cross_entropy").wait()
    return sorted(job.predictions(rows="all"))


def test_predictions_are_named_by_the_ids_of_the_table(client):
    folder = TRIALS / "ids"
    dataset = client.datasets.import_parquet(folder / "edges.parquet", "ids", nodes=folder / "nodes.parquet", id="id", label="y",
                                             progress=False)
    assert dataset.proto.graph.named
    assert predicted(client, dataset) == [f"n{i:02d}" for i in range(10)]


def test_predictions_are_named_by_the_nodes_of_networkx(client):
    graph = networkx.path_graph(["ann", "bob, jr", 'the "cat"', ("a", 1), 7])
    networkx.set_node_attributes(graph, {node: i % 2 for i, node in enumerate(graph)}, "y")
    networkx.set_node_attributes(graph, 1.5, "f")
    dataset = client.datasets.import_networkx(graph, "named-networkx", node_attributes=["f"], progress=False)
    assert predicted(client, dataset) == sorted(["ann", "bob, jr", 'the "cat"', "('a', 1)", "7"])


def test_predictions_are_named_by_what_pyg_is_given(client):
    data = citations(8)
    dataset = client.datasets.import_pyg(data, "named-pyg", names=np.arange(100, 108), progress=False)
    assert predicted(client, dataset) == [str(name) for name in range(100, 108)]
    with pytest.raises(permafrost.InputError, match="names: 3 of them, expected 8, one a node"):
        client.datasets.import_pyg(data, "refused", names=["a", "b", "c"], progress=False)
    with pytest.raises(permafrost.InputError, match="names: are given with many graphs"):
        client.datasets.import_pyg([data], "refused", names=["a"], progress=False)


def test_what_ogb_calls_its_nodes_comes_along(client, tmp_path):
    class Papers(torch.utils.data.Dataset):
        pass

    mapping = tmp_path / "root" / "mapping"
    mapping.mkdir(parents=True)
    (mapping / "nodeidx2paperid.csv").write_text("node idx,paper id\n" + "".join(f"{i},{900 + i}\n" for i in range(8)))
    dataset = Papers()
    dataset.root = str(tmp_path / "root")
    folder = tmp_path / "folder"
    folder.mkdir()
    pyg._copy_mapping(dataset, folder)
    pyg.write(citations(8), folder, None, 0)
    imported = client.datasets.upload_path(folder, "papers", progress=False)
    assert "nodes are called as mapping/nodeidx2paperid.csv says" in imported.import_notes
    assert predicted(client, imported) == [str(900 + i) for i in range(8)]


@pytest.mark.parametrize(("names", "told"), [
    (["a", "b\nc"], "the name of node 1 has more than one line"),
    (["1", 1], "the name of node 1 is another one's too: '1'"),
    (["a", ""], "the name of node 1 is empty"),
    (["a", "\ud800"], "the name of node 1 is no UTF-8"),
])
def test_names_that_cannot_be_kept_are_told(tmp_path, names, told):
    with pytest.warns(UserWarning, match=f"x: nodes are called by their rows: {told}"):
        files.write_names(tmp_path, names, "x")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("names", "written"), [([0, 1, 2], []), ([2, 0, 1], ["node_ids.npy"]), ([-1, 0, 1], ["node_names.csv"])])
def test_rows_are_no_names(tmp_path, names, written):
    files.write_names(tmp_path, names, "x")
    assert [path.name for path in tmp_path.iterdir()] == written


@pytest.mark.parametrize("name", ["validation", "dev"])
def test_a_split_by_another_name_is_read(client, name):
    folder = TRIALS / "splits"
    dataset = client.datasets.import_parquet(folder / "edges.parquet", f"split-{name}", nodes=folder / f"{name}.parquet", label="y",
                                             split="split", progress=False)
    assert [dataset.summary[split] for split in files.SPLITS] == [6, 2, 2]


def split_by(tmp_path, values):
    pq.write_table(pa.table({"source": [0], "target": [1]}), tmp_path / "edges.parquet")
    pq.write_table(pa.table({"part": values}), tmp_path / "nodes.parquet")
    parquet.write(parquet.Tables(edges=tmp_path / "edges.parquet", nodes=tmp_path / "nodes.parquet", source="source", target="target",
                                 weight=None, timestamp=None, id=None, features=[], labels=[], split="part"), tmp_path)
    return {name: np.load(tmp_path / f"{name}_idx.npy").tolist() for name in files.SPLITS}


@pytest.mark.parametrize("at_once", [1, 100])
def test_splits_in_any_case_and_between_spaces(tmp_path, monkeypatch, at_once):
    monkeypatch.setattr(parquet, "_ROWS", at_once)
    values = ["Train", "train ", "TRAINING", None, "Val", "valid", " Validation", "dev", "test", "Testing"]
    for column in (values, pa.array(values).dictionary_encode()):
        assert split_by(tmp_path, column) == {"train": [0, 1, 2], "valid": [4, 5, 6, 7], "test": [8, 9]}


@pytest.mark.parametrize("at_once", [1, 100])
@pytest.mark.parametrize(("values", "told"), [
    (["train", "holdout", "x", "holdout"], r"nodes.parquet: row 1: part: 'holdout' \(2 rows\), 'x' \(1 row\): no split; accepted: train, valid, test"),
    ([0, 1, 2, 1], r"nodes.parquet: row 0: part: 0 \(1 row\), 1 \(2 rows\), 2 \(1 row\): no split"),
    (["train", "", None], r"row 1: part: '' \(1 row\): no split"),
    ([f"s{i}" for i in range(9)], r"'s4' \(1 row\) and 4 more: no split"),
])
def test_what_is_no_split_is_refused_with_its_count(tmp_path, monkeypatch, values, told, at_once):
    monkeypatch.setattr(parquet, "_ROWS", at_once)
    with pytest.raises(permafrost.InputError, match=told):
        split_by(tmp_path, values)


def test_splits_of_dicts_go_by_the_same_names(tmp_path):
    given = {"Training": [0], "dev": [1, 2], "TEST ": [3]}
    found = files.check_splits(given, 4, "x")
    assert {name: rows.tolist() for name, rows in found.items()} == {"train": [0], "valid": [1, 2], "test": [3]}
    with pytest.raises(permafrost.InputError, match="x: splits: 'dev' names valid a second time"):
        files.check_splits({"val": [0], "dev": [1]}, 4, "x")
    with pytest.raises(permafrost.InputError, match="x: splits: 'holdout' is none of train, valid, test, or training"):
        files.check_splits({"holdout": [0]}, 4, "x")
    with pytest.raises(permafrost.InputError, match="x: splits: 0 is none of train"):
        files.check_splits({0: [0]}, 4, "x")
    one = [Data(x=torch.ones(1, 1), edge_index=torch.zeros(2, 0, dtype=torch.long), y=torch.ones(1))]
    pyg.write({"Train": one, "validation": one, "testing": one}, tmp_path, None, 0)
    assert (tmp_path / "split" / "given" / "valid.csv").read_text() == "1\n"


def test_numbers_beyond_float32_are_told_as_such(tmp_path):
    data = citations(4)
    data.x = data.x.double()
    data.x[2, 1] = 1e39
    with pytest.raises(permafrost.InputError, match=r"x: element \[2, 1\]: 1e\+39 is out of float32's range"):
        pyg.write(data, tmp_path, None, 0)
    graph = networkx.Graph([(0, 1)])
    networkx.set_node_attributes(graph, 1e300, "f")
    with pytest.raises(permafrost.InputError, match=r"import_networkx: nodes: f: element \[0, 0\]: 1e\+300 is out of float32's range"):
        networkx_source.write(graph, tmp_path, ["f"], [], "y", None, None)


def test_public_calls_raise_the_packages_own_errors(client, tmp_path):
    data = citations(8)
    for call, told in (
        (lambda: client.datasets.import_pyg([1, 2], "refused", progress=False), "graph 0: is a int, expected a Data"),
        (lambda: client.datasets.import_pyg({"train": 5}, "refused", progress=False), "train: is a int, expected a Dataset"),
        (lambda: client.datasets.import_pyg(data, "refused", splits=[1, 2], progress=False), "splits"),
        (lambda: client.datasets.import_networkx(5, "refused", progress=False), "is a int, expected a networkx.Graph"),
        (lambda: client.datasets.import_smiles(tmp_path / "no.csv", "refused", column="smiles", progress=False), "no.csv: not found"),
        (lambda: client.datasets.import_smiles(5, "refused", column="smiles", progress=False), "import_smiles: "),
        (lambda: client.datasets.import_parquet(tmp_path / "no.parquet", "refused", progress=False), "no.parquet: not found"),
        (lambda: client.datasets.upload_path(tmp_path / "no", "refused", progress=False), "no: not found"),
        (lambda: client.datasets.import_path(5, "refused", progress=False), "import_path: "),
        (lambda: client.datasets.get(5), "get: "),
        (lambda: client.jobs.get(None), "get: "),
        (lambda: client.jobs.submit(5), "submit: "),
    ):
        with pytest.raises(permafrost.PermafrostError, match=told) as raised, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call()
        assert "\n" not in str(raised.value)
    with pytest.raises(TypeError, match="missing 1 required"):
        client.datasets.get()


def test_an_error_has_what_was_raised_first_for_its_cause_and_never_itself():
    @own_errors
    class Public:
        def own(self):
            raise permafrost.InputError("told")

        def each(self):
            yield 1
            raise permafrost.InputError("told")

        def foreign(self):
            raise ValueError("strange")

    for call in (Public().own, lambda: list(Public().each())):
        with pytest.raises(permafrost.InputError, match="^told$") as raised:
            call()
        assert raised.value.__cause__ is None
    with pytest.raises(permafrost.InputError, match="^foreign: strange$") as raised:
        Public().foreign()
    assert type(raised.value.__cause__) is ValueError


def test_a_jobs_calls_raise_the_packages_own_errors(client, tmp_path):
    dataset = client.datasets.import_pyg(citations(8), "own-errors", progress=False)
    job = client.jobs.submit(dataset, "gcn", epochs=1, hidden_channels=4, loss="cross_entropy").wait()
    for call, told in (
        (lambda: job.predict([1, 2]), "predict: "),
        (lambda: job.predict(5), "predict: "),
        (lambda: job.export(tmp_path / "no" / "where.csv", "test_predictions"), "export: .*where.csv.*: No such file or directory"),
        (lambda: job.predictions(path=tmp_path / "no" / "where.csv"), "predictions: .*: No such file or directory"),
        (lambda: job.export(tmp_path), "is a directory"),
    ):
        with pytest.raises(permafrost.InputError, match=told) as raised:
            call()
        assert "\n" not in str(raised.value)


def test_a_field_beyond_the_message_limit_is_named(client):
    with pytest.raises(permafrost.InputError, match="labels: 2000004 bytes, and a request has room for 1048576 in all") as raised:
        client.jobs.submit("none", "gcn", labels={"note": "x" * 2_000_000})
    assert raised.value.violations[0].field == "labels"
    with pytest.raises(permafrost.InputError, match=r"options.source_path: 2000001 bytes"):
        client.datasets.import_path("/" + "x" * 2_000_000, "refused", progress=False)


def test_errors_are_short_whatever_the_value(client):
    with pytest.raises(permafrost.PermafrostError) as raised:
        client.jobs.submit("none", "gcn", loss="x" * 1_000_000)
    assert len(str(raised.value)) < 500
    with pytest.raises(permafrost.PermafrostError) as raised:
        client.datasets.get("x" * 500_000)
    assert len(str(raised.value)) < 1000
