"""Converts a zipped TUDataset to a folder in OGB's graph-property layout, which Permafrost imports and the peers read."""

import collections
import random
import zipfile


def _read(archive, name):
    """Returns the rows of one of the set's tables, or None if the set lacks it."""
    found = [member for member in archive.namelist() if member.endswith(f"_{name}.txt")]
    if not found:
        return None
    lines = archive.read(found[0]).decode().split("\n")
    return [tuple(int(float(cell)) for cell in line.split(",")) for line in lines if line.strip()]


def has_labels(path):
    """Returns whether the nodes of a zipped set have labels."""
    with zipfile.ZipFile(path) as archive:
        return any(member.endswith("_node_labels.txt") for member in archive.namelist())


def _from_smallest(rows):
    least = [min(column) for column in zip(*rows)]
    return [[value - low for value, low in zip(row, least)] for row in rows]


def graphs(path):
    """Returns each graph of a zipped set as the files have it: x, edges and edge_attr as lists of rows, and y. Labels and classes count
    from the smallest one. Nodes without labels have their degree as features."""
    with zipfile.ZipFile(path) as archive:
        read = {name: _read(archive, name) for name in ("graph_indicator", "graph_labels", "A", "node_labels", "edge_labels")}
    classes = sorted(set(read["graph_labels"]))
    made = [{"x": [], "edges": [], "edge_attr": [], "y": classes.index(label)} for label in read["graph_labels"]]
    graph_of = [row[0] - 1 for row in read["graph_indicator"]]
    degree = collections.Counter(source for source, _ in read["A"])
    features = _from_smallest(read["node_labels"]) if read["node_labels"] else [[degree[node + 1]] for node in range(len(graph_of))]
    place = []
    for graph, row in zip(graph_of, features):
        place.append(len(made[graph]["x"]))
        made[graph]["x"].append(row)
    attributes = _from_smallest(read["edge_labels"]) if read["edge_labels"] else [[]] * len(read["A"])
    for (source, target), row in zip(read["A"], attributes):
        graph = made[graph_of[source - 1]]
        graph["edges"].append([place[source - 1], place[target - 1]])
        graph["edge_attr"].append(row)
    return made


def tables(archive):
    """Returns the lines of each file, by its name below the folder. Every pair of nodes is listed once, as in OGB. A node's feature is its
    label, or its degree in a set without labels. Classes count from 0."""
    graph_of = [row[0] - 1 for row in _read(archive, "graph_indicator")]
    labels = [row[0] for row in _read(archive, "graph_labels")]
    directed = _read(archive, "A")
    edge_labels = _read(archive, "edge_labels")
    first = {}
    for node, graph in enumerate(graph_of):
        first.setdefault(graph, node)
    pairs = {}
    for place, (a, b) in enumerate(directed):
        pairs.setdefault((min(a, b) - 1, max(a, b) - 1), edge_labels[place][0] if edge_labels else 0)
    edges = sorted(pairs)
    degree = [0] * len(graph_of)
    for a, b in edges:
        degree[a] += 1
        degree[b] += a != b
    node_labels = _read(archive, "node_labels")
    features = [row[0] for row in node_labels] if node_labels else degree
    classes = sorted(set(labels))
    counts = lambda graphs: (lambda seen: [seen[graph] for graph in range(len(labels))])(collections.Counter(graphs))
    order = list(range(len(labels)))
    random.Random(0).shuffle(order)
    train, valid = len(order) * 8 // 10, len(order) * 9 // 10
    found = {"raw/num-node-list.csv": counts(graph_of), "raw/num-edge-list.csv": counts([graph_of[a] for a, _ in edges]),
             "raw/edge.csv": [f"{a - first[graph_of[a]]},{b - first[graph_of[a]]}" for a, b in edges],
             "raw/node-feat.csv": [value - min(features) for value in features],
             "raw/graph-label.csv": [classes.index(label) for label in labels]}
    if edge_labels:
        found["raw/edge-feat.csv"] = [pairs[edge] for edge in edges]
    parts = {"train": order[:train], "valid": order[train:valid], "test": order[valid:]}
    return found | {f"split/random/{part}.csv": sorted(graphs) for part, graphs in parts.items()}


def folder(path, work):
    """Returns the folder of a file's set, which is made below `work` the first time."""
    out = work / f"tu-{path.stem.lower()}"
    if not out.exists():
        half = out.with_name(out.name + ".half")
        with zipfile.ZipFile(path) as archive:
            for name, rows in tables(archive).items():
                (half / name).parent.mkdir(parents=True, exist_ok=True)
                (half / name).write_text("".join(f"{row}\n" for row in rows))
        half.rename(out)
    return out
