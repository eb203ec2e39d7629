"""Reads one large graph from Parquet tables, in batches of rows. Needs pyarrow.

Memory: the ids and splits of all nodes, and one batch of edges."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from permafrost.errors import InputError, Violation, shown
from permafrost.sources.files import SPLITS, SPLITS_ACCEPTED, Array, split_called, write_names

_ROWS = 1 << 18


@dataclass
class Tables:
    edges: pathlib.Path
    nodes: pathlib.Path | None
    source: str
    target: str
    weight: str | None
    timestamp: str | None
    id: str | None
    features: Sequence[str] | None
    labels: Sequence[str]
    split: str | None
    edge_features: Sequence[str] = ()


@dataclass
class _Nodes:
    """The facts of the nodes that edges need. sorted_ids holds the ids in rising order, and `rows` the row of each."""

    count: int
    sorted_ids: Array | None = None
    rows: Array | None = None


@dataclass
class _Table:
    path: pathlib.Path
    file: Any = field(init=False)

    def __post_init__(self) -> None:
        try:
            self.file = pq.ParquetFile(self.path)
        except FileNotFoundError:
            raise InputError(f"import_parquet: {self.path}: not found") from None
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"import_parquet: {self.path}: not a Parquet file that pyarrow reads: {error}") from None

    @property
    def rows(self) -> int:
        return int(self.file.metadata.num_rows)

    def check(self, columns: Sequence[str]) -> None:
        names = self.file.schema_arrow.names
        for column in columns:
            if column not in names:
                raise InputError(f"{self.path.name}: {column}: there is no such column; there are {', '.join(names)}")

    def warn_of_others(self, columns: Sequence[str]) -> None:
        others = [name for name in self.file.schema_arrow.names if name not in columns]
        if others:
            warnings.warn(f"{self.path.name}: columns that are not imported: {', '.join(others)}", stacklevel=2)

    def batches(self, columns: Sequence[str]) -> Iterator[tuple[int, Any]]:
        """Yields the number of each batch's first row, and the batch."""
        first = 0
        try:
            for batch in self.file.iter_batches(_ROWS, columns=list(dict.fromkeys(columns))):
                yield first, batch
                first += batch.num_rows
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"{self.path.name}: row {first} and after: cannot be read: {error}") from None

    def fail(self, row: int, column: str, value: Any, why: str) -> InputError:
        where = f"{self.path.name}: row {row}: {column}"
        return InputError(f"{where}: {shown(value)} {why}", violations=[Violation(where, why)])

    def numbers(
        self, batch: Any, first: int, column: str, kind: type, *, missing: bool = False, times: bool = False
    ) -> Array:
        """Returns a column as np.int64 or np.float32. missing: an empty cell becomes NaN instead of an error. times:
        also takes Arrow's timestamps, dates, times and durations, as numbers of the column's unit, such as days for a
        date32."""
        values = batch.column(batch.schema.get_field_index(column))
        whole = kind is np.int64
        if times and pa.types.is_temporal(values.type) and not pa.types.is_interval(values.type):
            # Arrow casts them only to integers of the same width.
            values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
        fits = pa.types.is_integer(values.type) or (
            not whole and (pa.types.is_floating(values.type) or pa.types.is_boolean(values.type))
        )
        if not fits:
            accepted = "integers" if whole else "numbers"
            accepted += ", timestamps, dates, times or durations" if times else ""
            raise self.fail(first, column, str(values.type), f"is the column's type, expected {accepted}")
        if values.null_count and not missing:
            row = int(np.flatnonzero(pc.is_null(values).to_numpy(zero_copy_only=False))[0])
            raise self.fail(first + row, column, None, "is missing")
        if whole and pa.types.is_uint64(values.type):
            large = np.flatnonzero(values.to_numpy(zero_copy_only=False) > np.uint64(2**63 - 1))
            if large.size:
                raise self.fail(first + int(large[0]), column, values[int(large[0])].as_py(), "is outside 0..2^63-1")
        array = values.cast(pa.int64() if whole else pa.float64()).to_numpy(zero_copy_only=False)
        if whole:
            return np.asarray(array)
        with np.errstate(over="ignore"):
            table = array.astype(np.float32)
        bad = np.flatnonzero(np.isinf(table) | (np.isnan(table) & (not missing)))
        if bad.size:
            value = array[bad[0]].item()
            why = "is out of float32's range (3.4e38 at most)" if np.isfinite(value) else "is not a finite number"
            raise self.fail(first + int(bad[0]), column, value, why)
        return np.asarray(table)


def write(tables: Tables, folder: pathlib.Path) -> dict[str, Any]:
    """Writes the tables. Returns ImportOptions."""
    nodes = _write_nodes(tables, folder)
    largest = _write_edges(tables, nodes, folder)
    count = nodes.count if nodes else largest + 1
    return {"format": "npy", "edge_list": {"num_nodes": count}}


