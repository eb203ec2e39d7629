"""Link prediction on one large graph: the mean reciprocal rank of Permafrost's test links beside PyG's, and seconds of training.

Both sides have the same model, links (validation and test held out of the messages), decoder, optimizer (Adam), epochs and number of
negatives, and train on the whole graph in every step; weights and negatives are drawn by each side. The epoch that validates best is
tested. Seconds are those of training steps, evaluation apart, of all seeds together.
"""

import csv
import io
import pathlib
import statistics
import tempfile

from bench import peer_venv, tools
from tests.parity.daemon import Daemon

NAME = "links"
MEASURES = "link prediction beside PyG: mean reciprocal rank and seconds"
NEEDS = "a graph in OGB's node-property layout (--dataset); PyG (installed below the work folder) unless --peer none"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = []
DEFAULT = tools.ROOT.parent / "shared" / "data" / "node" / "cora"
VALID_PART, TEST_PART = 0.05, 0.1


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=DEFAULT, help="a graph (default: ../shared/data/node/cora)")
    tools.add_numbers(parser, seeds=3, epochs=100, hidden=64, layers=2, eval_negatives=100, split_seed=0)
    parser.add_argument("--lr", type=float, default=0.01, help="default 0.01")
    parser.add_argument("--model", default="sage", help="default sage")
    parser.add_argument("--decoder", choices=("dot", "mlp"), default="dot")
    parser.add_argument("--peer", choices=("pyg", "none"), default="pyg")


def side(mrr, seconds):
    return {"mean": statistics.fmean(mrr), "deviation": statistics.pstdev(mrr), "mrr": mrr, "seconds": seconds}


def permafrost(arguments, daemon, scratch):
    """Its side, the links that it tests, and a file of weights, which says what the model is."""
    swept = daemon.json("job", "sweep", "--dataset", "graph", "--id", "link", "--vary", f"seed=0..{arguments.seeds - 1}", "--max-jobs",
                        arguments.seeds, "--link-prediction", "--link-seed", arguments.split_seed, "--link-valid", VALID_PART, "--link-test",
                        TEST_PART, "--eval-negatives", arguments.eval_negatives, "--decoder", arguments.decoder, "--model", arguments.model,
                        "--hidden", arguments.hidden, "--layers", arguments.layers, "--lr", arguments.lr, "--epochs", arguments.epochs)
    text = {}
    for artifact in ("test-predictions", "best-weights"):
        daemon.client("job", "export", "link-0", "--artifact", artifact, "--to", scratch / artifact)
    text = (scratch / "test-predictions").read_text()
    tested = [[int(row[0]), int(row[1])] for row in list(csv.reader(io.StringIO(text)))[1:]]
    seconds = 0.0
    for seed in range(arguments.seeds):
        seconds += sum(epoch["trainSeconds"] for epoch in daemon.json("job", "show", f"link-{seed}")["epochs"])
    return side([job["test"]["mrr"] for job in swept["jobs"]], seconds), tested, scratch / "best-weights"


def pyg(arguments, tools_, tested, weights):
    settings = {"dataset": str(arguments.dataset), "weights": str(weights), "tested": tested, "epochs": arguments.epochs, "lr": arguments.lr,
                "seeds": list(range(arguments.seeds)), "eval_negatives": arguments.eval_negatives, "split_seed": arguments.split_seed,
                "valid_part": VALID_PART, "test_part": TEST_PART}
    answer = peer_venv.ask("bench.peer_links", settings, tools_)
    return {**side(answer["mrr"], answer["seconds"]), "version": answer["version"]}


def measure(arguments, tools_):
    if not arguments.dataset.exists():
        raise tools.Missing(f"{arguments.dataset}: not found; name a graph by --dataset")
    with tempfile.TemporaryDirectory(dir=tools_.work) as folder:
        scratch = pathlib.Path(folder)
        with Daemon(tools_.bin_dir, scratch / "state", arguments.dataset.parent, threads=tools_.threads) as daemon:
            daemon.client("dataset", "import", "graph", arguments.dataset)
            ours, tested, weights = permafrost(arguments, daemon, scratch)
        sides = {"permafrost": ours}
        if arguments.peer == "pyg":
            sides["pyg"] = pyg(arguments, tools_, tested, weights)
    return {"dataset": arguments.dataset.name, "seeds": arguments.seeds, "epochs": arguments.epochs, "links": len(tested), "sides": sides}


def show(result):
    lines = [f"{result['dataset']}, {result['links']} test links, {result['seeds']} seeds of {result['epochs']} epochs"]
    lines += [f"  {name:11} MRR {s['mean']:.4f} ± {s['deviation']:.4f}  {s['seconds']:7.1f} s of training" for name, s in result["sides"].items()]
    return "\n".join(lines)
