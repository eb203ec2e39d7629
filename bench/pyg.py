"""Milliseconds of a training step on small graphs: Permafrost's daemon beside PyG.

In each round Permafrost trains a job of two epochs and PyG an epoch of the equal module (same data, batch size, fused Adam,
threads), once over batches collated beforehand and once through PyG's DataLoader, in changing order. A step's time is the
training time over the steps. The captures of Permafrost's job are taken off and given apart: a job pays them once, however
long it is.
"""

import statistics
import tempfile

from bench import tools
from bench.rounds import interleave, ratio, ratio_text

NAME = "pyg"
MEASURES = "a training step on small graphs, beside PyG"
NEEDS = "the Python packages of deploy/install-deps --tests"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["torch", "torch_geometric", "safetensors", "numpy"]
SIDES = {"permafrost": "Permafrost, with batching", "pyg": "PyG, collated before", "pyg_loader": "PyG with its DataLoader"}


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=tools.SAMPLE,
                        help="folder of many small graphs in OGB's layout (default: deploy/sample/zinc)")
    tools.add_numbers(parser, rounds=7, batch_size=32, hidden=64, layers=4)
    parser.add_argument("--cache-policy", default="freeze")


class Permafrost:
    def __init__(self, arguments, daemon):
        self.arguments, self.daemon = arguments, daemon
        self.capture_seconds = []

    def train(self, number):
        """Milliseconds of a step of a short job, waiting for batches included and captures not."""
        a, name = self.arguments, f"round-{number}"
        job = self.daemon.train(name, "--dataset", "set", "--epochs", 2, "--batch-size", a.batch_size, "--hidden", a.hidden,
                                "--layers", a.layers, "--cache-policy", a.cache_policy)
        seconds = sum(mode.get("captureSeconds", 0) for mode in self.daemon.json("cache", "show", name)["statistics"])
        self.capture_seconds.append(seconds)
        return job["result"]["meanStepMilliseconds"] - 1e3 * seconds / int(job["progress"]["step"])


def measure(arguments, tools_):
    from bench import peer_gine

    with tempfile.TemporaryDirectory() as work, tools_.daemon(arguments.dataset, work) as daemon:
        permafrost = Permafrost(arguments, daemon)
        permafrost.train("first")
        weights = f"{work}/weights.safetensors"
        daemon.client("job", "export", "round-first", "--artifact", "last-weights", "--to", weights)
        peer = peer_gine.Peer(weights, arguments.dataset, arguments.batch_size, arguments.threads)
        milliseconds = interleave({"permafrost": permafrost.train, "pyg": lambda _: peer.collated_epoch(),
                                   "pyg_loader": lambda _: peer.loader_epoch()}, arguments.rounds)
    return {"batch_size": arguments.batch_size, "hidden": arguments.hidden, "layers": arguments.layers, "peer": peer_gine.version(),
            "milliseconds": {name: statistics.median(values) for name, values in milliseconds.items()},
            "capture_seconds": statistics.median(permafrost.capture_seconds),
            "ratios": {name: ratio(milliseconds[name], milliseconds["permafrost"]) for name in ("pyg", "pyg_loader")}}


def show(result):
    lines = [f"{result['peer']}; captures of a job, once: {result['capture_seconds']:.1f} s"]
    for side, name in SIDES.items():
        beside = f"   over Permafrost {ratio_text(result['ratios'][side])}" if side in result["ratios"] else ""
        lines.append(f"{name:26}{result['milliseconds'][side]:9.2f} ms a step{beside}")
    return "\n".join(lines)
