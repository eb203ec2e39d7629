"""Shows how every model's steps are served: trains each for a few epochs, and reports the statistics of its graph cache.

`replayed` is the part of the steps that an executable served, at their own shape or padded. `rows added` is padding over real nodes and
edges. `executables` are those of training and evaluation that are held at the end. `dynamic` says whether one executable of each mode
serves every shape. The kinds of jobs:

  sets      many small graphs
  whole     one large graph in every step
  sampled   sampled neighbourhoods of one large graph
  edges     one graph whose edges have features, whole and sampled
  links     links of one graph, whole and sampled
  walks     node2vec

Graphs that are not named are made here (a power law, with two columns of categories for its edges). Every model that the client names has a
row.
"""

import argparse
import contextlib
import pathlib
import re
import shutil
import tempfile

from bench import tools
from bench.policies import share

NAME = "models"
MEASURES = "how the steps of every model are served: replayed, rows added by padding, executables"
NEEDS = "nothing else"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy"]
OF_NODES = {"sage": [], "gcn": [], "gin": [], "gatv2": ["--heads", "4"]}
OF_EDGES = {"gine": [], "gatv2": ["--heads", "4"]}
LINKS = ["--link-prediction"]
# Maps each kind to its models. An entry is the model, whether the job samples, and its flags.
ROWS = {
    "sets": [("gine", False, []), ("gine", False, ["--virtual-node"]), ("gin", False, []), ("gcn", False, []), ("sage", False, []),
             ("sage", False, ["--aggregation", "max"]), ("gatv2", False, ["--heads", "4"])],
    "whole": [(model, False, flags) for model, flags in OF_NODES.items()],
    "sampled": [(model, True, flags) for model, flags in OF_NODES.items()],
    "edges": [(model, samples, flags) for samples in (False, True) for model, flags in OF_EDGES.items()],
    "links": [("sage", False, LINKS), ("sage", True, LINKS)],
    "walks": [("node2vec", False, ["--walks-per-node", "1"])],
}


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=tools.SAMPLE, help="folder of many small graphs (default: deploy/sample/zinc)")
    parser.add_argument("--graph", type=tools.path, help="folder of one large graph (default: one is made)")
    parser.add_argument("--kinds", type=tools.names_of(NAME, "--kinds", ROWS), default=",".join(ROWS), help="divided by commas (default: %(default)s)")
    tools.add_numbers(parser, nodes=20_000, edges=200_000, features=32, epochs=3, batch_size=32, seeds_a_batch=512, hidden=64)
    tools.add_fan_out(parser, "10,5")


def with_edge_features(graph, out):
    """Copies a made graph, and gives its edges two columns of categories."""
    import numpy as np

    out.mkdir()
    for path in graph.glob("*.npy"):
        shutil.copy(path, out / path.name)
    ends = np.load(graph / "edge_index.npy")
    np.save(out / "edge_feat.npy", np.stack([ends.sum(axis=0) % 5, ends[0] % 3], axis=1).astype(np.int64))
    return out


def dataset_of(kind, graph, arguments, scratch):
    if kind == "sets":
        return arguments.dataset
    return with_edge_features(graph, scratch / "edges") if kind == "edges" else graph


def row(arguments, daemon, number, kind, model, samples, flags):
    """Trains one model, and returns how its steps were served."""
    name = f"{kind}-{number}"
    size = {"sets": ["--batch-size", arguments.batch_size], "walks": ["--batch-size", 128]}.get(kind, [])
    if samples:
        size = ["--batch-size", arguments.seeds_a_batch, "--fan-out", arguments.fan_out, "--layers", len(arguments.fan_out.split(","))]
    job = daemon.train(name, "--dataset", "set", "--model", model, "--hidden", arguments.hidden, "--epochs", arguments.epochs, *size, *flags)
    cache = daemon.json("cache", "show", name)
    # None if the mode has no steps. Links, for example, are evaluated without an executable.
    shares = {mode["mode"].removeprefix("GRAPH_CACHE_MODE_").lower(): share(mode) if int(mode["hits"]) + int(mode["paddedHits"]) + int(mode["misses"])
              else None for mode in cache["statistics"]}
    return {"kind": kind, "model": model, "options": " ".join(["sampled"] * samples + flags), "steps": int(job["progress"]["step"]),
            "replayed": {mode: told and told["exact"] + told["padded"] for mode, told in shares.items()},
            "rows_added": {mode: told and told["rows_added"] for mode, told in shares.items()},
            "executables": sum(int(mode["entries"]) for mode in cache["statistics"]),
            "dynamic": all(mode["dynamic"] for mode in cache["statistics"]),
            "eager_steps": sum(int(mode["eagerSteps"]) for mode in cache["statistics"]),
            "captures": sum(int(mode["captures"]) for mode in cache["statistics"]),
            "graph_breaks": [": ".join(filter(None, (found["op"], found["why"]))) for found in cache["graphBreaks"]],
            "ms_per_step": job["result"]["meanStepMilliseconds"]}


def check_models(daemon):
    """Refuses to measure if the client names a model without a row here."""
    named = re.search(r"--model,--architecture (\S+)", daemon.client("job", "submit", "--help"))[1].split("|")
    # `bench/run programs` times the modules of users.
    if missing := set(named) - {"program"} - {model for rows in ROWS.values() for model, _, _ in rows}:
        raise RuntimeError(f"no row of bench/models.py has {', '.join(sorted(missing))}")


def measure(arguments, tools_):
    large = any(kind != "sets" for kind in arguments.kinds)
    if arguments.graph and "edges" in arguments.kinds and not (arguments.graph / "edge_index.npy").exists():
        raise SystemExit("bench: models: --kinds edges: wants a graph of `bench/run graph`; name such a one by --graph, or none")
    graph = tools_.power_law_graph(argparse.Namespace(**{**vars(arguments), "dataset": arguments.graph})) if large else None
    rows = []
    for kind in arguments.kinds:
        with contextlib.ExitStack() as stack:
            scratch = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(dir=tools_.work)))
            daemon = stack.enter_context(tools_.daemon(dataset_of(kind, graph, arguments, scratch), scratch / "state"))
            check_models(daemon)
            rows += [row(arguments, daemon, number, kind, *of_row) for number, of_row in enumerate(ROWS[kind])]
    return {"epochs": arguments.epochs, "hidden": arguments.hidden, "fan_out": arguments.fan_out, "graph": graph and graph.name, "rows": rows}


def show(result):
    part = lambda value: "-" if value is None else f"{100 * value:.2f}"
    lines = [f"{result['epochs']} epochs, {result['hidden']} channels, fan-outs {result['fan_out']}, graph {result['graph']}",
             f"{'kind':9}{'model':10}{'options':30}{'steps':>7}{'replayed %':>12}{'of eval':>9}{'rows +%':>9}{'of eval':>9}{'executables':>13}"
             f"{'dynamic':>9}{'eager':>7}{'ms/step':>9}"]
    for row in result["rows"]:
        lines.append(f"{row['kind']:9}{row['model']:10}{row['options']:30}{row['steps']:7}{part(row['replayed']['train']):>12}"
                     f"{part(row['replayed']['eval']):>9}{part(row['rows_added']['train']):>9}{part(row['rows_added']['eval']):>9}"
                     f"{row['executables']:13}{'yes' if row['dynamic'] else 'no':>9}{row['eager_steps']:7}{row['ms_per_step']:9.2f}")
        lines += [f"{'':9}graph break: {found}" for found in row["graph_breaks"]]
    return "\n".join(lines)
