"""Compares training on a set of graphs with splits of its own: the metric of Permafrost's job beside PyG's for the same model, and seconds.

Both sides have the same model (with --virtual-node and --dropout), splits, loss, optimizer (Adam), epochs and batch size. For each seed,
each side draws its own first weights, by the same rules, and its own masks and batches. The epoch that validates best is tested. The metric
follows from --loss: ROC-AUC for bce, accuracy for cross-entropy, mean absolute error for l1 and mse. `difference` is Permafrost's mean over
the seeds minus PyG's, with a 95 % interval by bootstrap over the seeds of both. Seconds are summed over all seeds. Permafrost's are those
of the jobs, from start to the last evaluation, with captures and checkpoints. PyG's are those of the loop over its DataLoader with its
evaluations, without reading the set.
"""

import pathlib
import statistics
import tempfile

from bench import peer_venv, tools
from bench.rounds import difference, difference_text

NAME = "sets"
MEASURES = "a set of graphs with splits of its own beside PyG, dropout and virtual node on both sides: validation, test, seconds"
NEEDS = "a set in OGB's graph-property layout (--dataset); PyG (installed below the work folder) unless --peer none"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = []
DEFAULT = tools.ROOT.parent / "shared" / "data" / "graphs" / "molhiv"
LOSSES = ("bce", "cross-entropy", "l1", "mse")


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=DEFAULT, help="a set (default: ../shared/data/graphs/molhiv)")
    tools.add_numbers(parser, seeds=3, epochs=20, batch_size=32, hidden=64, layers=4)
    parser.add_argument("--lr", type=float, default=0.001, help="default 0.001")
    parser.add_argument("--dropout", type=float, default=0.3, help="default 0.3")
    parser.add_argument("--model", default="gine", help="Permafrost's; PyG's side is the module that its weights describe (default gine)")
    parser.add_argument("--no-virtual-node", action="store_true", help="leave the virtual node out")
    parser.add_argument("--loss", choices=LOSSES, default="bce", help="default bce")
    parser.add_argument("--peer", choices=("pyg", "none"), default="pyg")


def side(valid, test, seconds):
    told = {f"{split}_{name}": of(values) for split, values in (("valid", valid), ("test", test))
            for name, of in (("mean", statistics.fmean), ("deviation", statistics.pstdev))}
    return {**told, "valid": valid, "test": test, "seconds": seconds}


def permafrost(arguments, daemon, scratch):
    """Returns Permafrost's side, the metric's name, and a file of weights, which describes the model."""
    flags = [] if arguments.no_virtual_node else ["--virtual-node"]
    swept = daemon.json("job", "sweep", "--dataset", "set", "--id", "seed", "--vary", f"seed=0..{arguments.seeds - 1}", "--max-jobs", arguments.seeds,
                        "--model", arguments.model, "--loss", arguments.loss, "--dropout", arguments.dropout, "--hidden", arguments.hidden,
                        "--layers", arguments.layers, "--lr", arguments.lr, "--epochs", arguments.epochs, "--batch-size", arguments.batch_size,
                        *flags)
    weights = scratch / "weights.safetensors"
    daemon.client("job", "export", "seed-0", "--artifact", "best-weights", "--to", weights)
    (metric,) = swept["jobs"][0]["valid"]
    ours = side(*([job[split][metric] for job in swept["jobs"]] for split in ("valid", "test")),
                sum(job["trainSeconds"] for job in swept["jobs"]))
    return ours, metric, weights


def pyg(arguments, tools_, weights):
    settings = {"dataset": str(arguments.dataset), "weights": str(weights), "loss": arguments.loss, "epochs": arguments.epochs, "lr": arguments.lr,
                "batch_size": arguments.batch_size, "seeds": list(range(arguments.seeds))}
    answer = peer_venv.ask("bench.peer_sets", settings, tools_)
    return {**side(answer["valid"], answer["test"], answer["seconds"]), "version": answer["version"]}


def measure(arguments, tools_):
    if not arguments.dataset.exists():
        raise tools.Missing(f"{arguments.dataset}: not found; name a set in OGB's graph-property layout by --dataset")
    with tempfile.TemporaryDirectory(dir=tools_.work) as folder:
        scratch = pathlib.Path(folder)
        with tools_.daemon(arguments.dataset, scratch / "state") as daemon:
            ours, metric, weights = permafrost(arguments, daemon, scratch)
        sides = {"permafrost": ours}
        if arguments.peer == "pyg":
            sides["pyg"] = pyg(arguments, tools_, weights)
    result = {"dataset": arguments.dataset.name, "model": arguments.model, "virtual_node": not arguments.no_virtual_node,
              "dropout": arguments.dropout, "metric": metric, "seeds": arguments.seeds, "epochs": arguments.epochs, "sides": sides}
    if "pyg" in sides:
        result["difference"] = {split: difference(ours[split], sides["pyg"][split]) for split in ("valid", "test")}
    return result


def show(result):
    virtual = ", virtual node" if result["virtual_node"] else ""
    lines = [f"{result['dataset']}: {result['model']}{virtual}, dropout {result['dropout']}, {result['seeds']} seeds of {result['epochs']} epochs"]
    lines += [f"  {name:11} {result['metric']}  valid {s['valid_mean']:.4f} ± {s['valid_deviation']:.4f}  test {s['test_mean']:.4f} ± "
              f"{s['test_deviation']:.4f}  {s['seconds']:8.1f} s" for name, s in result["sides"].items()]
    lines += [f"  permafrost - pyg, {split:6}{difference_text(value)}" for split, value in result.get("difference", {}).items()]
    return "\n".join(lines)
