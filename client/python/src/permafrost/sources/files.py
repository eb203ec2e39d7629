"""Writes graphs as files: one large graph as a folder of NPY files, many small ones in OGB's CSV layout."""

from __future__ import annotations

import math
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from permafrost.errors import InputError, shown

Array = np.ndarray[Any, Any]
SPLITS = ("train", "valid", "test")
# Other names of splits. Case and surrounding spaces do not matter.
_SPLIT_NAMES = {"training": "train", "val": "valid", "validation": "valid", "dev": "valid", "testing": "test"}
SPLITS_ACCEPTED = "train, valid, test, or training, val, validation, dev, testing"
# The number of graphs whose rows are formatted together.
_AT_ONCE = 1024


@dataclass
class GraphArrays:
    """A graph. edge_index is [2, E] integers. The other arrays have a row for each node or edge; `y` of a small graph
    is one row."""

    num_nodes: int
    edge_index: Array
    x: Array | None = None
    edge_attr: Array | None = None
    edge_weight: Array | None = None
    edge_time: Array | None = None
    node_time: Array | None = None
    pos: Array | None = None
    y: Array | None = None
    # The names of one large graph's nodes: numbers, or values that `str` turns into texts.
    names: Sequence[Any] | Array | None = None


def split_called(name: Any) -> str | None:
    """Returns the entry of SPLITS that a name means, or None if it means none."""
    if not isinstance(name, str):
        return None
    plain = name.strip().lower()
    return plain if plain in SPLITS else _SPLIT_NAMES.get(plain)


