"""Compares modules of the user's own, exported from Python and trained in the daemon, with PyG, eager and compiled: milliseconds of a step, and how
long the first step takes to come.

Each module of bench/module_nets.py trains on a set of molecules. All sides begin with the same weights, and have the same loss (l1), optimizer
(Adam), batch size and number of threads. In each round every side has a turn of a given number of seconds, in changing order; ratios are taken
round by round.

  permafrost    one job of the daemon, which goes on through all rounds; its turns include batching, checkpoints and book-keeping
  pyg           PyG over batches that were made before the clock starts
  pyg-compile   as pyg, under torch.compile(dynamic=True)

`added MB` is the peak resident memory while a side trains minus its resident memory just before. PyG and its batches are in memory before, and do
not count. Pages of the daemon's dataset count once training reads them. Captures and torch.compile count, but not the compilers that torch.compile
starts.

A step's milliseconds exclude evaluations, captures and compilation. `export` is the time of Python's export of the module, done once. `first step`
is the time from the client's return, after the daemon acknowledged the job, to the first step. `compile` is the total time of torch.compile.
"""

import contextlib
import json
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench import tools
from bench.compare_sides import POLL_SECONDS, Job, Pyg
from bench.process_memory import forget_peak, memory
from bench.progress import Progress
from bench.rounds import interleave, ratio

NAME = "programs"
MEASURES = "twenty modules of the user's own beside PyG, eager and compiled: steps, and the wait for the first one"
NEEDS = "Linux; PyG and gRPC, as deploy/install-deps --tests installs them"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["torch", "torch_geometric", "grpc"]
SIDES = {"permafrost": "Permafrost", "pyg": "PyG", "pyg-compile": "torch.compile"}
# The modules of bench/module_nets.py, which needs PyG.
MODULES = ("gine", "gat", "gatv2", "transformer", "pna", "resgated", "gen", "gen-softmax", "nnconv", "general", "gin", "gcn", "sage", "edgeconv",
           "tag", "cheb", "graphconv", "deeper-gcn", "own", "gps")
# The most seconds to wait for the first step after a submit.
PATIENCE = 600


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=tools.SAMPLE, help="a set in OGB's layout of ZINC's columns (default: deploy/sample/zinc)")
    for flag, known in (("--modules", MODULES), ("--sides", SIDES)):
        parser.add_argument(flag, type=tools.names_of(NAME, flag, known), default=",".join(known), help="default: %(default)s")
    tools.add_numbers(parser, rounds=7, batch_size=32, hidden=64, layers=4, epochs=1000, warm_up=900)
    parser.add_argument("--seconds", type=float, default=3, help="of each turn (default 3)")
    parser.add_argument("--compiler", choices=("inductor", "aot_eager"), default="inductor", help="torch.compile's backend (default inductor)")


class ProgramJob(Job):
    """A job that trains a program. first_step_seconds counts from the return of the client that submitted it."""

    def __init__(self, daemon, archive, flags):
        daemon.client("program", "import", "module", archive)
        super().__init__(daemon, ["--program", "module", *flags])
        begin = time.perf_counter()
        while daemon.metrics().get("permafrost_train_steps_total", 0) == 0:
            if time.perf_counter() - begin > PATIENCE:
                raise RuntimeError(f"the job's first step did not come within {PATIENCE} s")
            # Raises with the reason if the job has failed.
            self._look()
            time.sleep(POLL_SECONDS)
        self.first_step_seconds = time.perf_counter() - begin


def check_modules():
    """Checks that MODULES and bench/module_nets.py have the same modules, so that none is left out unnoticed."""
    from bench import module_nets

    if differing := set(MODULES) ^ set(module_nets.NAMES):
        raise RuntimeError(f"not in both bench/user_modules.py and bench/module_nets.py: {', '.join(sorted(differing))}")


def settings_of(name, arguments, tools_, data):
    return {"module": name, "hidden": arguments.hidden, "layers": arguments.layers, "kind": "graphs", "data": str(data), "loss": "l1",
            "batch_size": arguments.batch_size, "fan_outs": [], "threads": tools_.threads, "compiler": arguments.compiler}


def export(settings, path):
    """Returns the seconds that Python's export took."""
    command = [sys.executable, "-m", "bench.peer_modules", json.dumps({**settings, "side": "export"}), path]
    done = subprocess.run(command, cwd=tools.ROOT, check=True, stdout=subprocess.PIPE, text=True, env=tools.ENVIRONMENT)
    return json.loads(done.stdout.splitlines()[-1])["seconds"]


def before_training(process):
    """Resets the peak of resident memory, and returns the resident bytes now."""
    forget_peak(process)
    return memory(process)[0]


def prepared(peers, parameters, before, say):
    """Returns the peers that can run here, warmed up. Adds their resident memory before they trained to `before`."""
    ready = {}
    for name, peer in peers.items():
        say(f"{SIDES[name]} warms up")
        peer.load()
        before[name] = before_training(peer.process.pid)
        answer = peer.prepare()
        if peer.left_out:
            continue
        if answer["parameters"] != parameters:
            raise RuntimeError(f"Permafrost trains {parameters} parameters, {SIDES[name]} {answer['parameters']}")
        ready[name] = peer
    return ready


