"""Cross-validates on a TUDataset: test accuracy of Permafrost's folds beside PyG's, and seconds, by one protocol.

Both sides have the same model, folds, optimizer (Adam), epochs and batch size. Each side begins with weights of its own. Each fold is
tested in the epoch with the best validation accuracy, or the first of equal ones. Permafrost's side is one `job sweep`. Its seconds are
those of the jobs, from start to the last evaluation, with checkpoints and captures. PyG's side is one process with its DataLoader. Its
seconds exclude importing torch and reading the set. `distance` is between the means, in standard deviations (the larger one).
"""

import pathlib
import statistics
import tempfile

from bench import peer_venv, tools, tu
from tests.parity.daemon import Daemon

NAME = "folds"
MEASURES = "cross-validation of a TUDataset beside PyG: accuracy and seconds"
NEEDS = "a zipped TUDataset (--dataset); PyG (installed below the work folder) unless --peer none"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = []
DEFAULT = tools.ROOT.parent / "shared" / "data" / "tu" / "MUTAG.zip"


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=DEFAULT, help="zipped TUDataset (default: ../shared/data/tu/MUTAG.zip)")
    tools.add_numbers(parser, folds=10, epochs=100, batch_size=32, hidden=32, layers=4, seed=0)
    parser.add_argument("--lr", type=float, default=0.01, help="default 0.01")
    parser.add_argument("--model", default="gine", help="Permafrost's; PyG's side is the module that its weights describe (default gine)")
    parser.add_argument("--pooling", choices=("mean", "sum"), default="sum")
    parser.add_argument("--peer", choices=("pyg", "none"), default="pyg")


def ids(text):
    """Returns the graphs of a file of predictions."""
    return [int(line.split(",")[0]) for line in text.splitlines()[1:]]


def permafrost(arguments, daemon, scratch):
    """Returns Permafrost's side, the graphs that each fold tests, and a file of weights, which describes the model."""
    swept = daemon.json("job", "sweep", "--dataset", "set", "--id", "fold", "--vary", f"fold=0..{arguments.folds - 1}", "--folds", arguments.folds,
                        "--max-jobs", arguments.folds, "--fold-seed", arguments.seed, "--seed", arguments.seed, "--model", arguments.model,
                        "--loss", "cross-entropy", "--pooling", arguments.pooling, "--hidden", arguments.hidden, "--layers", arguments.layers,
                        "--lr", arguments.lr, "--epochs", arguments.epochs, "--batch-size", arguments.batch_size)
    tested = []
    for fold in range(arguments.folds):
        path = scratch / f"{fold}.csv"
        daemon.client("job", "export", f"fold-{fold}", "--artifact", "test-predictions", "--to", path)
        tested.append(ids(path.read_text()))
    weights = scratch / "weights.safetensors"
    daemon.client("job", "export", "fold-0", "--artifact", "best-weights", "--to", weights)
    return side([job["test"]["accuracy"] for job in swept["jobs"]], sum(job["trainSeconds"] for job in swept["jobs"])), tested, weights


def pyg(arguments, tools_, tested, weights):
    settings = {"dataset": str(arguments.dataset), "weights": str(weights), "tested": tested, "epochs": arguments.epochs, "lr": arguments.lr,
                "batch_size": arguments.batch_size, "seed": arguments.seed, "loss": "cross-entropy"}
    answer = peer_venv.ask("bench.peer_folds", settings, tools_)
    return {**side(answer["accuracies"], answer["seconds"]), "version": answer["version"]}


def side(accuracies, seconds):
    return {"mean": statistics.fmean(accuracies), "deviation": statistics.pstdev(accuracies), "accuracies": accuracies, "seconds": seconds}


def measure(arguments, tools_):
    if not arguments.dataset.exists():
        raise tools.Missing(f"{arguments.dataset}: not found; name a zipped TUDataset by --dataset")
    labels = ["--tu-features", "labels"] if tu.has_labels(arguments.dataset) else []
    with tempfile.TemporaryDirectory(dir=tools_.work) as folder:
        scratch = pathlib.Path(folder)
        with Daemon(tools_.bin_dir, scratch / "state", arguments.dataset.parent, threads=tools_.threads) as daemon:
            daemon.client("dataset", "import", "set", arguments.dataset, *labels)
            ours, tested, weights = permafrost(arguments, daemon, scratch)
        sides = {"permafrost": ours}
        if arguments.peer == "pyg":
            sides["pyg"] = pyg(arguments, tools_, tested, weights)
    result = {"dataset": arguments.dataset.stem, "folds": arguments.folds, "epochs": arguments.epochs, "sides": sides}
    if "pyg" in sides:
        spread = max(s["deviation"] for s in sides.values())
        result["distance"] = abs(sides["pyg"]["mean"] - ours["mean"]) / spread if spread > 0 else 0.0
    return result


def show(result):
    lines = [f"{result['dataset']}, {result['folds']} folds of {result['epochs']} epochs"]
    lines += [f"  {name:11} test accuracy {s['mean']:.4f} ± {s['deviation']:.4f}  {s['seconds']:7.1f} s" for name, s in result["sides"].items()]
    if "distance" in result:
        lines.append(f"  the means are {result['distance']:.2f} standard deviations apart")
    return "\n".join(lines)
