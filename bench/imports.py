"""Measures the import of a list of edges into a store, beside GraphZero.

In each round, in changing order, Permafrost imports the graph's edges.csv into a synced store, and GraphZero converts it into its own
format. Permafrost runs in a process of its own, whose start does not count. Bytes an edge are those of the adjacency alone.
"""

import shutil
import statistics
import tempfile

from bench import peer_graphzero, tools
from bench.rounds import interleave, ratio, ratio_text

NAME = "import"
MEASURES = "importing a list of edges, in edges a second and bytes an edge, beside GraphZero"
NEEDS = "numpy; graphzero (deploy/install-deps --tests, Linux on x86-64), or --peer none"
PROGRAMS = ["data_import"]
PACKAGES = ["numpy"]


def add_arguments(parser):
    tools.add_graph_arguments(parser)
    tools.add_numbers(parser, rounds=5)
    parser.add_argument("--peer", choices=("graphzero", "none"), default="graphzero")


def measure(arguments, tools_):
    if arguments.peer == "graphzero":
        tools.need_packages(["graphzero"])
    graph = tools_.power_law_graph(arguments)
    facts = {}

    with tempfile.TemporaryDirectory(dir=tools_.work) as work:
        def ours(_):
            folder = f"{work}/store"
            facts.update(tools_.program("data_import", graph / "edges.csv", folder))
            shutil.rmtree(folder)
            return facts["seconds"]

        sides = {"permafrost": ours}
        with peer_graphzero.maybe(arguments, graph, tools_) as peer:
            if peer:
                sides["graphzero"] = lambda _: peer.ask("import")["seconds"]
            seconds = interleave(sides, arguments.rounds)
            bytes_an_edge = {"permafrost": facts["adjacency_bytes"] / facts["edges"]}
            if peer:
                bytes_an_edge["graphzero"] = peer.store_bytes() / facts["edges"]
    return {"nodes": facts["nodes"], "edges": facts["edges"], "bytes_an_edge": bytes_an_edge,
            "edges_a_second": {name: facts["edges"] / statistics.median(values) for name, values in seconds.items()},
            "ratios": {name: ratio(values, seconds["permafrost"]) for name, values in seconds.items() if name != "permafrost"}}


def show(result):
    lines = [f"{result['nodes']} nodes, {result['edges']} edges with their inverses"]
    for name, rate in result["edges_a_second"].items():
        beside = f"   Permafrost is faster by {ratio_text(result['ratios'][name])}" if name in result["ratios"] else ""
        lines.append(f"{name:12}{rate:10.3g} edges/s  {result['bytes_an_edge'][name]:6.2f} bytes an edge{beside}")
    return "\n".join(lines)
