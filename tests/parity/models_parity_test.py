"""Compares every model with the equal PyG module on real graphs: predictions, and the gradients of a training step.

usage: python -m tests.parity.models_parity_test BIN_DIR SET_DIR GRAPH_DIR
  SET_DIR: a set of graphs in OGB's CSV layout; GRAPH_DIR: one large graph in it

The gradient is the difference of the weights of two jobs of one step of SGD: one with a learning rate near 0, and one with learning rate 1.
PyG's gradients are computed in float64. In float32 the gradients of batch norm accumulate the rounding of all rows, in PyG as here. A bias
before batch norm, whose gradient is 0, shows this error. The set is therefore a small part of SET_DIR.
"""

import csv
import gzip
import pathlib
import shutil
import sys
import tempfile

import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from tests.parity import ogb
from tests.parity.daemon import Daemon

from permafrost import models

TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-5
# With seed 6, a batch norm of the virtual node gives a value of 1e-6 in float64. Rounding then decides whether ReLU passes its gradient.
SEEDS = {"gine, virtual node": "7"}
SKIPPED = 77
PARTS = ["--norm", "layer", "--residual", "--jumping-knowledge", "cat"]
SETS = {
    "gine": [], "gin": [], "gcn": [], "sage": [], "gatv2": ["--heads", "4"],
    "gine, virtual node": ["--virtual-node"],
    "gin, residual, max": ["--residual", "--jumping-knowledge", "max"],
    "gcn, layer norm, residual, cat": PARTS,
    "sage, no norm": ["--norm", "none"],
    "sage, max aggregation": ["--aggregation", "max"],
    "gatv2, virtual node, layer norm, residual, cat": ["--virtual-node", *PARTS],
}
NODES = {
    "gin": [], "gcn": [], "sage": [], "gatv2": ["--heads", "4"],
    "gin, batch norm": ["--norm", "batch"],
    "gcn, normalized features, residual": ["--normalize-features", "--residual", "--layers", "3"],
    "sage, batch norm, max": ["--norm", "batch", "--jumping-knowledge", "max"],
    "gatv2, layer norm, residual, cat": ["--heads", "4", *PARTS],
    "gcn, learned inputs": ["--node-inputs", "learned"],
    "sage, max aggregation": ["--aggregation", "max", "--norm", "batch"],
    "sage, degree": ["--node-inputs", "degree"],
    "gatv2, constant": ["--node-inputs", "constant"],
}
# Models on a graph whose edges have 3 columns of floats, 2 of categories, or a weight, all made by a rule.
EDGES = {
    "gine": [], "gatv2": ["--heads", "4"],
    "gine, layer norm, residual, cat": PARTS,
    "gatv2, layer norm, residual, cat": ["--heads", "4", *PARTS],
    "gine, weights": ["--edge-inputs", "weights"],
    "gatv2, weights": ["--edge-inputs", "weights"],
}


def inputs_of(flags, x, edge_index):
    """Returns the node inputs of a job with these flags."""
    if "learned" in flags:
        return torch.arange(len(x))
    degrees = torch.bincount(edge_index[1], minlength=len(x))
    if "degree" in flags:
        return F.one_hot(degrees.clamp(max=255), 256).float()
    return torch.ones(len(x), 1) if "constant" in flags else x


def part_of(dataset, folder, graphs=300):
    """Writes the first graphs of a set as a set of their own, with a tenth each for validation and test."""
    (folder / "raw").mkdir(parents=True)
    rows = {}
    for name in ("num-node-list", "num-edge-list"):
        with gzip.open(dataset / "raw" / f"{name}.csv.gz", "rt") as file:
            rows[name] = [next(file) for _ in range(graphs)]
    nodes, edges = (sum(map(int, rows[name])) for name in ("num-node-list", "num-edge-list"))
    for name, count in (("node-feat", nodes), ("edge-feat", edges), ("edge", edges), ("graph-label", graphs)):
        with gzip.open(dataset / "raw" / f"{name}.csv.gz", "rt") as file:
            rows[name] = [next(file) for _ in range(count)]
    for name, lines in rows.items():
        (folder / "raw" / f"{name}.csv").write_text("".join(lines))
    (folder / "split" / "part").mkdir(parents=True)
    tenth = graphs // 10
    for name, ids in (("train", range(graphs - 2 * tenth)), ("valid", range(graphs - 2 * tenth, graphs - tenth)), ("test", range(graphs - tenth, graphs))):
        (folder / "split" / "part" / f"{name}.csv").write_text("".join(f"{i}\n" for i in ids))
    return folder


