"""Seconds of an epoch of sampled GraphSAGE: Permafrost's daemon beside PyG's NeighborLoader.

Both train the same network (a layer a fan-out, cross-entropy, fused Adam) on the same graph, split, fan-outs and batch size with
equally many threads, an epoch each in every round, in changing order. PyG's epoch is the loop over its loader: sampling, gathering,
forward, backward, step; its data are in memory, its layers are trimmed to the hops they need where its sampler says them, and
sparse features are dense ones there, since that is what its layers take. Permafrost's is the second epoch of a job, whose pages
are in memory too and whose captures are done.
"""

import itertools
import statistics
import tempfile

from bench import tools
from bench.rounds import interleave, ratio, ratio_text

NAME = "nodes"
MEASURES = "an epoch of sampled GraphSAGE, beside PyG's NeighborLoader"
NEEDS = "the Python packages of deploy/install-deps --tests and torch-sparse (20 minutes to compile), or --peer none"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy"]


def add_arguments(parser):
    tools.add_graph_arguments(parser)
    tools.add_numbers(parser, rounds=7, hidden=64, batch_size=1024)
    tools.add_fan_out(parser, "15,10")
    parser.add_argument("--node-features", choices=("auto", "dense", "sparse"), default="auto")
    parser.add_argument("--peer", choices=("pyg", "none"), default="pyg")


class Permafrost:
    def __init__(self, arguments, daemon):
        self.arguments, self.daemon, self.numbers = arguments, daemon, itertools.count()

    def epoch(self, _):
        """Seconds of the second epoch of a job."""
        a = self.arguments
        self.name = f"epoch-{next(self.numbers)}"
        job = self.daemon.train(self.name, *tools.sage_flags(a), "--hidden", a.hidden, "--epochs", 2)
        return job["epochs"][1]["trainSeconds"]

    def facts(self):
        """Of the last job: what its cache held and did."""
        job, cache = self.daemon.json("job", "show", self.name), self.daemon.json("cache", "show", self.name)
        train = next(mode for mode in cache["statistics"] if mode["mode"].endswith("TRAIN"))
        real = int(train.get("nodes", 0)) + int(train.get("edges", 0))
        padding = int(train.get("paddingNodes", 0)) + int(train.get("paddingEdges", 0))
        return {"steps": int(job["progress"]["stepsPerEpoch"]), "executables": int(train.get("entries", 0)),
                "eager_steps": int(train.get("eagerSteps", 0)), "rows_added": padding / max(1, real)}


def measure(arguments, tools_):
    sides = {}
    if arguments.peer == "pyg":
        tools.need_packages(["torch", "torch_geometric", "torch_sparse"])
        from bench import peer_sage
    graph = tools_.power_law_graph(arguments)
    features = () if arguments.node_features == "auto" else ("--node-features", arguments.node_features)
    with tempfile.TemporaryDirectory(dir=tools_.work) as work, tools_.daemon(graph, f"{work}/state", import_flags=features) as daemon:
        ours = Permafrost(arguments, daemon)
        sides["permafrost"] = ours.epoch
        peer = None
        if arguments.peer == "pyg":
            peer = peer_sage.Peer(graph, arguments.node_features, arguments.hidden, [int(k) for k in arguments.fan_out.split(",")],
                                  arguments.batch_size, arguments.threads)
            sides["pyg"] = lambda _: peer.epoch()
        seconds = interleave(sides, arguments.rounds)
        facts = ours.facts()
    result = {"dataset": graph.name, "fan_out": arguments.fan_out, "batch_size": arguments.batch_size, **facts, "rounds": arguments.rounds,
              "seconds": {name: statistics.median(values) for name, values in seconds.items()}}
    if peer:
        result |= {"peer": peer_sage.version(), "pyg_trims_layers": peer.trims, "ratio": ratio(seconds["pyg"], seconds["permafrost"])}
    return result


def show(result):
    lines = [f"{result['dataset']}: one epoch, {result['steps']} steps of {result['batch_size']} seeds, fan-outs {result['fan_out']}",
             f"Permafrost  {result['seconds']['permafrost']:8.3f} s   {result['executables']} executables, {result['eager_steps']} eager steps, "
             f"{100 * result['rows_added']:.2f} % rows added"]
    if "ratio" in result:
        lines += [f"PyG         {result['seconds']['pyg']:8.3f} s   {result['peer']}; layers trimmed: {'yes' if result['pyg_trims_layers'] else 'no'}",
                  f"PyG over Permafrost  {ratio_text(result['ratio'])}"]
    return "\n".join(lines)
