"""Measures link prediction on one large graph: the mean reciprocal rank of Permafrost's test links beside PyG's, and seconds of training.

The links of each split, and the negatives for validation and test, are drawn once and written as files beside the graph. Both sides read
them (`--link-split dataset`). Links to validate and test pass no messages. Both sides have the same model, decoder, optimizer (Adam) and
epochs, and train on the whole graph in every step. For each seed, each side draws its own first weights, by the same rules, and its own
training negatives. The epoch that validates best is tested. `difference` is Permafrost's mean over the seeds minus PyG's, with a 95 %
interval by bootstrap over the seeds of both. Seconds are those of the training steps of all seeds together, without evaluation.
"""

import csv
import io
import pathlib
import statistics
import tempfile

from bench import peer_venv, tools
from bench.rounds import difference, difference_text

NAME = "links"
MEASURES = "link prediction beside PyG: mean reciprocal rank of the same links among the same negatives, and seconds"
NEEDS = "a graph in OGB's node-property layout (--dataset); PyG (installed below the work folder) unless --peer none"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy"]
DEFAULT = tools.ROOT.parent / "shared" / "data" / "node" / "cora"
VALID_PART, TEST_PART = 0.05, 0.1


def negatives_each(text):
    """Parses --eval-negatives. Refuses 2, since a table of two columns would be read as pairs of nodes."""
    if not text.isdecimal() or int(text) in (0, 2):
        raise SystemExit(f"bench: links: --eval-negatives {text}: accepted: 1, or 3 and more")
    return int(text)


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=DEFAULT, help="a graph (default: ../shared/data/node/cora)")
    tools.add_numbers(parser, seeds=5, epochs=100, hidden=64, layers=2, split_seed=0)
    parser.add_argument("--eval-negatives", type=negatives_each, default=100, help="beside each link that is evaluated (default 100)")
    parser.add_argument("--lr", type=float, default=0.01, help="default 0.01")
    parser.add_argument("--model", default="sage", help="default sage")
    parser.add_argument("--decoder", choices=("dot", "mlp"), default="dot")
    parser.add_argument("--peer", choices=("pyg", "none"), default="pyg")


def side(mrr, seconds):
    return {"mean": statistics.fmean(mrr), "deviation": statistics.pstdev(mrr), "mrr": mrr, "seconds": seconds}


def tested_links(text):
    """Returns [source, target] of each row of a file of predictions."""
    return [[int(row[0]), int(row[1])] for row in list(csv.reader(io.StringIO(text)))[1:]]


def permafrost(arguments, daemon, scratch):
    """Returns Permafrost's side, the links that it tests, and a file of weights, which describes the model."""
    swept = daemon.json("job", "sweep", "--dataset", "set", "--id", "link", "--vary", f"seed=0..{arguments.seeds - 1}", "--max-jobs",
                        arguments.seeds, "--link-prediction", "--link-split", "dataset", "--decoder", arguments.decoder, "--model", arguments.model,
                        "--hidden", arguments.hidden, "--layers", arguments.layers, "--lr", arguments.lr, "--epochs", arguments.epochs)
    for artifact in ("test-predictions", "best-weights"):
        daemon.client("job", "export", "link-0", "--artifact", artifact, "--to", scratch / artifact)
    seconds = 0.0
    for seed in range(arguments.seeds):
        seconds += sum(epoch["trainSeconds"] for epoch in daemon.json("job", "show", f"link-{seed}")["epochs"])
    tested = tested_links((scratch / "test-predictions").read_text())
    return side([job["test"]["mrr"] for job in swept["jobs"]], seconds), tested, scratch / "best-weights"


def pyg(arguments, tools_, links, weights):
    settings = {"dataset": str(arguments.dataset), "links": str(links), "weights": str(weights), "epochs": arguments.epochs, "lr": arguments.lr,
                "seeds": list(range(arguments.seeds))}
    answer = peer_venv.ask("bench.peer_links", settings, tools_)
    return {**side(answer["mrr"], answer["seconds"]), "version": answer["version"]}


def measure(arguments, tools_):
    import numpy as np

    from bench import link_files

    if not arguments.dataset.exists():
        raise tools.Missing(f"{arguments.dataset}: not found; name a graph by --dataset")
    with tempfile.TemporaryDirectory(dir=tools_.work) as folder:
        scratch = pathlib.Path(folder)
        links = link_files.write(arguments.dataset, scratch / "graph", VALID_PART, TEST_PART, arguments.eval_negatives, arguments.split_seed)
        with tools_.daemon(scratch / "graph", scratch / "state") as daemon:
            ours, tested, weights = permafrost(arguments, daemon, scratch)
        if tested != np.load(links / "test.npy").tolist():
            raise RuntimeError("the server tests other links than the files hold")
        sides = {"permafrost": ours}
        if arguments.peer == "pyg":
            sides["pyg"] = pyg(arguments, tools_, links, weights)
    result = {"dataset": arguments.dataset.name, "model": arguments.model, "decoder": arguments.decoder, "seeds": arguments.seeds,
              "epochs": arguments.epochs, "links": len(tested), "negatives": arguments.eval_negatives, "sides": sides}
    if "pyg" in sides:
        result["difference"] = difference(ours["mrr"], sides["pyg"]["mrr"])
    return result


def show(result):
    lines = [f"{result['dataset']}: {result['model']}, {result['decoder']}, {result['links']} test links among {result['negatives']} negatives each, "
             f"{result['seeds']} seeds of {result['epochs']} epochs"]
    lines += [f"  {name:11} MRR {s['mean']:.4f} ± {s['deviation']:.4f}  {s['seconds']:7.1f} s of training" for name, s in result["sides"].items()]
    if "difference" in result:
        lines.append(f"  permafrost - pyg  {difference_text(result['difference'])}")
    return "\n".join(lines)
