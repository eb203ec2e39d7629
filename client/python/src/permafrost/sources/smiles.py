"""Writes molecules from SMILES, with the atom and bond columns of OGB (ogb.utils.features; Hu et al. 2020, "Open
Graph Benchmark"). Needs RDKit."""

from __future__ import annotations

import csv
import gzip
import io
import math
import os
import pathlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import IO, Any

import numpy as np
from rdkit import Chem, rdBase

from permafrost.errors import InputError, Violation, needs, shown
from permafrost.sources.files import GraphArrays, write_set

# Each list has the texts for values 0, 1, 2 ... Where a list ends in "misc", any other text gets the value of "misc".
_CHIRALITY = ("CHI_UNSPECIFIED", "CHI_TETRAHEDRAL_CW", "CHI_TETRAHEDRAL_CCW", "CHI_OTHER", "misc")
_HYBRIDIZATION = ("SP", "SP2", "SP3", "SP3D", "SP3D2", "misc")
_BOND = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", "misc")
_LARGEST = float(np.finfo(np.float32).max)
_STEREO = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")


def write(
    path: pathlib.Path, folder: pathlib.Path, column: str, targets: Sequence[str], splits: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Writes the molecules. Returns ImportOptions."""
    with rdBase.BlockLogs():
        return write_set(folder, _molecules(path, column, targets), splits, f"import_smiles: {path.name}")


def _molecules(path: pathlib.Path, column: str, targets: Sequence[str]) -> Iterator[GraphArrays]:
    if not path.is_file():
        raise InputError(f"import_smiles: {path}: not found")
    rows = _rows(path)
    _, header = next(rows, ("", []))
    for name in (column, *targets):
        if name not in header:
            raise InputError(f"{path.name}: {name}: there is no such column; there are {', '.join(header)}")
    places = [header.index(name) for name in targets]
    place = header.index(column)
    for where, row in rows:
        if not row:
            continue
        if len(row) != len(header):
            raise InputError(f"{where}: {len(row)} cells, expected {len(header)}, as the header has")
        graph = molecule(row[place].strip())
        if graph is None:
            raise _bad(where, column, row[place], "is no SMILES that RDKit reads")
        if places:
            graph.y = np.array([_target(where, header[p], row[p]) for p in places], dtype=np.float32)
        yield graph


def _rows(path: pathlib.Path) -> Iterator[tuple[str, list[str]]]:
    """Yields each row with its end as FILE:LINE."""
    # Opens the file so that a byte order mark does not become part of the first column's name.
    with _opened(path) as file:
        rows = csv.reader(file)
        while True:
            first = rows.line_num + 1
            try:
                row = next(rows, None)
            except (UnicodeDecodeError, csv.Error, EOFError, OSError, zlib.error) as error:
                # Text is decoded ahead of its lines, so the fault may be on a later line.
                raise InputError(f"{path.name}:{first} and after: cannot be read: {error}") from None
            if row is None:
                return
            yield f"{path.name}:{rows.line_num}", row


def _opened(path: pathlib.Path) -> IO[str]:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8-sig", newline="")
    if path.suffix != ".zst":
        return path.open("rt", encoding="utf-8-sig", newline="")
    try:
        import pyarrow as pa
    except ImportError as error:
        raise needs("import_smiles of a .zst file", "parquet", error) from None
    # pyarrow unpacks zstd. Python itself does so only from 3.14 on.
    unpacked = pa.CompressedInputStream(pa.OSFile(os.fspath(path)), "zstd")
    return io.TextIOWrapper(unpacked, encoding="utf-8-sig", newline="")


def _bad(where: str, column: str, value: str, why: str) -> InputError:
    return InputError(f"{where}: {column}: {shown(value)} {why}", violations=[Violation(f"{where}: {column}", why)])


def _target(where: str, column: str, cell: str) -> float:
    if cell.strip() in ("", "nan", "NaN", "NA"):
        return math.nan
    try:
        value = float(cell)
    except ValueError:
        value = math.inf
    if math.isfinite(value) and abs(value) > _LARGEST:
        raise _bad(where, column, cell, "is out of float32's range (3.4e38 at most)")
    if not math.isfinite(value):
        raise _bad(where, column, cell, "is neither a finite number nor missing (empty, nan or NA)")
    return value


def molecule(smiles: str) -> GraphArrays | None:
    """Returns the graph of a molecule, with one edge for each bond. Returns None for invalid SMILES, or a molecule
    without atoms."""
    mol = Chem.MolFromSmiles(smiles)
    if mol is None or mol.GetNumAtoms() == 0:
        return None
    bonds = list(mol.GetBonds())
    return GraphArrays(
        num_nodes=mol.GetNumAtoms(),
        edge_index=np.array([(b.GetBeginAtomIdx(), b.GetEndAtomIdx()) for b in bonds], np.int64).reshape(-1, 2).T,
        x=np.array([_atom(atom) for atom in mol.GetAtoms()], dtype=np.int64),
        edge_attr=np.array([_bond_columns(b) for b in bonds], dtype=np.int64).reshape(-1, 3),
    )


def _atom(atom: Any) -> list[int]:
    return [
        _range(atom.GetAtomicNum(), 1, 118),
        _index(_CHIRALITY, str(atom.GetChiralTag())),
        _range(atom.GetTotalDegree(), 0, 10),
        _range(atom.GetFormalCharge(), -5, 5),
        _range(atom.GetTotalNumHs(), 0, 8),
        _range(atom.GetNumRadicalElectrons(), 0, 4),
        _index(_HYBRIDIZATION, str(atom.GetHybridization())),
        int(atom.GetIsAromatic()),
        int(atom.IsInRing()),
    ]


def _bond_columns(bond: Any) -> list[int]:
    return [_index(_BOND, str(bond.GetBondType())), _index(_STEREO, str(bond.GetStereo())), int(bond.GetIsConjugated())]


def _index(names: tuple[str, ...], name: str) -> int:
    return names.index(name) if name in names else len(names) - 1


def _range(value: int, first: int, last: int) -> int:
    return value - first if first <= value <= last else last - first + 1