def _npy(path: pathlib.Path, dtype: Any, shape: tuple[int, ...]) -> BinaryIO:
    """Opens an NPY file and writes its header. The caller then writes the values in order of rows."""
    file = path.open("wb")
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file


def _write_nodes(tables: Tables, folder: pathlib.Path) -> _Nodes | None:
    if tables.nodes is None:
        for name in ("id", "features", "labels", "split"):
            if getattr(tables, name):
                raise InputError(f"import_parquet: {name}: is a column of nodes, and nodes is not given")
        return None
    table = _Table(tables.nodes)
    special = [c for c in (tables.id, tables.split, *tables.labels) if c]
    features = list(tables.features) if tables.features is not None else _numeric(table, special)
    table.check([*special, *features])
    table.warn_of_others([*special, *features])
    ids: list[Array] = []
    splits = _SplitColumn(table, tables.split)
    writers: list[tuple[BinaryIO, Callable[[int, Any], Array]]] = []

    def block(name: str, columns: Sequence[str], missing: bool) -> None:
        if columns:
            file = _npy(folder / f"{name}.npy", np.float32, (table.rows, len(columns)))
            writers.append((file, lambda first, batch: _stack(table, batch, first, columns, missing)))

    block("node_feat", features, False)
    block("node_label", tables.labels, True)
    try:
        for first, batch in table.batches([*special, *features]):
            for file, make_rows in writers:
                file.write(np.ascontiguousarray(make_rows(first, batch)).tobytes())
            if tables.id:
                ids.append(_id_column(table, batch, first, tables.id))
            if tables.split:
                splits.add(first, batch)
    finally:
        for file, _ in writers:
            file.close()
    if tables.split:
        kinds = splits.kinds()
        for number, name in enumerate(SPLITS):
            np.save(folder / f"{name}_idx.npy", np.flatnonzero(kinds == number))
    if not tables.id:
        return _Nodes(table.rows)
    all_ids = np.concatenate(ids) if ids else np.zeros(0, np.int64)
    rows = np.argsort(all_ids, kind="stable")
    sorted_ids = all_ids[rows]
    twice = np.flatnonzero(sorted_ids[1:] == sorted_ids[:-1])
    if twice.size:
        row, other = int(rows[twice[0] + 1]), int(rows[twice[0]])
        raise table.fail(row, tables.id, sorted_ids[twice[0]].item(), f"is the id of row {other} too")
    write_names(folder, all_ids, f"import_parquet: {table.path.name}")
    return _Nodes(table.rows, sorted_ids, rows)


def _numeric(table: _Table, special: Sequence[str]) -> list[str]:
    def fits(kind: Any) -> bool:
        return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))

    return [f.name for f in table.file.schema_arrow if f.name not in special and fits(f.type)]


def _stack(table: _Table, batch: Any, first: int, columns: Sequence[str], missing: bool) -> Array:
    return np.stack([table.numbers(batch, first, c, np.float32, missing=missing) for c in columns], axis=1)


def _id_column(table: _Table, batch: Any, first: int, column: str) -> Array:
    """Returns integers, or texts as fixed-width unicode."""
    values = batch.column(batch.schema.get_field_index(column))
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return table.numbers(batch, first, column, np.int64)
    if values.null_count:
        row = int(np.flatnonzero(pc.is_null(values).to_numpy(zero_copy_only=False))[0])
        raise table.fail(first + row, column, None, "is missing")
    return np.asarray(values.to_numpy(zero_copy_only=False).astype(str))


class _SplitColumn:
    """Finds the split of each row from the texts of a column."""

    def __init__(self, table: _Table, column: str | None) -> None:
        self._table, self._column = table, column or ""
        self._kinds: list[Array] = []
        # Maps each value that names no split to its first row and the number of rows that have it.
        self._strange: dict[Any, tuple[int, int]] = {}

    def add(self, first: int, batch: Any) -> None:
        values = batch.column(batch.schema.get_field_index(self._column))
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        encoded = values.dictionary_encode()
        codes = encoded.indices.fill_null(len(encoded.dictionary)).to_numpy(zero_copy_only=False)
        # A missing value is in no split.
        kinds = np.full(len(encoded.dictionary) + 1, -1, np.int8)
        names = encoded.dictionary.to_pylist()
        # Looks at each distinct value once. There may be as many values as rows.
        for code, row, rows in zip(*np.unique(codes, return_index=True, return_counts=True), strict=True):
            if code == len(names):
                continue
            split = split_called(names[code])
            if split is not None:
                kinds[code] = SPLITS.index(split)
                continue
            begin, count = self._strange.get(shown(names[code]), (first + int(row), 0))
            self._strange[shown(names[code])] = (begin, count + int(rows))
        self._kinds.append(kinds[codes])

    def kinds(self) -> Array:
        """Returns the split of each row, or -1 if it is in none. Errors: InputError for values that name no split."""
        if self._strange:
            values = [f"{v} ({count} row{'s' if count > 1 else ''})" for v, (_, count) in self._strange.items()]
            more = f" and {len(values) - 5} more" if len(values) > 5 else ""
            where = f"{self._table.path.name}: row {min(row for row, _ in self._strange.values())}: {self._column}"
            why = f"accepted: {SPLITS_ACCEPTED}, in any case; a missing value is in no split"
            raise InputError(
                f"{where}: {', '.join(values[:5])}{more}: no split; {why}", violations=[Violation(where, why)]
            )
        return np.concatenate(self._kinds) if self._kinds else np.zeros(0, np.int8)