def row(name, arguments, tools_, data, progress, scratch):
    """Measures one module: its export, its processes, its rounds."""
    say = lambda text: progress.say(f"{name}: {text}")
    settings = settings_of(name, arguments, tools_, data)
    say("export")
    export_seconds = export(settings, scratch / "module.pt2")
    flags = ["--loss", "l1", "--epochs", arguments.epochs, "--batch-size", arguments.batch_size]
    # Imports in a daemon of its own, so that the memory of the import does not count as the training's.
    with tools_.daemon(arguments.dataset, scratch / "state"):
        pass
    with contextlib.ExitStack() as stack:
        daemon = stack.enter_context(tools_.daemon(arguments.dataset, scratch / "state"))
        before = {"permafrost": before_training(daemon.process.pid)}
        job = stack.enter_context(ProgramJob(daemon, scratch / "module.pt2", flags))
        job.warm_up(arguments.warm_up, say)
        facts = job.facts()
        job.pause()
        peers = {side: stack.enter_context(Pyg(sys.executable, {**settings, "side": side}, tools_.threads, scratch, "bench.peer_modules"))
                 for side in arguments.sides if side != "permafrost"}
        ready = prepared(peers, facts["parameters"], before, say)
        progress.drop((arguments.rounds + 1) * (len(peers) - len(ready)))

        def turn(side):
            def run(number):
                say(f"round {number} of {arguments.rounds}, {SIDES[side]}")
                answer = {"permafrost": job, **ready}[side].turn(arguments.seconds)
                progress.turn()
                return answer

            return run

        turns = interleave({side: turn(side) for side in ("permafrost", *ready)}, arguments.rounds)
    milliseconds = {side: [1e3 * t["seconds"] / t["steps"] for t in found] for side, found in turns.items()}
    last = turns["permafrost"][-1]
    return {"module": name, "parameters": facts["parameters"], "export_seconds": export_seconds, "first_step_seconds": job.first_step_seconds,
            "capture_seconds": last["compile_seconds"], "executables": last["executables"], "frozen": last["frozen"],
            "compile_seconds": turns["pyg-compile"][-1]["compile_seconds"] if "pyg-compile" in turns else None,
            "milliseconds": {side: statistics.median(values) for side, values in milliseconds.items()},
            "added_bytes": {side: max(t["peak"] for t in found) - before[side] for side, found in turns.items()},
            "ratios": {side: ratio(milliseconds[side], milliseconds["permafrost"]) for side in ready},
            "left_out": {side: peer.left_out for side, peer in peers.items() if peer.left_out}}


def measure(arguments, tools_):
    if not pathlib.Path("/proc/self/status").exists():
        raise tools.Missing("the memory of processes is read from /proc, which is Linux's")
    if "permafrost" not in arguments.sides:
        raise SystemExit("bench: programs: --sides must hold permafrost: the others are compared with it")
    check_modules()
    progress = Progress(NAME, (arguments.rounds + 1) * len(arguments.sides) * len(arguments.modules))
    rows, failed = [], {}
    with contextlib.closing(progress), tempfile.TemporaryDirectory(dir=tools_.work) as folder:
        data = pathlib.Path(folder) / "data.pt"
        subprocess.run([sys.executable, "-m", "bench.peer_data", "graphs", arguments.dataset, data, json.dumps({})], cwd=tools.ROOT, check=True)
        for name in arguments.modules:
            scratch = pathlib.Path(folder) / name
            scratch.mkdir()
            try:
                rows.append(row(name, arguments, tools_, data, progress, scratch))
            except (RuntimeError, subprocess.CalledProcessError) as error:
                # A module that the daemon refuses is a result, not a fault of the benchmark.
                failed[name] = str(error)
    if not rows:
        raise RuntimeError("no module was trained; the first failed so: " + next(iter(failed.values())))
    medians = {side: statistics.median(found) for side in SIDES
               if (found := [row["ratios"][side]["median"] for row in rows if side in row["ratios"]])}
    return {"dataset": arguments.dataset.name, "hidden": arguments.hidden, "layers": arguments.layers, "batch_size": arguments.batch_size,
            "rounds": arguments.rounds, "rows": rows, "median_ratios": medians, "failed": failed}


def show(result):
    number = lambda value, width, digits: f"{'-':>{width}}" if value is None else f"{value:{width}.{digits}f}"
    beside = lambda r: f"{r['median']:.2f} ({r['low']:.2f} to {r['high']:.2f})" if r else "-"
    lines = [f"{result['dataset']}: {result['hidden']} channels, {result['layers']} layers, batches of {result['batch_size']}, {result['rounds']} rounds; "
             "ratios over Permafrost, 95 %",
             f"{'':13}{'ms a step':>10}{'PyG':>9}{'compiled':>10}{'PyG / ours':>24}{'compiled / ours':>24}{'added MB':>10}{'PyG':>7}{'compiled':>10}"
             f"{'first step s':>14}{'captures s':>12}{'compile s':>11}{'export s':>10}{'executables':>13}"]
    for row in result["rows"]:
        ms, ratios = row["milliseconds"], row["ratios"]
        added = {side: count / 1e6 for side, count in row["added_bytes"].items()}
        lines.append(f"{row['module']:13}{ms['permafrost']:10.2f}{number(ms.get('pyg'), 9, 2)}{number(ms.get('pyg-compile'), 10, 2)}"
                     f"{beside(ratios.get('pyg')):>24}{beside(ratios.get('pyg-compile')):>24}"
                     f"{added['permafrost']:10.0f}{number(added.get('pyg'), 7, 0)}{number(added.get('pyg-compile'), 10, 0)}{row['first_step_seconds']:14.2f}"
                     f"{row['capture_seconds']:12.2f}{number(row['compile_seconds'], 11, 1)}{row['export_seconds']:10.1f}{row['executables']:13.0f}")
        lines += [f"{'':13}{SIDES[side]}: left out: {why}" for side, why in row["left_out"].items()]
    lines += [f"median over the modules, {SIDES[side]} / Permafrost: {value:.2f}" for side, value in result["median_ratios"].items()]
    return "\n".join(lines + [f"{name}: failed: {why}" for name, why in result["failed"].items()])