def by_split(given: Mapping[Any, Any], what: str) -> dict[str, Any]:
    """Returns the given values by the split's name in SPLITS."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        split = split_called(name)
        if split is None:
            raise InputError(f"{what}: {shown(name)} is none of {SPLITS_ACCEPTED}")
        if split in found:
            raise InputError(f"{what}: {shown(name)} names {split} a second time; accepted: each split once")
        found[split] = value
    return found


def check_splits(splits: Mapping[str, Any], items: int, what: str) -> dict[str, Array]:
    """Returns the indices of each split. Every index is in 0..items-1."""
    if not isinstance(splits, Mapping):
        raise InputError(f"{what}: splits: is a {type(splits).__name__}, expected a dict of indices by split")
    found = {name: np.asarray(values).reshape(-1) for name, values in by_split(splits, f"{what}: splits").items()}
    for name in SPLITS:
        rows = found.setdefault(name, np.zeros(0, np.int64))
        if rows.dtype == bool:
            if rows.size != items:
                raise InputError(f"{what}: splits: {name}: {rows.size} mask values, expected {items}")
            rows = found[name] = np.flatnonzero(rows)
        if rows.size and not np.issubdtype(rows.dtype, np.integer):
            raise InputError(f"{what}: splits: {name}: {rows.dtype} values, expected indices")
        bad = rows[(rows < 0) | (rows >= items)]
        if bad.size:
            raise InputError(f"{what}: splits: {name}: {bad[0]} is outside 0..{items - 1}")
    return found


def check_edges(graph: GraphArrays, what: str) -> None:
    index = graph.edge_index
    if index.ndim != 2 or index.shape[0] != 2 or not np.issubdtype(index.dtype, np.integer):
        raise InputError(
            f"{what}: edge_index: {index.dtype} of shape {list(index.shape)}, expected integers [2, edges]"
        )
    if index.size:
        bad = np.flatnonzero(((index < 0) | (index >= graph.num_nodes)).any(axis=0))
        if bad.size:
            edge = index[:, bad[0]].tolist()
            raise InputError(f"{what}: edge_index: edge {bad[0]} {edge} is outside 0..{graph.num_nodes - 1}")
    for name, rows in (
        ("x", graph.num_nodes),
        ("node_time", graph.num_nodes),
        ("pos", graph.num_nodes),
        *((n, index.shape[1]) for n in ("edge_attr", "edge_weight", "edge_time")),
    ):
        array = getattr(graph, name)
        if array is not None and (array.ndim == 0 or array.shape[0] != rows):
            raise InputError(f"{what}: {name}: shape {list(array.shape)}, expected {rows} rows")
    if graph.edge_weight is not None:
        weights = graph.edge_weight
        # Written so that NaN does not pass.
        unfit = np.argwhere(~((weights >= 0) & (weights < np.inf)))
        if unfit.size:
            edge = int(unfit[0][0])
            raise InputError(
                f"{what}: edge_weight: edge {edge} has {weights[edge]}; finite weights of at least 0 are accepted"
            )


def write_graph(
    folder: pathlib.Path, graph: GraphArrays, splits: Mapping[str, Array] | None, what: str
) -> dict[str, Any]:
    """Writes one large graph. Returns ImportOptions."""
    check_edges(graph, what)
    arrays = {
        "edge_index": graph.edge_index.astype(np.int64, copy=False),
        "node_feat": _table(graph.x, f"{what}: x"),
        "node_pos": _table(graph.pos, f"{what}: pos"),
        "node_label": None if graph.y is None else _labels(graph.y, f"{what}: y"),
        "edge_feat": _table(graph.edge_attr, f"{what}: edge_attr"),
        "edge_weight": None if graph.edge_weight is None else as_float32(graph.edge_weight, f"{what}: edge_weight"),
        "edge_time": graph.edge_time,
        "node_time": graph.node_time,
        **{f"{name}_idx": rows.astype(np.int64) for name, rows in (splits or {}).items()},
    }
    for name, array in arrays.items():
        if array is not None:
            np.save(folder / f"{name}.npy", np.ascontiguousarray(array), allow_pickle=False)
    if graph.names is not None:
        write_names(folder, graph.names, what)
    return {"format": "npy", "edge_list": {"num_nodes": graph.num_nodes}}


def write_set(
    folder: pathlib.Path, graphs: Iterable[GraphArrays], splits: Mapping[str, Any] | None, what: str
) -> dict[str, Any]:
    """Writes many small graphs, which are read only once. Returns ImportOptions. If no graph has a `y`, all labels
    are missing, and a warning says so."""
    raw = folder / "raw"
    raw.mkdir()
    count = 0
    tables = _Tables(raw, what)
    with tables:
        for count, graph in enumerate(graphs, start=1):
            check_edges(graph, f"{what}: graph {count - 1}")
            tables.add(count - 1, graph)
    if count == 0:
        raise InputError(f"{what}: holds no graphs")
    tables.check_labels()
    if not tables.labelled:
        told = "no graph has a label (y): the set is imported without; jobs predict for it, and none trains on it"
        warnings.warn(f"{what}: {told}", stacklevel=2)
    if splits is not None:
        target = folder / "split" / "given"
        target.mkdir(parents=True)
        for name, rows in check_splits(splits, count, what).items():
            (target / f"{name}.csv").write_text("".join(f"{row}\n" for row in rows.tolist()))
    return {"format": "ogb_graphs"}


class _Tables:
    """The CSV files of a set. The first graph decides the columns of all graphs."""

    _NAMES = {"x": "node-feat", "edge_attr": "edge-feat", "pos": "node-pos", "y": "graph-label"}

    def __init__(self, raw: pathlib.Path, what: str) -> None:
        self._raw, self._what = raw, what
        self._files: dict[str, TextIO] = {}
        self._pending: dict[str, list[Array]] = {}
        self._columns: dict[str, int] = {}
        self.labelled = True
        # _of_nodes: each graph so far has as many labels as nodes. _many: some graph has several labels.
        self._of_nodes, self._many = True, False

    def check_labels(self) -> None:
        """Call it after the last graph. Errors: InputError if all graphs have a label for each node."""
        if self._of_nodes and self._many:
            raise self._node_labels()

    def _node_labels(self) -> InputError:
        told = "each graph has a label for each of its nodes, which sets of graphs do not support"
        hint = "accepted: one row a graph, as y.reshape(1, -1) where these are targets of the graph"
        return InputError(f"{self._what}: y: {told}; {hint}")

    def _take_labels(self, graph: GraphArrays) -> None:
        rows = 0 if graph.y is None or graph.y.ndim == 0 else graph.y.shape[0]
        self._of_nodes = self._of_nodes and rows == graph.num_nodes and graph.y is not None
        self._many = self._many or rows > 1

    def add(self, number: int, graph: GraphArrays) -> None:
        tables = {
            "num-node-list": np.array([[graph.num_nodes]]),
            "num-edge-list": np.array([[graph.edge_index.shape[1]]]),
            "edge": graph.edge_index.T,
        }
        for field, name in self._NAMES.items():
            array = getattr(graph, field)
            if (array is not None) != (name in self._columns) and number > 0:
                found = "missing" if array is None else "there is one"
                raise InputError(f"{self._what}: graph {number}: {field}: {found}, unlike in graph 0")
            if array is not None:
                if field == "y":
                    self._take_labels(graph)
                where = f"{self._what}: graph {number}: {field}"
                tables[name] = _labels(array.reshape(1, -1), where) if field == "y" else _table(array, where)
                columns = tables[name].shape[1]
                if field == "y" and self._of_nodes and columns != self._columns.get(name, columns):
                    raise self._node_labels()
                if self._columns.setdefault(name, columns) != columns:
                    raise InputError(
                        f"{self._what}: graph {number}: {field}: {columns} columns, expected {self._columns[name]}"
                    )
        if "graph-label" not in tables:
            self._of_nodes = False
            # A missing label is NaN.
            tables["graph-label"] = np.full((1, 1), np.nan, np.float32)
            self.labelled = False
        for name, table in tables.items():
            pending = self._pending.setdefault(name, [])
            pending.append(table)
            if len(pending) >= _AT_ONCE:
                self._flush(name)

    def _flush(self, name: str) -> None:
        pending = self._pending[name]
        if not pending:
            return
        if name not in self._files:
            self._files[name] = (self._raw / f"{name}.csv").open("w")
        # Leaves out tables without rows, whose type could turn the others' integers into floats.
        table = np.concatenate([table for table in pending if table.shape[0]] or pending)
        # The server reads a column of whole numbers as integers, which are categories. Floats are therefore marked,
        # except labels, where both mean the same.
        self._files[name].writelines(_lines(table, mark_floats=name != "graph-label"))
        pending.clear()

    def __enter__(self) -> _Tables:
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._pending:
            self._flush(name)
        for file in self._files.values():
            file.close()


def _lines(table: Array, *, mark_floats: bool) -> Iterator[str]:
    if np.issubdtype(table.dtype, np.integer):
        return (",".join(map(str, row)) + "\n" for row in table.tolist())
    # Nine digits represent a float32 exactly.
    rows = ([f"{value:.9g}" for value in row] for row in table.tolist())
    if mark_floats:
        rows = ([f"{cell}.0" if cell.lstrip("-").isdigit() else cell for cell in row] for row in rows)
    return (",".join(row) + "\n" for row in rows)


def as_float32(array: Array, what: str) -> Array:
    """Converts to float32. Errors: InputError for a finite number outside float32's range."""
    with np.errstate(over="ignore"):
        table = np.asarray(array.astype(np.float32, copy=False))
    if array.dtype.kind == "f" and array.dtype.itemsize > 4:
        bad = np.flatnonzero(np.isinf(table) & np.isfinite(array))
        if bad.size:
            place = [int(i) for i in np.unravel_index(bad[0], array.shape)]
            value = float(array.reshape(-1)[bad[0]])
            raise InputError(f"{what}: element {place}: {value!r} is out of float32's range (3.4e38 at most)")
    return table


