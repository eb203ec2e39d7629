"""Predicts the epoch time of one job on 1 to 1,024 daemons from measurements of one and two.

The real daemons give three costs: that of a step as a line over the share of the batch, that of an exchange by message and byte, and that
of an evaluation. bench/cluster_model.py, which follows server/collective message by message, predicts the rest. Each daemon has one thread
and is pinned to one core. All sides take turns, and the fastest round counts, so that other work disturbs little.

The prediction is checked on two cores. Two daemons on one core show the cost of sharing a core. From that, and from one and two daemons
with a core each, the model predicts four daemons, two on each core.

ZINC is trained as measured, with the largest of --batch-sizes divided among all ranks. Large graphs take --seeds seeds a rank, as published
systems do. Their steps follow the measured line over the edges of a block, on a graph made here. Seeds are assumed to find as many
neighbours as the fan-out asks for, and no node twice. A rank computes --speed times as fast as one core of this machine.

Two predictions are of things that are not built. `trees`: sums take log2(ranks) rounds, and weights are passed on in one message.
--divided: each machine holds a part of the large graph. Before each step it fetches the feature rows that other machines hold, each row
once.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import operator
import os
import pathlib
import statistics
import tempfile

from bench import tools
from bench.replicas import whole_numbers
from bench.rounds import interleave

NAME = "simulate"
MEASURES = "the epoch time of one job on up to 1,024 daemons, predicted from measurements of one and two"
NEEDS = "two cores, or --measurements FILE"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy"]
# The layouts of the ranks: the number of ranks, and of cores that they run on.
LAYOUTS = {"one": (1, 1), "two": (2, 2), "crowded two": (2, 1), "crowded four": (4, 2)}
LARGE_BATCHES = (128, 1024)
# The model's memory grows with the square of the number of ranks.
MOST_RANKS = 4096
# The bytes of an edge in a store, as measured by `bench/run import`.
EDGE_BYTES = 4.4
# The sizes that the Open Graph Benchmark gives. It lists each edge of products once; a store holds both directions.
GRAPHS = {
    "ogbn-products": {"nodes": 2_449_029, "edges": 2 * 61_859_140, "features": 100, "classes": 47, "train": 196_615, "valid": 39_323},
    "ogbn-papers100M": {"nodes": 111_059_956, "edges": 2 * 1_615_685_872, "features": 128, "classes": 172, "train": 1_207_179,
                        "valid": 125_265},
}
PUBLISHED = (
    "DistGNN-MB (arXiv 2211.06385): papers100M, 3 layers of GraphSAGE, 2 s an epoch on 32 nodes of two 36-core Xeons; 10 times as fast as on 2",
    "DistDGLv2 (arXiv 2112.15345): 5 to 10 s an epoch on graphs of hundreds of millions of nodes, 64 GPUs",
    "Plexus (arXiv 2505.04083): all of papers100M in every step, on up to 2,048 GPUs; no epoch of samples to compare with",
)


def add_arguments(parser):
    parser.add_argument("--measurements", dest="results", metavar="FILE", type=tools.path,
                        help="result of an earlier run (--output json); no daemon runs")
    parser.add_argument("--dataset", type=tools.path, default=tools.SAMPLE, help="folder of many small graphs (default: deploy/sample/zinc)")
    for flag, default, text in (("--hidden", [64, 256], "channels on the small graphs"),
                                ("--batch-sizes", [32, 256], "graphs of a global batch; at least two"),
                                ("--ranks", [2**k for k in range(11)], "daemons to predict"),
                                ("--gigabits", [10, 100], "bandwidths of a machine's link, Gbit/s")):
        parser.add_argument(flag, type=whole_numbers, default=default, help=f"{text} (default {','.join(map(str, default))})")
    tools.add_numbers(parser, rounds=7, epochs=2, layers=4, nodes=100_000, edges=1_000_000, large_hidden=256, seeds=1000)
    tools.add_fan_out(parser, "15,10,5")
    for flag, default, text in (("--latency-us", 20.0, "microseconds from one machine to another"),
                                ("--speed", 1.0, "of a rank over one core of this machine"),
                                ("--straggler", 1.0, "times as long as the others that the last rank computes")):
        parser.add_argument(flag, type=positive, default=default, help=f"{text} (default {default:g})")
    parser.add_argument("--divided", action="store_true", help="predict for large graphs that are divided among the machines")


def positive(text):
    with contextlib.suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text}: accepted: a number above 0")


# The functions below measure.


def step_of(job, examples):
    """Returns the mean seconds of a step, the mean part of them that a rank computes, and the seconds of the last evaluation."""
    exchange = job["progress"].get("exchange")
    step = float(job["result"]["meanStepMilliseconds"]) / 1e3
    ranks = exchange["ranks"] if exchange else []
    computed = [(float(rank["seconds"]) - float(rank["exchangeSeconds"])) / int(rank["steps"]) for rank in ranks]
    return {"step": step, "compute": statistics.fmean(computed or [step]), "valid": job["epochs"][-1]["validSeconds"],
            "edges": int(job["progress"]["edges"]) / examples}


class Daemons:
    """The daemons: a leader and a peer on a core each, three more daemons that share cores, and one that has the large graph."""

    def __init__(self, arguments, tools_, folder, stack):
        cores = sorted(os.sched_getaffinity(0))[:2]
        if len(cores) < 2:
            raise tools.Missing("it measures on two cores, and this process may use one")
        self.arguments, self.jobs = arguments, 0
        one_thread = dataclasses.replace(tools_, threads=1)

        def start(name, core, *flags, dataset=arguments.dataset):
            return stack.enter_context(one_thread.daemon(dataset, folder / name, *flags, prepare=lambda: os.sched_setaffinity(0, {cores[core]})))

        far, near, third = start("far", 1), start("near", 0), start("third", 1)
        leader = start("leader", 0, "--peers", ",".join(peer.server for peer in (far, near, third)))
        self.leaders = dict.fromkeys(LAYOUTS, leader) | {"crowded two": start("crowded", 0, "--peers", near.server)}
        from bench import power_law

        power_law.write(folder / "graph", arguments.nodes, arguments.edges, 100)
        self.large = start("large", 0, dataset=folder / "graph")
        self.sets = leader.json("dataset", "show", "set").get("graphSet")
        if self.sets is None:
            raise SystemExit(f"bench: simulate: --dataset {arguments.dataset} is one large graph; accepted: a folder of many small graphs")
        # The seeds of training and of validation that power_law makes.
        self.large_seeds = [arguments.nodes // 10, arguments.nodes // 20]

    def train(self, daemon, *flags):
        self.jobs += 1
        return daemon.train(f"job-{self.jobs}", "--dataset", "set", *flags)

    def graphs(self, hidden, batch, layout, epochs=None):
        a = self.arguments
        ranks, _ = LAYOUTS[layout]
        return self.train(self.leaders[layout], "--hidden", hidden, "--layers", a.layers, "--batch-size", batch,
                          "--epochs", epochs or a.epochs, "--replicas", ranks)

    def seeds(self, batch):
        a = self.arguments
        layers = len(a.fan_out.split(","))
        return self.train(self.large, "--architecture", "sage", "--fan-out", a.fan_out, "--layers", layers, "--hidden", a.large_hidden,
                          "--batch-size", batch, "--epochs", 1)

    def model(self, hidden, batch):
        """Returns the sums of a step, and what the end of an epoch sends, which is the difference of jobs of two epochs and of one."""
        from bench.cluster_model import EVALUATION_EXCHANGES

        jobs = [self.graphs(hidden, batch, "two", epochs) for epochs in (1, 2)]
        parameters = int(jobs[0]["result"]["numParameters"])
        norms = self.arguments.layers * [8 * (1 + 2 * hidden)]
        sums = [*norms, 8, *norms, 4 * parameters]
        first, second = (job["progress"]["exchange"] for job in jobs)
        counted = {name: int(second[name]) - int(first[name]) for name in ("exchanges", "sentBytes")}
        steps = int(jobs[0]["progress"]["step"])
        return {"hidden": hidden, "parameters": parameters, "sums": sums,
                "tensors": counted["exchanges"] - steps * exchanges_of(sums) - EVALUATION_EXCHANGES,
                "state_bytes": counted["sentBytes"] - steps * sum(sums)}


def fastest(values):
    """Returns the round with the fastest steps, with the fastest evaluation of all rounds and the steps of all rounds."""
    best = min(values, key=lambda value: value["step"])
    return {**best, "valid": min(value["valid"] for value in values), "steps": [value["step"] for value in values]}


def measure_daemons(arguments, tools_):
    a = arguments
    with tempfile.TemporaryDirectory(dir=tools_.work) as folder, contextlib.ExitStack() as stack:
        daemons = Daemons(a, tools_, pathlib.Path(folder), stack)
        train, valid = (daemons.sets[split] for split in ("train", "valid"))
        graphs = int(train["numGraphs"])
        models = [daemons.model(hidden, max(a.batch_sizes)) for hidden in a.hidden]
        keys = [(hidden, batch, layout) for hidden in a.hidden for batch in a.batch_sizes for layout in LAYOUTS]
        sides = {key: lambda _, key=key: step_of(daemons.graphs(*key), graphs) for key in keys}
        sides |= {batch: lambda _, batch=batch: step_of(daemons.seeds(batch), daemons.large_seeds[0]) for batch in LARGE_BATCHES}
        values = interleave(sides, a.rounds)
    rows = [{"hidden": key[0], "batch": key[1], "layout": key[2], **fastest(values[key])} for key in keys]
    large = [{"batch": batch, **fastest(values[batch])} for batch in LARGE_BATCHES]
    return {"graphs": graphs, "valid_graphs": int(valid["numGraphs"]), "spread": train["stdNodes"] / train["meanNodes"], "models": models,
            "rows": rows, "large": {"hidden": a.large_hidden, "fan_out": a.fan_out, "valid_seeds": daemons.large_seeds[1], "rows": large}}


def fit(columns, values, weights):
    """Fits the columns to the values by least squares, with each difference divided by its weight. Returns the factors, none of which is
    below 0."""
    import numpy as np

    matrix, target = np.array(columns, float).T / np.array(weights)[:, None], np.array(values) / np.array(weights)
    used = list(range(len(columns)))
    while True:
        found, *_ = np.linalg.lstsq(matrix[:, used], target, rcond=None)
        if len(used) == 1 or found.min() >= 0:
            break
        used.pop(int(found.argmin()))
    factors = [0.0] * len(columns)
    for column, factor in zip(used, found):
        factors[column] = max(0.0, float(factor))
    return factors


def exchanges_of(sums):
    from bench.cluster_model import WHOLE

    return sum(2 if size > WHOLE else 1 for size in sums)


def row_of(measured, hidden, batch, layout):
    return next(row for row in measured["rows"] if (row["hidden"], row["batch"], row["layout"]) == (hidden, batch, layout))


def batches_of(measured):
    return sorted({row["batch"] for row in measured["rows"]})


def graph_job(measured, model, batch):
    """Returns a job on the small graphs. Its line is fitted to the shares of one and of two ranks."""
    from bench.cluster_model import Job

    rows = [row for row in measured["rows"] if row["hidden"] == model["hidden"] and row["layout"] in ("one", "two")]
    shares, seconds = [row["batch"] / LAYOUTS[row["layout"]][0] for row in rows], [row["compute"] for row in rows]
    fixed, per_graph = fit([[1] * len(rows), shares], seconds, seconds)
    return Job(examples=measured["graphs"], batch=batch, fixed=fixed, per_example=per_graph, sums=tuple(model["sums"]),
               spread=measured["spread"], tensors=model["tensors"], state_bytes=model["state_bytes"],
               valid_batches=math.ceil(measured["valid_graphs"] / batch), valid_seconds=row_of(measured, model["hidden"], batch, "one")["valid"])


def network_of(measured):
    """Returns the cost of a message and of a byte between two ranks on one machine. It is their exchange time minus the wait for the larger
    share."""
    from bench.cluster_model import HEADER, Network

    messages, sizes, rest, weights = [], [], [], []
    for model in measured["models"]:
        for batch in batches_of(measured):
            row, job = row_of(measured, model["hidden"], batch, "two"), graph_job(measured, model, batch)
            # The larger of two normal values lies on average 1 / sqrt(pi) standard deviations above their mean.
            waiting = job.per_example * job.spread * math.sqrt(batch / 2 / math.pi)
            messages.append(exchanges_of(job.sums))
            sizes.append(sum(job.sums) + HEADER * messages[-1])
            rest.append(row["step"] - row["compute"] - waiting)
            weights.append(row["step"] - row["compute"])
    per_message, per_byte = fit([messages, sizes], rest, weights)
    return Network(per_message=per_message, per_byte=per_byte)


def times(job, factor):
    """Returns the job on processors that are slower by the factor."""
    return dataclasses.replace(job, fixed=factor * job.fixed, per_example=factor * job.per_example, valid_seconds=factor * job.valid_seconds)


def crowd(job, network, ranks_a_core=2):
    """Returns the job and the network of ranks that share a core. A rank that waits leaves the core to the other, so unequal shares cost
    nothing extra."""
    return (dataclasses.replace(times(job, ranks_a_core), spread=0.0),
            dataclasses.replace(network, per_message=ranks_a_core * network.per_message, per_byte=ranks_a_core * network.per_byte))


def latency_of(seconds, job, ranks, network):
    """Returns the latency with which a step takes `seconds`, or 0 if it takes longer even without latency."""
    from bench.cluster_model import step_seconds

    low, high = 0.0, seconds
    for _ in range(60):
        middle = (low + high) / 2
        faster = step_seconds(job, ranks, dataclasses.replace(network, latency=middle)) < seconds
        low, high = (middle, high) if faster else (low, middle)
    return low


def check(measured):
    """Returns the epoch of four ranks on two cores, predicted and measured, for each number of channels and batch size. `turn_seconds` is
    how long a rank waits until the other rank on its core lets it run. It is found from two ranks on one core."""
    from bench.cluster_model import evaluation_seconds, step_seconds

    network, rows = network_of(measured), []
    for model in measured["models"]:
        for batch in batches_of(measured):
            job, crowded = crowd(graph_job(measured, model, batch), network)
            two, four = (row_of(measured, model["hidden"], batch, layout) for layout in ("crowded two", "crowded four"))
            crowded = dataclasses.replace(crowded, latency=latency_of(two["step"], job, 2, crowded))
            steps = measured["graphs"] / batch
            predicted = steps * step_seconds(job, 4, crowded) + evaluation_seconds(job, 4, crowded)
            took = math.ceil(steps) * four["step"] + four["valid"]
            rows.append({"hidden": model["hidden"], "batch": batch, "predicted_seconds": predicted, "measured_seconds": took,
                         "error": predicted / took - 1, "turn_seconds": crowded.latency})
    return rows


def hops(graph, fan_out):
    """Returns the number of nodes that a seed finds in each hop."""
    degree = graph["edges"] / graph["nodes"]
    return list(itertools.accumulate((min(fan, degree) for fan in fan_out), operator.mul))


def large_job(measured, graph, arguments, ranks):
    from bench.cluster_model import Job

    large = measured["large"]
    fan_out, hidden, rows = [int(fan) for fan in large["fan_out"].split(",")], large["hidden"], large["rows"]
    edges = [row["edges"] * row["batch"] for row in rows]
    fixed, per_edge = fit([[1] * len(rows), edges], [row["step"] for row in rows], [row["step"] for row in rows])
    # A layer has two matrices and a bias; Adam keeps two moments of each.
    widths = [graph["features"], *[hidden] * (len(fan_out) - 1), graph["classes"]]
    parameters = sum(2 * a * b + b for a, b in zip(widths, widths[1:]))
    found = hops(graph, fan_out)
    # The block has no edges of the last hop, since the means over them come with the batch.
    per_seed = per_edge * sum(found[:-1])
    return Job(examples=graph["train"], batch=min(arguments.seeds * ranks, graph["train"]), fixed=fixed, per_example=per_seed,
               # Each matrix and moment is sent by itself. The small tensors of weights are sent together, and so are those of moments.
               sums=(8, 4 * parameters), tensors=6 * len(fan_out) + 2, state_bytes=12 * parameters,
               valid_batches=math.ceil(graph["valid"] / arguments.seeds),
               valid_seconds=min(row["valid"] for row in rows) / large["valid_seeds"] * graph["valid"],
               gathered=4 * graph["valid"] * (graph["classes"] + 2),
               fetched=4 * graph["features"] * (1 + sum(found)) if arguments.divided else 0.0)


def predict(arguments, measured):
    from bench.cluster_model import epoch

    factor = 1 / arguments.speed
    batch = batches_of(measured)[-1]
    jobs = {f"small graphs, {model['hidden']} channels, {batch} graphs a step": lambda _, model=model: graph_job(measured, model, batch)
            for model in measured["models"]}
    held = "divided" if arguments.divided else "whole on each machine"
    jobs |= {f"{name}, {held}, {measured['large']['hidden']} channels, {arguments.seeds} seeds a rank":
             lambda ranks, graph=graph: large_job(measured, graph, arguments, ranks) for name, graph in GRAPHS.items()}
    tables = []
    for name, job in jobs.items():
        for gigabits in arguments.gigabits:
            network = dataclasses.replace(network_of(measured), bandwidth=1e9 * gigabits, latency=1e-6 * arguments.latency_us)
            alone = sum(epoch(times(job(1), factor), 1, network).values())
            rows = []
            for ranks in arguments.ranks:
                straggler = arguments.straggler if ranks > 1 else 1.0
                parts, with_trees = (epoch(times(job(ranks), factor), ranks, dataclasses.replace(network, trees=trees), straggler)
                                     for trees in (False, True))
                seconds, trees_seconds = sum(parts.values()), sum(with_trees.values())
                rows.append({"ranks": ranks, "seconds": seconds, "speed_up": alone / seconds, "efficiency": alone / seconds / ranks,
                             "binds": max(parts, key=parts.get), "parts": parts, "trees_seconds": trees_seconds,
                             "trees_efficiency": alone / trees_seconds / ranks})
            tables.append({"job": name, "gigabits": gigabits, "rows": rows})
    return tables


def read(path):
    """Reads a result: its measurements, and the machine that they were made on."""
    try:
        result = json.loads(path.read_text())
        return result["measurements"], result["machine"]
    except (ValueError, KeyError, TypeError):
        raise RuntimeError(f"--measurements {path}: accepted: what `bench/run simulate --output json` has printed") from None


def measure(arguments, tools_):
    if len(set(arguments.batch_sizes)) < 2 and not arguments.results:
        raise SystemExit("bench: simulate: --batch-sizes: accepted: at least two, from which a line follows")
    if len(set(arguments.hidden)) < 2 and not arguments.results:
        raise SystemExit("bench: simulate: --hidden: accepted: at least two, which tell a message's cost from a byte's")
    if max(arguments.ranks) > MOST_RANKS:
        raise SystemExit(f"bench: simulate: --ranks {max(arguments.ranks)}: accepted: 1 to {MOST_RANKS}")
    measured, machine = read(arguments.results) if arguments.results else (measure_daemons(arguments, tools_), tools.machine())
    network = network_of(measured)
    return {"threads": 1, "machine": machine, "speed": arguments.speed, "latency_us": arguments.latency_us, "straggler": arguments.straggler,
            "measurements": measured, "per_message_seconds": network.per_message, "per_byte_seconds": network.per_byte, "check": check(measured),
            "predictions": predict(arguments, measured)}


def show(result):
    measured = result["measurements"]
    lines = [f"measured: a message takes {1e6 * result['per_message_seconds']:.3g} us of a processor, "
             f"a byte {1e9 * result['per_byte_seconds']:.3g} ns"]
    for row in measured["rows"]:
        lines.append(f"  {row['hidden']} channels, batches of {row['batch']}, {row['layout']:12} {1e3 * row['step']:8.3f} ms a step, of which "
                     f"a rank computes {1e3 * row['compute']:.3f}")
    lines += [f"  GraphSAGE, {row['batch']} seeds: {1e3 * row['step']:.3g} ms a step, {row['edges']:.3g} edges a seed"
              for row in measured["large"]["rows"]]
    lines.append("four daemons on two cores, an epoch:")
    lines += [f"  {row['hidden']} channels, batches of {row['batch']}: predicted {row['predicted_seconds']:.3f} s, measured "
              f"{row['measured_seconds']:.3f} s: {100 * row['error']:+.1f} %" for row in result["check"]]
    lines.append(f"predictions: {result['latency_us']:g} us between machines; ranks {result['speed']:g} times as fast as a core here, of which "
                 f"the last one computes {result['straggler']:g} times as long")
    for table in result["predictions"]:
        lines += [f"{table['job']}, {table['gigabits']} Gbit/s",
                  "   ranks    epoch s  speed-up  efficiency  binds        with trees s  efficiency"]
        lines += [f"{row['ranks']:8}{row['seconds']:11.4g}{row['speed_up']:10.3g}{100 * row['efficiency']:10.1f} %  {row['binds']:12}"
                  f"{row['trees_seconds']:13.4g}{100 * row['trees_efficiency']:10.1f} %" for row in table["rows"]]
    for name, graph in GRAPHS.items():
        held = 4 * graph["nodes"] * graph["features"] + EDGE_BYTES * graph["edges"]
        lines.append(f"{name}: each machine holds {held / 1e9:.3g} GB today")
    return "\n".join([*lines, "published, on other machines:", *(f"  {line}" for line in PUBLISHED)])