def predictions(path):
    with open(path) as file:
        rows = list(csv.reader(file))[1:]
    return [int(row[0]) for row in rows], torch.tensor([[float(value) for value in row[1:]] for row in rows])


def run(daemon, work, dataset, name, flags, predicts=1):
    """Returns a module with the weights before the step, the server's gradients, and the server's predictions after it (predicts=0: before
    it), with the module that makes equal predictions."""
    step = ["--dataset", dataset, "--model", name.split(",")[0], "--hidden", "32", "--epochs", "1", "--optimizer", "sgd", "--seed", SEEDS.get(name, "6")]
    files = {}
    for number, rate in enumerate(("1e-30", "1")):
        job = f"{dataset}-{'-'.join(name.replace(',', '').split())}-{number}"
        daemon.train(job, *step, "--lr", rate, *flags)
        for artifact in ("last-weights", "test-predictions"):
            files[number, artifact] = work / f"{job}.{artifact}"
            daemon.client("job", "export", job, "--artifact", artifact, "--to", files[number, artifact])
    module = models.load(files[0, "last-weights"])
    before, after = (load_file(files[number, "last-weights"]) for number in (0, 1))
    gradients = {key: before[key] - after[key] for key, _ in module.named_parameters()}
    return module, gradients, models.load(files[predicts, "last-weights"]), predictions(files[predicts, "test-predictions"])


def gradient_difference(module, gradients):
    """Returns the largest difference between `gradients` and the module's own, over the largest of the module's. Call it after backward."""
    largest = max(parameter.grad.abs().max().item() for parameter in module.parameters())
    return max((gradients[name] - parameter.grad).abs().max().item() for name, parameter in module.named_parameters()) / largest


def relative(made, predicted):
    return ((made - predicted).abs() / predicted.abs().clamp_min(1)).max().item()


def compare(kind, name, made, predicted, module, gradients, untrained):
    outputs, gradient, control = relative(made, predicted), gradient_difference(module, gradients), relative(untrained, predicted)
    print(f"{kind:6}  {name:48}  {outputs:.1e}  {gradient:.1e}  {control:.1e}", flush=True)
    assert outputs <= TOLERANCE, f"{kind}, {name}: outputs differ by {outputs}"
    assert gradient <= GRADIENT_TOLERANCE, f"{kind}, {name}: gradients differ by {gradient}"
    assert control > 1e-3, f"{kind}, {name}: an untrained module predicts the same"


def compare_sets(daemon, work, dataset):
    graphs = ogb.read(dataset)
    train, test = (ogb.collate([graphs[i] for i in ogb.split(dataset, split)]) for split in ("train", "test"))
    for name, flags in SETS.items():
        module, gradients, after, (ids, predicted) = run(daemon, work, "set", name, ["--layers", "3", "--batch-size", "65536", "--loss", "mse", *flags])
        assert ids == ogb.split(dataset, "test")
        F.mse_loss(module.double().train()(*train[:5]), train[5].double()).backward()
        with torch.no_grad():
            made, untrained = after.eval()(*test[:5]), models.build(after.spec).eval()(*test[:5])
        compare("graphs", name, made, predicted, module, gradients, untrained)


