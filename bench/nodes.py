"""Measures seconds of an epoch of sampled GraphSAGE: Permafrost's daemon beside PyG's NeighborLoader and DGL's GraphBolt.

All train the same network (one layer for each fan-out, cross-entropy, Adam) on the same graph, split, fan-outs and batch size with the same
number of threads. In every round each side trains one epoch, in changing order. A peer's epoch is the loop over its loader: sampling,
gathering, forward, backward, step.

PyG's data are in memory, and its Adam is the fused one. Its layers are trimmed to the hops that they need if its sampler reports the hops.
Sparse features become dense there, because PyG's layers need that. GraphBolt has graph and features in memory, and reads only graphs of
`bench/run graph`. Its second hop draws for the seed nodes again, whereas PyG's and Permafrost's draw for new nodes only.

Permafrost's epoch is the second of a job, whose pages are in memory too, and whose captures are done.
"""

import contextlib
import itertools
import json
import statistics
import tempfile

from bench import peer_venv, tools
from bench.peer_graphzero import Program
from bench.rounds import interleave, ratio, ratio_text

NAME = "nodes"
MEASURES = "an epoch of sampled GraphSAGE, beside PyG's NeighborLoader and DGL's GraphBolt"
NEEDS = ("--install-sampler once for PyG's NeighborLoader (20 minutes to compile), --install-graphbolt for --peers graphbolt (5 GB), "
         "or --peers none")
PEERS = {"pyg": "PyG", "graphbolt": "GraphBolt"}
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy"]


def add_arguments(parser):
    tools.add_graph_arguments(parser)
    tools.add_numbers(parser, rounds=7, hidden=64, batch_size=1024)
    tools.add_fan_out(parser, "15,10")
    parser.add_argument("--node-features", choices=("auto", "dense", "sparse"), default="auto")
    parser.add_argument("--peers", type=tools.names_of(NAME, "--peers", PEERS, or_none=True), default="pyg", help="any of pyg and graphbolt, divided by commas, or none; default pyg")
    peer_venv.add_install_flag_of_sampler(parser)
    peer_venv.add_install_flag_of_graphbolt(parser)


class Permafrost:
    def __init__(self, arguments, daemon):
        self.arguments, self.daemon, self.numbers = arguments, daemon, itertools.count()

    def epoch(self, _):
        """Returns the seconds of the second epoch of a job."""
        a = self.arguments
        self.name = f"epoch-{next(self.numbers)}"
        job = self.daemon.train(self.name, *tools.sage_flags(a), "--hidden", a.hidden, "--epochs", 2)
        return job["epochs"][1]["trainSeconds"]

    def facts(self):
        """Returns what the last job's cache held and did."""
        job, cache = self.daemon.json("job", "show", self.name), self.daemon.json("cache", "show", self.name)
        train = next(mode for mode in cache["statistics"] if mode["mode"].endswith("TRAIN"))
        real = int(train.get("nodes", 0)) + int(train.get("edges", 0))
        padding = int(train.get("paddingNodes", 0)) + int(train.get("paddingEdges", 0))
        return {"steps": int(job["progress"]["stepsPerEpoch"]), "executables": int(train.get("entries", 0)),
                "eager_steps": int(train.get("eagerSteps", 0)), "rows_added": padding / max(1, real)}


def peers(arguments, tools_, graph):
    """Returns the programs of the peers in --peers, by name."""
    names = arguments.peers
    if "graphbolt" in names and not (graph / "edge_index.npy").exists():
        raise SystemExit(f"bench: nodes: --peers graphbolt reads folders of `bench/run graph`; {graph} has no edge_index.npy")
    settings = {"hidden": arguments.hidden, "fan_outs": [int(k) for k in arguments.fan_out.split(",")], "batch_size": arguments.batch_size,
                "threads": arguments.threads}
    found = {}
    if "pyg" in names:
        found["pyg"] = (peer_venv.python(tools_.work, arguments.install_sampler, must_sample=True), "-m", "bench.peer_sage", graph,
                        json.dumps({**settings, "node_features": arguments.node_features}))
    if "graphbolt" in names:
        found["graphbolt"] = (peer_venv.graphbolt(tools_.work, arguments.install_graphbolt), "-m", "bench.peer_graphbolt", graph,
                              json.dumps(settings))
    environment = tools.peer_environment(arguments.threads)
    return {name: Program(*command, cwd=tools.ROOT, env=environment) for name, command in found.items()}


def measure(arguments, tools_):
    graph = tools_.power_law_graph(arguments)
    features = () if arguments.node_features == "auto" else ("--node-features", arguments.node_features)
    with contextlib.ExitStack() as stack:
        programs = peers(arguments, tools_, graph)
        for program in programs.values():
            stack.callback(program.close)
        work = stack.enter_context(tempfile.TemporaryDirectory(dir=tools_.work))
        ours = Permafrost(arguments, stack.enter_context(tools_.daemon(graph, f"{work}/state", import_flags=features)))
        answers = {name: {} for name in programs}

        def epoch(name):
            answers[name] = programs[name].ask("epoch")
            return answers[name]["seconds"]

        seconds = interleave({"permafrost": ours.epoch, **{name: lambda _, name=name: epoch(name) for name in programs}}, arguments.rounds)
        facts = ours.facts()
    return {"dataset": graph.name, "fan_out": arguments.fan_out, "batch_size": arguments.batch_size, **facts, "rounds": arguments.rounds,
            "seconds": {name: statistics.median(values) for name, values in seconds.items()},
            "peers": {name: {"version": answer["version"], "ratio": ratio(seconds[name], seconds["permafrost"])} for name, answer in answers.items()},
            **({"pyg_trims_layers": answers["pyg"]["trims"]} if "pyg" in answers else {})}


def show(result):
    lines = [f"{result['dataset']}: one epoch, {result['steps']} steps of {result['batch_size']} seeds, fan-outs {result['fan_out']}",
             f"Permafrost  {result['seconds']['permafrost']:8.3f} s   {result['executables']} executables, {result['eager_steps']} eager steps, "
             f"{100 * result['rows_added']:.2f} % rows added"]
    for name, peer in result["peers"].items():
        trims = {True: "; layers trimmed", False: "; layers not trimmed", None: ""}[result.get("pyg_trims_layers") if name == "pyg" else None]
        lines += [f"{PEERS[name]:12}{result['seconds'][name]:9.3f} s   {peer['version']}{trims}",
                  f"{PEERS[name]} over Permafrost  {ratio_text(peer['ratio'])}"]
    return "\n".join(lines)
