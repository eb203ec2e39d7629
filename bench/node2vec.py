"""Measures node2vec on one large graph: seconds of training beside a plain loop of PyG's loss and torch.optim.SparseAdam, and how well a
logistic regression of each side's embeddings predicts the classes.

Both sides have the same hyperparameters, and draw their own weights and walks. The loop draws all walks of a batch at once by a few
operators, because PyG's class needs pyg-lib. `made beforehand` is the same loop over walks that were drawn before. The sides take turns,
round by round. Seconds are those of training, without evaluation. The regression (L2, C = 1, as in scikit-learn) is fitted to the train
split and tested on the test split, with both sides' embeddings of the last epoch.
"""

import pathlib
import statistics
import tempfile

from bench import peer_venv, tools
from bench.rounds import interleave, ratio, ratio_text
from tests.parity.daemon import Daemon

NAME = "node2vec"
MEASURES = "node2vec beside a plain loop of PyTorch: seconds, and the accuracy of a logistic regression of the embeddings"
NEEDS = "a graph in OGB's node-property layout (--dataset); PyG (installed below the work folder)"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = []
DEFAULT = tools.ROOT.parent / "shared" / "data" / "node" / "cora"


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=DEFAULT, help="a graph (default: ../shared/data/node/cora)")
    tools.add_numbers(parser, rounds=5, epochs=5, dim=128, walk_length=20, context_size=10, walks_per_node=10, negatives=1, batch_size=128)
    parser.add_argument("--lr", type=float, default=0.01, help="default 0.01")


def measure(arguments, tools_):
    if not arguments.dataset.exists():
        raise tools.Missing(f"{arguments.dataset}: not found; name a graph by --dataset")
    own = {name: getattr(arguments, name)
           for name in ("epochs", "dim", "walk_length", "context_size", "walks_per_node", "negatives", "batch_size", "lr")}
    settings = {**own, "dataset": str(arguments.dataset)}
    accuracies = {"permafrost": [], "loop": []}
    with tempfile.TemporaryDirectory(dir=tools_.work) as folder:
        scratch = pathlib.Path(folder)
        with Daemon(tools_.bin_dir, scratch / "state", arguments.dataset.parent, threads=tools_.threads) as daemon:
            daemon.client("dataset", "import", "graph", arguments.dataset)

            def permafrost(number):
                job = daemon.train(f"walks-{number}", "--dataset", "graph", "--model", "node2vec", "--hidden", arguments.dim, "--walk-length",
                                   arguments.walk_length, "--context-size", arguments.context_size, "--walks-per-node",
                                   arguments.walks_per_node, "--negatives", arguments.negatives, "--batch-size", arguments.batch_size, "--lr",
                                   arguments.lr, "--epochs", arguments.epochs, "--seed", number)
                weights = scratch / f"{number}.safetensors"
                daemon.client("job", "export", f"walks-{number}", "--artifact", "last-weights", "--to", weights)
                accuracies["permafrost"].append(peer_venv.ask("bench.peer_node2vec", {**settings, "judge": str(weights)}, tools_)["accuracy"])
                return sum(epoch["trainSeconds"] for epoch in job["epochs"]) / arguments.epochs

            def loop(number, ready=False):
                answer = peer_venv.ask("bench.peer_node2vec", {**settings, "seed": number, "ready": ready}, tools_)
                if not ready:
                    accuracies["loop"].append(answer["accuracy"])
                steps.append(answer["steps"])
                return answer["seconds"] / arguments.epochs

            steps = []
            times = interleave({"permafrost": permafrost, "loop": loop, "made beforehand": lambda number: loop(number, ready=True)},
                               arguments.rounds)
    return {"dataset": arguments.dataset.name, **own, "steps_per_epoch": steps[0] // arguments.epochs,
            "seconds": {name: statistics.median(values) for name, values in times.items()},
            "ratios": {f"{name} / permafrost": ratio(times[name], times["permafrost"]) for name in ("loop", "made beforehand")},
            "accuracy": {name: {"mean": statistics.fmean(values), "deviation": statistics.pstdev(values), "runs": len(values)}
                         for name, values in accuracies.items()}}


def show(result):
    steps = result["steps_per_epoch"]
    lines = [f"{result['dataset']}, {result['dim']} channels, {result['epochs']} epochs of {steps} steps a round"]
    lines += [f"  {name:16}{value:8.3f} s an epoch  {steps / value:8.1f} steps/s" for name, value in result["seconds"].items()]
    lines += [f"  {name:28}{ratio_text(value)}" for name, value in result["ratios"].items()]
    lines += [f"  accuracy of {name:12}{100 * value['mean']:6.2f} ± {100 * value['deviation']:.2f} % of {value['runs']} runs"
              for name, value in result["accuracy"].items()]
    return "\n".join(lines)