def compare_nodes(daemon, work, dataset):
    x, edge_index = ogb.read_nodes(dataset)
    labels, train, test = ogb.node_labels(dataset), ogb.split(dataset, "train"), ogb.split(dataset, "test")
    for name, flags in NODES.items():
        module, gradients, after, (rows, predicted) = run(daemon, work, "graph", name, ["--loss", "cross-entropy", *flags])
        assert rows == test
        given = inputs_of(flags, x, edge_index)
        doubled = given.double() if given.is_floating_point() else given
        F.cross_entropy(module.double().train()(doubled, edge_index)[train], labels[train]).backward()
        with torch.no_grad():
            made, untrained = after.eval()(given, edge_index)[test], models.build(after.spec).eval()(given, edge_index)[test]
        compare("nodes", name, made, predicted, module, gradients, untrained)


def with_edges(dataset, folder, columns):
    """Writes the graph with features and weights of edges. Returns both, [edges, columns] and [edges, 1], in the order of ogb.read_nodes."""
    shutil.copytree(dataset, folder)
    _, edge_index = ogb.read_nodes(dataset)
    (raw,) = (folder / "raw").glob("edge.csv*")
    opener = gzip.open if raw.suffix == ".gz" else open
    with opener(raw, "rt") as file:
        count = sum(1 for _ in file)
    numbers = torch.arange(count)
    loops = (edge_index[0] == edge_index[1])[:count]
    weights = ((numbers % 7) + 1).float().unsqueeze(1) / 4
    if columns == "floats":
        features = torch.stack([((numbers * 37 + c * 11) % 23).float() / 10 - 1 for c in range(3)], dim=1)
    else:
        features = torch.stack([numbers % 5, numbers * 3 % 4], dim=1)
    for name, table in (("edge-feat", features), ("edge-weight", weights)):
        (folder / "raw" / f"{name}.csv").write_text("".join(",".join(map(str, row)) + "\n" for row in table.tolist()))
    return tuple(torch.cat([table, table[~loops]]) for table in (features, weights))


def compare_edges(bin_dir, work, dataset):
    x, edge_index = ogb.read_nodes(dataset)
    labels, train, test = ogb.node_labels(dataset), ogb.split(dataset, "train"), ogb.split(dataset, "test")
    for columns in ("floats", "categories"):
        features, weights = with_edges(dataset, work / columns, columns)
        with Daemon(bin_dir, work / f"{columns}-state", work / columns, import_as=columns) as daemon:
            for name, flags in EDGES.items():
                # Compares predictions before the step. After it, sums over Cora's 1,433 columns of messages make predictions of 50,000, and
                # even PyG's float32 differs from its float64 by 3e-5.
                module, gradients, same, (rows, predicted) = run(daemon, work, columns, name, ["--loss", "cross-entropy", *flags], predicts=0)
                assert rows == test
                given = weights if "weights" in flags else features
                exact = given.double() if given.is_floating_point() else given
                made = module.double().train()(x.double(), edge_index, edge_attr=exact)
                F.cross_entropy(made[train], labels[train]).backward()
                with torch.no_grad():
                    made, untrained = (m.eval()(x, edge_index, edge_attr=given)[test] for m in (same, models.build(same.spec)))
                compare("edges", f"{name}, {columns}", made, predicted, module, gradients, untrained)


def main():
    bin_dir, graphs, nodes = pathlib.Path(sys.argv[1]), *(pathlib.Path(path).resolve() for path in sys.argv[2:4])
    torch.set_num_threads(2)
    print(f"{'of':6}  {'model':48}  outputs  gradients  untrained")
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        graphs = part_of(graphs, work / "part")
        with Daemon(bin_dir, work / "sets", graphs, import_as="set") as daemon:
            compare_sets(daemon, work, graphs)
        if not nodes.is_dir():
            print(f"skipped: {nodes} is not there")
            return SKIPPED
        with Daemon(bin_dir, work / "graphs", nodes, import_as="graph") as daemon:
            compare_nodes(daemon, work, nodes)
        compare_edges(bin_dir, work, nodes)
    return 0


if __name__ == "__main__":
    sys.exit(main())
