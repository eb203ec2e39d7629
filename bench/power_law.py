"""Makes the benchmark graph: a power law, with features and labels that its neighbourhoods explain.

Nodes belong to 16 communities. Both ends of an edge are drawn with weights (rank + 10)^(-1/(exponent - 1)), so that degrees
follow a power law of that exponent. Half of the edges stay within their source's community. Features are the community's centre
plus noise. A node's class is the one that its own features and the mean of its neighbours' features support most, so that neither
is enough alone. Equal arguments give equal files.
"""

import numpy as np


def draw_edges(random, nodes, edges, classes, exponent):
    """Returns the ends of edges, [2, edges], as ranks. A node's community is its rank modulo `classes`."""
    weights = (np.arange(nodes) + 10.0) ** (-1.0 / (exponent - 1.0))
    cumulative = np.cumsum(weights)
    ends = np.searchsorted(cumulative, random.random((2, edges)) * cumulative[-1])
    source, target = np.minimum(ends, nodes - 1)
    # Takes a nearby rank of the wanted community, whose weight is nearly the same.
    within = target - target % classes + source % classes
    stay = (random.random(edges) < 0.5) & (within < nodes)
    return source, np.where(stay, within, target)


def mean_of_neighbors(source, target, values):
    """Returns each node's mean over its neighbours, with edges taken in both directions, or its own values if it has none."""
    nodes = len(values)
    degree = np.bincount(source, minlength=nodes) + np.bincount(target, minlength=nodes)
    mean = np.empty_like(values)
    for column in range(values.shape[1]):
        sums = (np.bincount(target, values[source, column], nodes) + np.bincount(source, values[target, column], nodes))
        mean[:, column] = np.where(degree > 0, sums / np.maximum(degree, 1), values[:, column])
    return mean


def write(out, nodes, edges, width, classes=16, exponent=2.3, seed=1):
    """Writes into the folder `out`: edges.csv (src,dst with a header), edge_index.npy [2, edges] int64, node_feat.npy
    [nodes, width] float32, node_label.npy [nodes] int64, and train_idx.npy, valid_idx.npy, test_idx.npy (10 %, 5 % and
    5 % of the nodes)."""
    random = np.random.default_rng(seed)
    out.mkdir(parents=True, exist_ok=True)

    source, target = draw_edges(random, nodes, edges, classes, exponent)
    # Shuffles the rows, so that they reveal nothing about degrees or communities.
    row = random.permutation(nodes)
    community = np.empty(nodes, np.int64)
    community[row] = np.arange(nodes) % classes
    source, target = row[source], row[target]
    centers = random.standard_normal((classes, width), np.float32)
    features = random.standard_normal((nodes, width), np.float32)
    features += np.float32(0.25) * centers[community]
    scores = features @ centers.T
    labels = np.argmax(scores + mean_of_neighbors(source, target, scores), axis=1)
    order = random.permutation(nodes)

    np.save(out / "edge_index.npy", np.stack([source, target]).astype(np.int64))
    np.save(out / "node_feat.npy", features)
    np.save(out / "node_label.npy", labels.astype(np.int64))
    bounds = [0, nodes // 10, nodes * 3 // 20, nodes // 5]
    for split, begin, end in zip(("train", "valid", "test"), bounds, bounds[1:]):
        np.save(out / f"{split}_idx.npy", np.sort(order[begin:end]))
    with open(out / "edges.csv", "w") as file:
        file.write("src,dst\n")
        for begin in range(0, edges, 1_000_000):
            pairs = zip(source[begin:begin + 1_000_000].tolist(), target[begin:begin + 1_000_000].tolist())
            file.writelines(f"{a},{b}\n" for a, b in pairs)
