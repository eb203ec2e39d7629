"""Tests molecules: OGB's columns, missing targets, and texts that are no molecule."""

import gzip

import pytest

import permafrost
from permafrost.sources.smiles import _molecules, molecule

# The results of ogb.utils.features (1.3.6) for these with RDKit.
ALANINE = "N[C@@H](C)C(=O)[O-]"
ALANINE_ATOMS = [[6, 0, 3, 5, 2, 0, 2, 0, 0], [5, 1, 4, 5, 1, 0, 2, 0, 0], [5, 0, 4, 5, 3, 0, 2, 0, 0], [5, 0, 3, 5, 0, 0, 1, 0, 0],
                 [7, 0, 1, 5, 0, 0, 1, 0, 0], [7, 0, 1, 4, 0, 0, 1, 0, 0]]
PYRROLE_ATOMS = [[5, 0, 3, 5, 1, 0, 1, 1, 1]] * 3 + [[6, 0, 3, 5, 1, 0, 1, 1, 1], [5, 0, 3, 5, 1, 0, 1, 1, 1]]


def test_columns_are_those_of_ogb():
    assert molecule(ALANINE).x.tolist() == ALANINE_ATOMS
    assert molecule("c1cc[nH]c1").x.tolist() == PYRROLE_ATOMS
    assert molecule("F/C=C/F").edge_attr.tolist() == [[0, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert molecule("*").x.tolist()[0][0] == 118
    assert molecule("[Na+]").edge_index.shape == (2, 0)


def write(path, *lines):
    path.write_text("id,smiles,gap,active\n" + "".join(f"{line}\n" for line in lines))
    return path


def test_a_set_of_molecules(client, tmp_path):
    path = write(tmp_path / "molecules.csv", f"a,{ALANINE},1.5,1", "b,c1cc[nH]c1,,0", '"c, d",CCO,-2,nan')
    dataset = client.datasets.import_smiles(path, "molecules", column="smiles", targets=["gap", "active"],
                                            splits={"train": [0, 1], "test": [2]}, progress=False)
    assert dataset.summary == {"graphs": 3, "train": 2, "valid": 0, "test": 1, "nodes": 14, "edges": 24, "node features": 9,
                               "edge features": 3, "targets": 2}
    assert dataset.proto.graph_set.num_missing_labels == 2
    with gzip.open(tmp_path / "molecules.csv.gz", "wt") as file:
        file.write(path.read_text())
    assert client.datasets.import_smiles(tmp_path / "molecules.csv.gz", "molecules-gz", column="smiles", targets="gap",
                                         progress=False).summary["targets"] == 1
    with pytest.warns(UserWarning, match="import_smiles: molecules.csv: no graph has a label"):
        bare = client.datasets.import_smiles(path, "molecules-bare", column="smiles", progress=False)
    assert bare.proto.graph_set.num_missing_labels == 3


@pytest.mark.parametrize(("line", "told"), [
    ("c,C1CC,1,1", "molecules.csv:3: smiles: 'C1CC' is no SMILES"),
    ("c,,1,1", "molecules.csv:3: smiles: '' is no SMILES"),
    ("c,CC,high,1", "molecules.csv:3: gap: 'high' is neither a finite number nor missing"),
    ("c,CC,1,inf", "molecules.csv:3: active: 'inf' is neither"),
    ("c,CC,1", "molecules.csv:3: 3 cells, expected 4"),
])
def test_a_bad_cell_is_told_by_row_and_column(client, tmp_path, line, told):
    path = write(tmp_path / "molecules.csv", "a,CC,1,1", line, "d,CC,1,1")
    with pytest.raises(permafrost.InputError, match=told) as caught:
        client.datasets.import_smiles(path, "refused", column="smiles", targets=["gap", "active"], progress=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("name", "content", "told"), [
    ("m.csv", b"smiles\nCC\n\xff\n", "m.csv:1 and after: cannot be read: 'utf-8' codec can't decode byte 0xff"),
    ("m.csv", b"smiles\nCC\n" + b"C" * 200_000, "m.csv:3 and after: cannot be read: field larger than field limit"),
    ("m.csv.gz", b"smiles\nCC\n", "m.csv.gz:1 and after: cannot be read: Not a gzipped file"),
    ("m.csv.gz", gzip.compress(b"smiles\nCC\n")[:-9], "m.csv.gz:3 and after: cannot be read: Compressed file ended"),
    ("m.csv.gz", gzip.compress(b"smiles\nCC\n")[:10] + b"\xff" * 20, "m.csv.gz:1 and after: cannot be read: Error -3"),
])
def test_a_file_that_cannot_be_read_is_told_by_row(tmp_path, name, content, told):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(permafrost.InputError, match=told) as caught:
        list(_molecules(tmp_path / name, "smiles", []))
    assert "\n" not in str(caught.value)


def test_a_column_that_there_is_not(client, tmp_path):
    path = write(tmp_path / "molecules.csv", "a,CC,1,1")
    with pytest.raises(permafrost.InputError, match="SMILES: there is no such column; there are id, smiles, gap, active"):
        client.datasets.import_smiles(path, "refused", column="SMILES", targets="gap")
    with pytest.raises(permafrost.InputError, match="nowhere.csv: not found"):
        client.datasets.import_smiles(tmp_path / "nowhere.csv", "refused", column="smiles", targets="gap")
