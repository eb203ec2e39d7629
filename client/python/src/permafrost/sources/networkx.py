"""Writes NetworkX graphs."""

from __future__ import annotations

import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from permafrost.errors import InputError, needs
from permafrost.inverses import inverse_options
from permafrost.sources.files import GraphArrays, check_splits, rows_of, write_graph, write_set


def write(
    graphs: Any,
    folder: pathlib.Path,
    node_attributes: Sequence[str],
    edge_attributes: Sequence[str],
    label: str,
    weight: str | None,
    splits: Mapping[str, Any] | None,
    inverse_edges: str | None = None,
) -> dict[str, Any]:
    """Writes the graphs. Returns ImportOptions. inverse_edges: the field of ImportOptions. None means "keep" for
    directed graphs, else "add"."""
    try:
        import networkx
    except ImportError as error:
        raise needs("import_networkx", "networkx", error) from None
    what = "import_networkx"
    if isinstance(graphs, networkx.Graph):
        graph = _arrays(graphs, node_attributes, edge_attributes, weight, what)
        labelled = [label in attributes for _, attributes in graphs.nodes(data=True)]
        if any(labelled):
            # A node without the attribute has no label.
            values = [{label: attributes.get(label, np.nan)} for _, attributes in graphs.nodes(data=True)]
            graph.y = rows_of([label], values, f"{what}: node")
        graph.names = list(graphs.nodes)
        rows = None if splits is None else check_splits(splits, graph.num_nodes, what)
        options = write_graph(folder, graph, rows, what)
        return {**options, **inverse_options(inverse_edges or ("keep" if graphs.is_directed() else "add"))}
    if not isinstance(graphs, Iterable):
        raise InputError(f"{what}: is a {type(graphs).__name__}, expected a networkx.Graph or several")
    directed: set[bool] = set()

    def each() -> Iterator[GraphArrays]:
        for number, graph in enumerate(graphs):
            where = f"{what}: graph {number}"
            if not isinstance(graph, networkx.Graph):
                raise InputError(f"{where}: is a {type(graph).__name__}, expected a networkx.Graph")
            directed.add(graph.is_directed())
            if len(directed) > 1:
                raise InputError(f"{where}: is {'' if graph.is_directed() else 'un'}directed, unlike graph 0")
            arrays = _arrays(graph, node_attributes, edge_attributes, None, where)
            # Adds inverses here, because the server would store a self-loop of a set twice.
            if inverse_edges == "add" or (inverse_edges is None and not graph.is_directed()):
                _add_inverses(arrays)
            if label not in graph.graph and label not in node_attributes:
                _check_no_node_labels(graph, label, where)
            if label in graph.graph:
                arrays.y = rows_of([label], [graph.graph], f"{where}: graph attributes")
            yield arrays

    return {**write_set(folder, each(), splits, what), **inverse_options("auto" if inverse_edges == "auto" else "keep")}


def _check_no_node_labels(graph: Any, label: str, where: str) -> None:
    labelled = sum(label in attributes for _, attributes in graph.nodes(data=True))
    if labelled:
        raise InputError(
            f"{where}: {label}: {labelled} nodes have it and the graph has not: sets of graphs have no labels of "
            f"nodes; accepted: graph.graph[{label!r}], one graph alone, or another label"
        )


def _add_inverses(graph: GraphArrays) -> None:
    """Adds the inverse after each edge, except after a self-loop."""
    edges = np.repeat(graph.edge_index, 2, axis=1)
    edges[:, 1::2] = graph.edge_index[::-1]
    kept = np.ones(edges.shape[1], dtype=bool)
    kept[1::2] = graph.edge_index[0] != graph.edge_index[1]
    graph.edge_index = edges[:, kept]
    if graph.edge_attr is not None:
        graph.edge_attr = np.repeat(graph.edge_attr, 2, axis=0)[kept]


def _arrays(graph: Any, nodes: Sequence[str], edges: Sequence[str], weight: str | None, what: str) -> GraphArrays:
    row = {node: i for i, node in enumerate(graph.nodes)}
    pairs = [(row[u], row[v]) for u, v in graph.edges()]
    attributes = [values for _, _, values in graph.edges(data=True)]
    weights = rows_of([weight] if weight else [], attributes, f"{what}: edge")
    return GraphArrays(
        num_nodes=len(row),
        edge_index=np.array(pairs, dtype=np.int64).reshape(-1, 2).T,
        x=rows_of(nodes, [values for _, values in graph.nodes(data=True)], f"{what}: node"),
        edge_attr=rows_of(edges, attributes, f"{what}: edge"),
        edge_weight=None if weights is None else weights[:, 0],
    )
