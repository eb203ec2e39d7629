"""Measures training steps of one job on several daemons, beside one daemon and beside PyTorch's DistributedDataParallel.

Every daemon and every process of PyTorch has --threads threads (use 1 if each daemon has one core). All sides train GINE on the same set
with the same global batch. Each number of channels (--hidden) and of graphs in a batch (--batch-sizes) has a row.

  one        a job of one replica
  several    a job of --replicas, whose batch norms are over the rows of all replicas
  pyg        PyG eager, one process, batches made beforehand
  ddp        the same under DistributedDataParallel with Gloo, in --replicas processes: each has its share of the batch, and its own batch norms

`gain` is one over several, and `ddp gain` is pyg over ddp. Both compare steps of one run, round by round.
"""

import argparse
import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile

from bench import tools
from bench.rounds import interleave, ratio, ratio_text

NAME = "replicas"
MEASURES = "training steps of one job on several daemons beside one, and beside PyTorch's DistributedDataParallel"
NEEDS = "PyG for the peers, or --peer none"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = []
EXCHANGED = ("seconds", "exchanges", "sentBytes")


def whole_numbers(text):
    try:
        numbers = [int(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if not numbers or min(numbers) < 1:
        raise argparse.ArgumentTypeError(f"{text}: accepted: whole numbers above 0, divided by commas")
    return numbers


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=tools.SAMPLE, help="folder of many small graphs (default: deploy/sample/zinc)")
    parser.add_argument("--hidden", type=whole_numbers, default=[64, 256], help="channels, a row each (default 64,256)")
    parser.add_argument("--batch-sizes", type=whole_numbers, default=[32, 256], help="graphs of a global batch, a row each (default 32,256)")
    parser.add_argument("--peer", choices=("pyg", "none"), default="pyg", help="default pyg")
    tools.add_numbers(parser, rounds=7, epochs=2, layers=4, replicas=2, peer_steps=40)


def pyg(arguments, weights, batch_size, processes):
    """Returns the milliseconds of a step of PyG in the given number of processes: the first process's mean over --peer-steps."""
    settings = {"graphs": str(weights.parent / "graphs.pt"), "weights": str(weights), "batch_size": batch_size, "steps": arguments.peer_steps,
                "threads": arguments.threads, "processes": processes}
    command = [sys.executable, "-m", "bench.peer_ddp"]
    ran = subprocess.run(command, input=json.dumps(settings), check=True, stdout=subprocess.PIPE, text=True, cwd=tools.ROOT,
                         env=tools.peer_environment(arguments.threads))
    return json.loads(ran.stdout)["milliseconds"]


def measure_row(arguments, leader, hidden, batch_size, folder):
    exchanged = []
    weights = folder / f"{hidden}-{batch_size}.safetensors"

    def step(replicas, number):
        job = leader.train(f"gine-{hidden}-{batch_size}-{replicas}-{number}", "--dataset", "set", "--hidden", hidden, "--layers", arguments.layers,
                           "--batch-size", batch_size, "--epochs", arguments.epochs, "--replicas", replicas)
        if replicas > 1:
            steps = int(job["progress"]["step"])
            exchanged.append({name: float(job["progress"]["exchange"].get(name, 0)) / steps for name in EXCHANGED})
        if not weights.exists():
            leader.client("job", "export", job["name"].removeprefix("jobs/"), "--artifact", "last-weights", "--to", weights)
        return float(job["result"]["meanStepMilliseconds"])

    sides = {"one": lambda number: step(1, number), "several": lambda number: step(arguments.replicas, number)}
    if arguments.peer == "pyg":
        # PyG's module is built from the weights of a first job.
        step(1, "first")
        sides["pyg"] = lambda _: pyg(arguments, weights, batch_size, 1)
        sides["ddp"] = lambda _: pyg(arguments, weights, batch_size, arguments.replicas)
    values = interleave(sides, arguments.rounds)
    row = {"hidden": hidden, "batch_size": batch_size, "milliseconds": values, "exchange_a_step": exchanged[-1],
           "gain": ratio(values["one"], values["several"])}
    if arguments.peer == "pyg":
        row |= {"ddp_gain": ratio(values["pyg"], values["ddp"]), "beside_pyg": ratio(values["pyg"], values["one"]),
                "beside_ddp": ratio(values["ddp"], values["several"])}
    return row


def measure(arguments, tools_):
    with tempfile.TemporaryDirectory(dir=tools_.work) as folder, contextlib.ExitStack() as stack:
        if arguments.peer == "pyg":
            from bench import peer_ddp

            peer_ddp.keep(arguments.dataset, max(arguments.batch_sizes) * arguments.peer_steps, pathlib.Path(folder) / "graphs.pt")
        states = [pathlib.Path(folder) / str(rank) for rank in range(arguments.replicas)]
        peers = [stack.enter_context(tools_.daemon(arguments.dataset, state)) for state in states[1:]]
        leader = stack.enter_context(tools_.daemon(arguments.dataset, states[0], "--peers", ",".join(peer.server for peer in peers)))
        rows = [measure_row(arguments, leader, hidden, batch_size, pathlib.Path(folder)) for hidden in arguments.hidden for batch_size in arguments.batch_sizes]
    return {"dataset": arguments.dataset.name, "replicas": arguments.replicas, "rows": rows}


def show(result):
    lines = [f"{result['dataset']}: one daemon, and {result['replicas']} together"]
    for row in result["rows"]:
        step = {side: statistics.median(values) for side, values in row["milliseconds"].items()}
        lines.append(f"  {row['hidden']} channels, batches of {row['batch_size']}: " + ", ".join(f"{side} {value:.3g} ms" for side, value in step.items()))
        exchange = row["exchange_a_step"]
        lines.append(f"    gain {ratio_text(row['gain'])}; {exchange['exchanges']:.0f} exchanges a step, evaluation included, in {1e3 * exchange['seconds']:.2f} ms, "
                     f"{exchange['sentBytes'] / 1e3:.0f} kB sent")
        if "ddp_gain" in row:
            lines.append(f"    ddp gain {ratio_text(row['ddp_gain'])}")
            lines.append(f"    PyG takes {ratio_text(row['beside_pyg'])} times as long as one, DDP {ratio_text(row['beside_ddp'])} times as several")
    return "\n".join(lines)
