"""Measures drawing neighbours and walks from one large graph, beside GraphZero, numpy and GraphBolt, in edges or steps a second.

  subgraphs        fan-outs 15 and 10 around batches of seeds, every node once and edges between local rows, as a training
                   step needs it. Ours is the NeighborSampler that trains; numpy makes such a subgraph from the peers' draws.
  neighbors        one hop of 15 around every node, in batches of seeds in shuffled order. Ours is the same NeighborSampler,
                   which also finds each node's row; the peers' draws are left as they are.
  neighbors-rows   the same with the seeds in the order of their rows.
  neighbors-replace  as `neighbors`, with replacement on all sides.
  walk, node2vec   walks of 40 nodes, uniform and with p = 0.5, q = 2.

Apart from neighbors-replace, ours draws without replacement, as jobs do, and the peers draw with replacement. Ours therefore
returns fewer edges for a node with few neighbours. Each side is counted by the edges that it returned. `prepared` measures ours
alone: a subgraph whose pages are requested and whose features are gathered into a padded batch. `means` is the same, with the
means of a first layer in place of the last hop's rows, as GraphSAGE's jobs take it. With --graphbolt, `subgraphs` and `prepared`
are also compared with DGL GraphBolt's ItemSampler, sample_neighbor and fetch_feature.
"""

import contextlib
import json
import statistics

from bench import peer_graphzero, peer_venv, tools
from bench.rounds import interleave, ratio

NAME = "sampling"
MEASURES = "the sampler that trains, and random walks, beside GraphZero, numpy and GraphBolt"
NEEDS = "numpy; graphzero (deploy/install-deps --tests, Linux on x86-64), or --peer none; --install-graphbolt once for --graphbolt (5 GB)"
PROGRAMS = ["data_import", "data_sampling"]
PACKAGES = ["numpy"]
FAN_OUT, FAN_OUTS = 15, (15, 10)
DRAWS = {"subgraphs": "subgraphs {}", "neighbors": "neighbors {}", "neighbors-rows": "neighbors-rows {}", "neighbors-replace": "neighbors-replace {}"}
WALKS = {"walk": "walk {}", "node2vec": "node2vec {} 0.5 2"}


def add_arguments(parser):
    tools.add_graph_arguments(parser)
    tools.add_numbers(parser, rounds=15, batches=30, batch_size=1024, walks=200_000, length=40)
    parser.add_argument("--peer", choices=("graphzero", "none"), default="graphzero")
    parser.add_argument("--graphbolt", action="store_true", help="DGL's GraphBolt too")
    peer_venv.add_install_flag_of_graphbolt(parser)


def compare(workload, command, ours, name, peer, rounds, peers_command=None):
    """Returns one row of the table: what both sides did a second, and the ratio."""
    rate = lambda program, line: lambda number: (lambda a: a["done"] / a["seconds"])(program.ask(line.format(number)))
    rates = interleave({"ours": rate(ours, command), "peer": rate(peer, peers_command or command)}, rounds)
    return {"workload": workload, "peer": name, "ours_a_second": statistics.median(rates["ours"]),
            "peer_a_second": statistics.median(rates["peer"]), "ratio": ratio(rates["ours"], rates["peer"])}


def graphbolt(arguments, tools_, graph, settings):
    python = peer_venv.graphbolt(tools_.work, arguments.install_graphbolt)
    return peer_graphzero.Program(python, "-m", "bench.peer_graphbolt", graph, json.dumps({**settings, "threads": arguments.threads, "hidden": 64}),
                                  cwd=tools.ROOT, env=tools.peer_environment(arguments.threads))


def measure(arguments, tools_):
    from bench import peer_numpy

    if arguments.peer == "graphzero":
        tools.need_packages(["graphzero"])
    graph = tools_.power_law_graph(arguments)
    store = tools_.work / f"store-{graph.name}"
    if not (store / "graph.pfg").exists():
        tools_.program("data_import", graph, store)
    settings = {"fan_out": FAN_OUT, "fan_outs": FAN_OUTS, "batch_size": arguments.batch_size, "batches": arguments.batches,
                "walks": arguments.walks, "length": arguments.length}
    rows = []
    with contextlib.ExitStack() as stack:
        ours = peer_graphzero.Program(tools_.bin_dir / "data_sampling", store, "--threads", arguments.threads, "--fan-out", FAN_OUT,
                                      "--fan-outs", *FAN_OUTS, "--batches", arguments.batches, "--batch-size", arguments.batch_size,
                                      "--walks", arguments.walks, "--length", arguments.length, env=tools.ENVIRONMENT)
        stack.callback(ours.close)
        info = ours.ask("info")
        peer = stack.enter_context(peer_graphzero.maybe(arguments, graph, tools_, **settings))
        if peer:
            rows += [compare(name, command, ours, "GraphZero", peer, arguments.rounds) for name, command in {**DRAWS, **WALKS}.items()]
        if arguments.graphbolt:
            bolt = graphbolt(arguments, tools_, graph, settings)
            stack.callback(bolt.close)
            rows += [compare(name, command, ours, "GraphBolt", bolt, arguments.rounds, peers_command) for name, command, peers_command in
                     (("subgraphs", "subgraphs {}", "draw {}"), ("prepared", "prepared {}", "prepare {}"))]
        local = peer_numpy.Peer(graph, settings)
        rows += [compare(name, command, ours, "numpy", local, arguments.rounds) for name, command in DRAWS.items()]
        batches = {name: [ours.ask(f"{name} {seed}") for seed in range(6)][1:] for name in ("prepared", "means")}
    return {"nodes": info["nodes"], "edges": info["edges"], "rows": rows,
            **{name: {"milliseconds_a_batch": statistics.median(1e3 * a["seconds"] / a["batches"] for a in answers),
                      "rows_a_batch": answers[-1]["nodes"] / answers[-1]["batches"],
                      "edges_a_batch": answers[-1]["done"] / answers[-1]["batches"]} for name, answers in batches.items()}}


def show(result):
    lines = [f"{result['nodes']} nodes, {result['edges']} directed edges, fan-outs {FAN_OUTS}; medians of {result['rows'][0]['ratio']['rounds']} "
             "interleaved rounds", f"{'edges or steps a second':28}{'ours':>12}{'peer':>12}{'ratio':>9}   95 % interval"]
    for row in result["rows"]:
        r = row["ratio"]
        lines.append(f"{row['workload'] + ', ' + row['peer']:28}{row['ours_a_second']:12.3g}{row['peer_a_second']:12.3g}{r['median']:9.2f}   "
                     f"{r['low']:.2f} to {r['high']:.2f}")
    for name in ("prepared", "means"):
        b = result[name]
        lines.append(f"{name}: {b['milliseconds_a_batch']:.2f} ms a batch of {b['rows_a_batch']:.0f} rows, {b['edges_a_batch']:.0f} edges")
    return "\n".join(lines)
