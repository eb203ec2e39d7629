"""Writes links that are divided into splits as files that the server reads: OGB's edge splits, and PyG's
RandomLinkSplit."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from permafrost.errors import InputError
from permafrost.sources.files import SPLITS, Array, by_split

# The entries of OGB's splits that are read. The server takes no other facts of a link.
_READ = {"edge", "edge_neg", "source_node", "target_node", "target_node_neg"}


def write(split: Any, folder: pathlib.Path, num_nodes: int, what: str) -> None:
    """Writes a link split. split: the result of OGB's `get_edge_split()`, or the three Data of RandomLinkSplit."""
    target = folder / "split" / "links"
    target.mkdir(parents=True)
    for name, (links, negatives) in _parts(split, what).items():
        where = f"{what}: link_split: {name}"
        if links.ndim != 2 or links.shape[1] != 2:
            raise InputError(f"{where}: shape {list(links.shape)}, expected [links, 2]")
        np.save(target / f"{name}.npy", _nodes(links, num_nodes, where), allow_pickle=False)
        if negatives is not None and name != "train":
            np.save(target / f"{name}_negatives.npy", _nodes(negatives, num_nodes, where), allow_pickle=False)


def _parts(split: Any, what: str) -> dict[str, tuple[Array, Array | None]]:
    if isinstance(split, Mapping):
        found = by_split(split, f"{what}: link_split")
        if len(found) != len(SPLITS):
            raise InputError(
                f"{what}: link_split: has {', '.join(map(repr, split))}; accepted: train, valid and test, all of them"
            )
        return {name: _of_ogb(found[name], f"{what}: link_split: {name}") for name in SPLITS}
    if isinstance(split, Sequence) and len(split) == len(SPLITS):
        return {name: _of_pyg(part, f"{what}: link_split: {name}") for name, part in zip(SPLITS, split, strict=True)}
    raise InputError(
        f"{what}: link_split: is a {type(split).__name__}; accepted: a dict of train, valid and test, as OGB's "
        "get_edge_split() gives, or the three Data of RandomLinkSplit"
    )


def _of_ogb(part: Any, what: str) -> tuple[Array, Array | None]:
    if not isinstance(part, Mapping):
        raise InputError(
            f"{what}: is a {type(part).__name__}, expected a dict with edge, or source_node and target_node"
        )
    if left_out := sorted(set(part) - _READ):
        if "head" in part or "relation" in part:
            raise InputError(f"{what}: {left_out[0]}: relations of links are not supported")
        warnings.warn(f"{what}: not imported: {', '.join(left_out)}", stacklevel=2)
    if "edge" in part:
        negatives = part.get("edge_neg")
        return _array(part["edge"]), None if negatives is None else _pairs(_array(negatives), what)
    if "source_node" not in part or "target_node" not in part:
        raise InputError(f"{what}: has neither edge nor source_node and target_node")
    links = np.stack([_array(part["source_node"]), _array(part["target_node"])], axis=1)
    if part.get("target_node_neg") is None:
        return links, None
    negatives = _array(part["target_node_neg"])
    if negatives.ndim != 2 or negatives.shape[0] != links.shape[0] or negatives.shape[1] == 2:
        # The server would read two columns as pairs.
        shape = list(negatives.shape)
        raise InputError(f"{what}: target_node_neg: shape {shape}, expected [{len(links)}, K] with K other than 2")
    return links, negatives


def _of_pyg(part: Any, what: str) -> tuple[Array, Array | None]:
    positive, negative = part.get("pos_edge_label_index"), part.get("neg_edge_label_index")
    if positive is not None:  # split_labels=True
        return _array(positive).T, None if negative is None else _pairs(_array(negative).T, what)
    index = part.get("edge_label_index")
    if index is None:
        raise InputError(f"{what}: edge_label_index: missing; RandomLinkSplit makes it")
    pairs, label = _array(index).T, part.get("edge_label")
    if label is None:
        return pairs, None
    is_link = _array(label).reshape(-1) > 0
    return pairs[is_link], None if is_link.all() else _pairs(pairs[~is_link], what)


def _array(values: Any) -> Array:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else np.asarray(values)


def _pairs(negatives: Array, what: str) -> Array | None:
    if negatives.ndim != 2 or negatives.shape[1] != 2:
        raise InputError(f"{what}: negatives: shape {list(negatives.shape)}, expected [pairs, 2]")
    return negatives if negatives.size else None


def _nodes(table: Array, num_nodes: int, what: str) -> Array:
    if table.ndim != 2 or not np.issubdtype(table.dtype, np.integer):
        raise InputError(f"{what}: {table.dtype} of shape {list(table.shape)}, expected integers, a row a link")
    if table.size and (table.min() < 0 or table.max() >= num_nodes):
        bad = table[(table < 0) | (table >= num_nodes)][0]
        raise InputError(f"{what}: {bad} is outside 0..{num_nodes - 1}")
    return np.ascontiguousarray(table.astype(np.int64, copy=False))