def write_names(folder: pathlib.Path, names: Sequence[Any] | Array, what: str) -> None:
    """Writes the names of the nodes, one a row. Writes nothing if each node's name is its row. Warns if the names
    cannot be kept."""
    if all(isinstance(name, (int, np.integer)) and not isinstance(name, bool) and 0 <= name < 2**63 for name in names):
        numbers = np.asarray(names, dtype=np.int64)
        if np.unique(numbers).size == numbers.size:
            if not np.array_equal(numbers, np.arange(numbers.size)):
                np.save(folder / "node_ids.npy", numbers, allow_pickle=False)
            return
    texts = [str(name) for name in names]
    if fault := _bad_name(texts):
        warnings.warn(f"{what}: nodes are called by their rows: {fault}", stacklevel=2)
        return
    with (folder / "node_names.csv").open("w", encoding="utf-8", newline="") as file:
        for text in texts:
            plain = not any(c in text for c in ',"') and text == text.strip(" \t")
            file.write((text if plain else '"' + text.replace('"', '""') + '"') + "\n")


def _bad_name(texts: Sequence[str]) -> str:
    """Returns why the names cannot be kept; empty if they can."""
    seen: set[str] = set()
    for row, text in enumerate(texts):
        if not text:
            return f"the name of node {row} is empty"
        if "\n" in text or "\r" in text:
            return f"the name of node {row} has more than one line: {shown(text)}"
        if not text.isascii():
            try:
                text.encode("utf-8")
            except UnicodeEncodeError:
                return f"the name of node {row} is no UTF-8: {shown(text)}"
        if text in seen:
            return f"the name of node {row} is another one's too: {shown(text)}"
        seen.add(text)
    return ""


def _table(array: Array | None, what: str) -> Any:
    """Returns [rows, columns] of a type that the server reads. Booleans become integers, and doubles floats."""
    if array is None:
        return None
    if array.ndim != 2:
        # A -1 would fail for a graph without edges.
        array = array.reshape(array.shape[0], math.prod(array.shape[1:]))
    if array.dtype == bool:
        return array.astype(np.uint8)
    if array.dtype == np.float64:
        return as_float32(array, what)
    return array


def _labels(array: Array, what: str) -> Array:
    if np.issubdtype(array.dtype, np.integer) or array.dtype == bool:
        return array.astype(np.int64)
    return as_float32(array, what)


def rows_of(names: Sequence[str], attributes: Sequence[Mapping[str, Any]], what: str) -> Array | None:
    """Returns [rows, values] of attributes that are numbers or sequences of numbers. The type is int32 if all are
    ints or bools, else float32. Returns None without names."""
    if not names:
        return None
    rows, whole = [], True
    for row, values in enumerate(attributes):
        try:
            rows.append(np.concatenate([np.atleast_1d(np.asarray(values[name], dtype=np.float64)) for name in names]))
            whole = whole and all(np.asarray(values[name]).dtype.kind in "biu" for name in names)
        except KeyError as error:
            raise InputError(f"{what} {row}: {error.args[0]}: missing") from None
        except (TypeError, ValueError):
            raise InputError(
                f"{what} {row}: {', '.join(names)}: not numbers: {shown([values[n] for n in names])}"
            ) from None
        if rows[-1].size != rows[0].size:
            raise InputError(f"{what} {row}: {', '.join(names)}: {rows[-1].size} values, expected {rows[0].size}")
    table = np.stack(rows) if rows else np.zeros((0, len(names)))
    if whole and (np.abs(table) < 2**31).all():
        return table.astype(np.int32)
    return as_float32(table, f"{what}s: {', '.join(names)}")
