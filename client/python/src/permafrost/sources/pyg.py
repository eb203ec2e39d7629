"""Writes PyG data."""

from __future__ import annotations

import pathlib
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from typing import Any

import numpy as np

from permafrost.errors import InputError, needs
from permafrost.sources import links
from permafrost.sources.files import Array, GraphArrays, by_split, check_splits, write_graph, write_set

_MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
# The tensors that RandomLinkSplit adds, which are read only from `link_split`.
_LINKS = {"edge_label", "edge_label_index", "pos_edge_label", "pos_edge_label_index"}
_LINKS |= {"neg_edge_label", "neg_edge_label_index"}
_READ = {"x", "edge_index", "edge_attr", "edge_weight", "edge_time", "node_time", "time", "pos", "y", "num_nodes"}
_READ |= {*_MASKS.values(), *_LINKS}


def write(
    dataset: Any,
    folder: pathlib.Path,
    splits: Mapping[str, Any] | None,
    mask: int,
    link_split: Any = None,
    names: Sequence[Any] | None = None,
) -> dict[str, Any]:
    """Writes the data. Returns ImportOptions."""
    try:
        from torch_geometric.data import Data, HeteroData
        from torch_geometric.data import Dataset as PygDataset
    except ImportError as error:
        raise needs("import_pyg", "pyg", error) from None
    what = f"import_pyg: {type(dataset).__name__}"
    if isinstance(dataset, HeteroData):
        raise InputError(
            f"{what}: node and edge types are not supported; dataset.to_homogeneous() makes one Data of them"
        )
    if isinstance(dataset, Data):
        return _write_one(dataset, folder, splits, mask, link_split, names, what)
    if names is not None and not (isinstance(dataset, PygDataset) and len(dataset) == 1):
        raise InputError(f"{what}: names: are given with many graphs; accepted: with one Data, or a Dataset of one")
    if isinstance(dataset, Mapping) and link_split is None:
        return _write_parts(dataset, folder, splits, what)
    if isinstance(dataset, PygDataset) and len(dataset) == 1:
        if link_split is None and hasattr(dataset, "get_edge_split"):
            link_split = dataset.get_edge_split()
        elif splits is None and link_split is None and hasattr(dataset, "get_idx_split"):
            splits = dataset.get_idx_split()
        if names is None:
            _copy_mapping(dataset, folder)
        return write(dataset[0], folder, splits, mask, link_split, names)
    if link_split is not None:
        raise InputError(f"{what}: link_split: is given with many graphs; accepted: with one Data, or a Dataset of one")
    if not isinstance(dataset, Iterable):
        raise InputError(f"{what}: expected a Data, a Dataset, a list of Data, or a dict of these by split")
    if splits is None and hasattr(dataset, "get_idx_split"):
        splits = dataset.get_idx_split()
    return write_set(folder, _graphs(dataset, what), _numpy_splits(splits), what)


def _copy_mapping(dataset: Any, folder: pathlib.Path) -> None:
    """Copies the names that OGB gives the nodes, if they were downloaded with the dataset."""
    root = getattr(dataset, "root", None)
    found = sorted(pathlib.Path(root, "mapping").glob("nodeidx2*.csv*")) if isinstance(root, str) else []
    if len(found) == 1:
        (folder / "mapping").mkdir()
        shutil.copyfile(found[0], folder / "mapping" / found[0].name)


def _write_one(
    data: Any,
    folder: pathlib.Path,
    splits: Mapping[str, Any] | None,
    mask: int,
    link_split: Any,
    names: Sequence[Any] | None,
    what: str,
) -> dict[str, Any]:
    graph = _arrays(data, what)
    if names is not None:
        if len(names) != graph.num_nodes:
            raise InputError(f"{what}: names: {len(names)} of them, expected {graph.num_nodes}, one a node")
        graph.names = names
    if link_split is not None:
        links.write(link_split, folder, graph.num_nodes, what)
    if splits is None:
        splits = _masks(data, mask, what)
    rows = None if splits is None else check_splits(_numpy_splits(splits) or {}, graph.num_nodes, what)
    return write_graph(folder, graph, rows, what)


def _write_parts(
    parts: Mapping[str, Any], folder: pathlib.Path, splits: Mapping[str, Any] | None, what: str
) -> dict[str, Any]:
    if splits is not None:
        raise InputError(f"{what}: splits: are given beside a dict, which has the datasets of train, valid and test")
    given, begin = {}, 0
    for name, part in by_split(parts, what).items():
        if not isinstance(part, Sized):
            raise InputError(f"{what}: {name}: is a {type(part).__name__}, expected a Dataset or a list of Data")
        given[name] = np.arange(begin, begin + len(part))
        begin += len(part)
    graphs = (graph for name, part in parts.items() for graph in _graphs(part, f"{what}: {name}"))
    return write_set(folder, graphs, given, what)