def _write_edges(tables: Tables, nodes: _Nodes | None, folder: pathlib.Path) -> int:
    """Returns the largest row that an edge names, or -1 without edges."""
    table = _Table(tables.edges)
    features = list(tables.edge_features)
    columns = [tables.source, tables.target, *(c for c in (tables.weight, tables.timestamp) if c), *features]
    table.check(columns)
    table.warn_of_others(columns)
    kinds = {table.file.schema_arrow.field(name).type for name in features}
    # Integers are categories, as in every other import.
    whole = bool(kinds) and all(pa.types.is_integer(kind) for kind in kinds)
    files = {"edge_index": _npy(folder / "edge_index.npy", np.int64, (table.rows, 2))}
    if tables.weight:
        files["edge_weight"] = _npy(folder / "edge_weight.npy", np.float32, (table.rows,))
    if tables.timestamp:
        files["edge_time"] = _npy(folder / "edge_time.npy", np.int64, (table.rows,))
    kind = np.int64 if whole else np.float32
    if features:
        files["edge_feat"] = _npy(folder / "edge_feat.npy", kind, (table.rows, len(features)))
    largest = -1
    try:
        for first, batch in table.batches(columns):
            ends = [_rows(table, batch, first, column, nodes) for column in (tables.source, tables.target)]
            if batch.num_rows:
                largest = max(largest, *(int(end.max()) for end in ends))
            files["edge_index"].write(np.stack(ends, axis=1).tobytes())
            if tables.weight:
                weights = table.numbers(batch, first, tables.weight, np.float32)
                bad = np.flatnonzero(weights < 0)
                if bad.size:
                    row = int(bad[0])
                    why = "is negative; weights of at least 0 are accepted"
                    raise table.fail(first + row, tables.weight, weights[row].item(), why)
                files["edge_weight"].write(weights.tobytes())
            if tables.timestamp:
                files["edge_time"].write(table.numbers(batch, first, tables.timestamp, np.int64, times=True).tobytes())
            if features:
                rows = [table.numbers(batch, first, column, kind) for column in features]
                files["edge_feat"].write(np.stack(rows, axis=1).tobytes())
    finally:
        for file in files.values():
            file.close()
    if table.rows == 2:
        # The server reads [2, 2] as in PyG: a row of sources, then a row of targets.
        path = folder / "edge_index.npy"
        np.save(path, np.ascontiguousarray(np.load(path).T))
    return largest


def _rows(table: _Table, batch: Any, first: int, column: str, nodes: _Nodes | None) -> Array:
    """Returns the rows of the nodes that a column names."""
    if nodes is None or nodes.sorted_ids is None or nodes.rows is None:
        ends = table.numbers(batch, first, column, np.int64)
        most = (nodes.count if nodes else 2**32 - 1) - 1
        bad = np.flatnonzero((ends < 0) | (ends > most))
        if bad.size:
            why = f"is outside 0..{most}{', the rows of nodes' if nodes else ''}"
            raise table.fail(first + int(bad[0]), column, ends[bad[0]].item(), why)
        return ends
    ids = _id_column(table, batch, first, column)
    if ids.dtype.kind != nodes.sorted_ids.dtype.kind:
        raise table.fail(first, column, ids[0].item() if ids.size else None, "is of another type than the ids of nodes")
    places = np.searchsorted(nodes.sorted_ids, ids)
    found = np.minimum(places, nodes.sorted_ids.size - 1)
    bad = np.flatnonzero(nodes.sorted_ids[found] != ids) if nodes.sorted_ids.size else np.arange(ids.size)
    if bad.size:
        raise table.fail(first + int(bad[0]), column, ids[bad[0]].item(), "is no id of nodes")
    return np.asarray(nodes.rows[found])
