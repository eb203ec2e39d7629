"""Copies a graph and adds its links by split, so that both sides of `links` read the same links and negatives."""

import shutil

import numpy as np

SPLITS = ("train", "valid", "test")


def graph(folder):
    """Returns the edges [2, edges] of a graph's files, in NPY or in OGB's layout, and the number of nodes."""
    if (folder / "edge_index.npy").exists():
        return np.load(folder / "edge_index.npy"), len(np.load(folder / "node_feat.npy", mmap_mode="r"))
    table = lambda name: np.loadtxt(folder / "raw" / f"{name}.csv.gz", delimiter=",", dtype=np.int64, ndmin=2)
    return table("edge").T, int(table("num-node-list")[0, 0])


def draw_negatives(random, sources, pairs, nodes, count):
    """Draws [sources, count] targets, uniformly among the nodes to which a source has no edge. pairs: [2, links], each link once."""
    taken = np.sort(np.concatenate([pairs[0] * nodes + pairs[1], pairs[1] * nodes + pairs[0]]))
    targets = random.integers(0, nodes, (len(sources), count))
    while True:
        keys = sources[:, None] * nodes + targets
        place = np.minimum(np.searchsorted(taken, keys), len(taken) - 1)
        wrong = (taken[place] == keys) | (targets == sources[:, None])
        if not wrong.any():
            return targets
        targets[wrong] = random.integers(0, nodes, int(wrong.sum()))


def write(dataset, out, valid_part, test_part, negatives, seed):
    """Copies the files of `dataset` into the folder `out`, and adds its links by split. Returns their folder. It holds SPLIT.npy [links, 2]
    for each split, and SPLIT_negatives.npy [links, negatives] for validation and test. An edge and its inverse are one link, which begins
    at either node."""
    for path in dataset.rglob("*"):
        if path.is_file():
            (out / path.relative_to(dataset)).parent.mkdir(parents=True, exist_ok=True)
            # Leaves out the mode, which may be read-only.
            shutil.copyfile(path, out / path.relative_to(dataset))
    random = np.random.default_rng(seed)
    edges, nodes = graph(out)
    pairs = np.unique(np.sort(edges, axis=0), axis=1)
    pairs = pairs[:, pairs[0] != pairs[1]]
    draw = random.random(pairs.shape[1])
    turned = random.random(pairs.shape[1]) < 0.5
    directed = np.where(turned, pairs[::-1], pairs).T
    part = np.where(draw < test_part, 2, np.where(draw < test_part + valid_part, 1, 0))
    folder = out / "split" / "links"
    folder.mkdir(parents=True)
    for number, name in enumerate(SPLITS):
        links = np.ascontiguousarray(directed[part == number])
        np.save(folder / f"{name}.npy", links)
        if name != "train":
            np.save(folder / f"{name}_negatives.npy", draw_negatives(random, links[:, 0], pairs, nodes, negatives))
    return folder