def _graphs(dataset: Iterable[Any], what: str) -> Iterator[GraphArrays]:
    for number, data in enumerate(dataset):
        yield _arrays(data, f"{what}: graph {number}", frozenset(_READ - _OF_ONE_GRAPH))


def _masks(data: Any, column: int, what: str) -> dict[str, Array] | None:
    found = {name: data.get(mask) for name, mask in _MASKS.items()}
    missing = [_MASKS[name] for name, mask in found.items() if mask is None]
    if len(missing) == len(found):
        return None
    if missing:
        raise InputError(f"{what}: {missing[0]}: missing; all of {', '.join(_MASKS.values())} are needed, or none")
    splits = {}
    for name, mask in found.items():
        rows = mask.cpu().numpy()
        if rows.ndim == 2:
            if not 0 <= column < rows.shape[1]:
                raise InputError(f"{what}: {_MASKS[name]}: mask={column} is outside 0..{rows.shape[1] - 1}")
            rows = rows[:, column]
        splits[name] = rows.astype(bool)
    return splits


# The attributes that a set of graphs cannot hold.
_OF_ONE_GRAPH = {"edge_weight", "edge_time", "node_time", "time", *_MASKS.values()}


def _arrays(data: Any, what: str, read: frozenset[str] = frozenset(_READ)) -> GraphArrays:
    from torch_geometric.data import Data

    if not isinstance(data, Data):
        raise InputError(f"{what}: is a {type(data).__name__}, expected a Data")
    if data.edge_index is None:
        hint = "; data.adj_t.t().coo() has its rows" if "adj_t" in data else ""
        raise InputError(f"{what}: edge_index: missing{hint}")
    left_out = sorted(set(data.keys()) - read)
    if left_out:
        # Python shows this once for each line of the caller, however many graphs there are.
        hint = "; a set of graphs has no weights of edges: put edge_weight into edge_attr, as a column, to have it read"
        hint = hint if "edge_weight" in left_out else ""
        warnings.warn(f"{type(data).__name__}: not imported: {', '.join(left_out)}{hint}", stacklevel=2)
    edge_index = _numpy(data.edge_index, "edge_index", what)
    some = ("edge_weight", "edge_time", "node_time", "time", "pos")
    given = {name: _numpy(data.get(name) if name in read else None, name, what) for name in some}
    # PyG calls both the times of nodes, which NeighborLoader reads, and those of edges `time`. Their number decides
    # which they are.
    if given["time"] is not None:
        name = "edge_time" if given["time"].shape[:1] == edge_index.shape[1:] else "node_time"
        given[name] = given["time"] if given[name] is None else given[name]
    return GraphArrays(
        num_nodes=int(data.num_nodes),
        edge_index=edge_index,
        x=_numpy(data.x, "x", what),
        edge_attr=_numpy(data.edge_attr, "edge_attr", what),
        edge_weight=given["edge_weight"],
        edge_time=given["edge_time"],
        node_time=given["node_time"],
        pos=given["pos"],
        y=_numpy(data.y, "y", what),
    )


def _numpy(tensor: Any, name: str, what: str) -> Any:
    """Converts a tensor, a number or a list of numbers to a numpy array. None gives None."""
    import torch

    if tensor is None:
        return None
    if not isinstance(tensor, torch.Tensor):
        try:
            return np.asarray(tensor, dtype=np.float64 if np.asarray(tensor).dtype.kind == "f" else np.int64)
        except (TypeError, ValueError):
            raise InputError(f"{what}: {name}: is a {type(tensor).__name__}, expected a tensor") from None
    if tensor.layout is not torch.strided:
        raise InputError(f"{what}: {name}: is sparse; {name}.to_dense() is accepted")
    tensor = tensor.detach().cpu()
    # numpy has no bfloat16.
    return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()


def _numpy_splits(splits: Mapping[str, Any] | None) -> dict[str, Array] | None:
    if splits is None:
        return None
    if not isinstance(splits, Mapping):
        raise InputError(f"import_pyg: splits: is a {type(splits).__name__}, expected a dict of indices by split")
    return {name: v.cpu().numpy() if hasattr(v, "cpu") else np.asarray(v) for name, v in splits.items()}
