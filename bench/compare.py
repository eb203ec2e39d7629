"""Compares Permafrost with PyG, workload by workload: milliseconds of a step, graphs a second, memory, and the cost of compiling.

Every side trains an equal model: the numbers of parameters are compared, and every tensor of Permafrost's weights must fit PyG's module.
All sides use the same data, batch size and number of threads, and Adam, each in a process of its own. In each round every side has a turn
of a given number of seconds, in changing order. Ratios are taken round by round.

  permafrost    one job of the daemon, which goes on through all rounds; its turns include batching, checkpoints and book-keeping
  pyg           PyG over batches that were made before the clock starts
  pyg-loader    PyG with its DataLoader; for sampled workloads its NeighborLoader, which needs --install-sampler
  pyg-compile   as pyg, under torch.compile(dynamic=True)

Milliseconds of a step exclude evaluations, captures and compilation, which are given apart. "End to end" is an epoch with the evaluation of
its validation split. Growth is that of resident memory from the first round to the last. A workload or side that cannot run here is named
with the reason.
"""

import contextlib
import json
import pathlib
import statistics
import subprocess
import tempfile

from bench import compare_plot, peer_venv, tools, workloads
from bench.compare_sides import Job, Pyg
from bench.progress import Progress
from bench.rounds import interleave, ratio

NAME = "compare"
MEASURES = "training beside PyG, eager and compiled: steps, graphs a second, memory, compilation"
NEEDS = "Linux; a network where PyG is not installed yet; --data for the sets that are not shipped"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = []
SIDES = {"permafrost": "Permafrost", "pyg": "PyG, batches made before", "pyg-loader": "PyG with its loader", "pyg-compile": "PyG, torch.compile"}
MB = 1e6


def add_arguments(parser):
    for flag, known in (("--workloads", workloads.WORKLOADS), ("--sides", SIDES)):
        parser.add_argument(flag, type=tools.names_of(NAME, flag, known), default=",".join(known), help="default: %(default)s")
    parser.add_argument("--data", type=tools.path, default=tools.ROOT.parent / "shared" / "data",
                        help="folder of graphs/molhiv, tu/MUTAG.zip, node/cora and others (default: ../shared/data)")
    parser.add_argument("--sample", type=tools.path, default=tools.SAMPLE, help="folder of the zinc workloads (default: deploy/sample/zinc)")
    tools.add_numbers(parser, pairs=10, nodes=200_000, edges=2_000_000, features=100, warm_up=900)
    parser.add_argument("--seconds", type=float, default=3, help="of each turn (default 3)")
    parser.add_argument("--compiler", choices=("inductor", "aot_eager"), default="inductor", help="torch.compile's backend (default inductor)")
    peer_venv.add_install_flag_of_sampler(parser)
    parser.add_argument("--json", type=tools.path, metavar="FILE", help="write the result there too")
    parser.add_argument("--svg", type=tools.path, metavar="FILE", help="draw the ratios there")
    parser.add_argument("--results", type=tools.path, nargs="+", metavar="FILE", help="measure nothing: show, and with --svg draw, what --json wrote")


class Comparison:
    """Measures one workload: owns its data, its processes and its rounds."""

    def __init__(self, workload, arguments, tools_, python, progress, scratch):
        self.workload, self.arguments, self.tools, self.python = workload, arguments, tools_, python
        self.progress, self.scratch = progress, scratch
        self.names = [name for name in arguments.sides if workload.kind != "whole" or name != "pyg-loader"]

    def say(self, text):
        self.progress.say(f"{self.workload.name}: {text}")

    def _peer_data(self, folder):
        out = self.scratch / "data.pt"
        settings = json.dumps({"batch_size": self.workload.batch_size, "fan_outs": self.workload.fan_outs})
        subprocess.run([self.python, "-m", "bench.peer_data", self.workload.kind, folder, out, settings], cwd=tools.ROOT, check=True)
        return out

    def _start_peers(self, stack, job, data):
        weights = self.scratch / "weights.safetensors"
        job.daemon.client("job", "export", "compare", "--artifact", "last-weights", "--to", weights)
        job.pause()
        w = self.workload
        settings = {"kind": w.kind, "data": str(data), "weights": str(weights), "loss": w.loss, "batch_size": w.batch_size,
                    "fan_outs": w.fan_outs, "threads": self.tools.threads, "compiler": self.arguments.compiler}
        return {name: stack.enter_context(Pyg(self.python, settings | {"side": name}, self.tools.threads, self.scratch))
                for name in self.names if name != "permafrost"}

    def _rounds(self, sides):
        def turn(name):
            def run(number):
                self.say(f"round {number} of {self.arguments.pairs}, {SIDES[name]}")
                answer = sides[name].turn(self.arguments.seconds)
                self.progress.turn()
                return answer

            return run

        return interleave({name: turn(name) for name in sides}, self.arguments.pairs)

    def run(self):
        self.say("data")
        folder = workloads.folder(self.workload, self.arguments, self.tools, self.python)
        data = self._peer_data(folder)
        state = self.scratch / "state"
        # Imports in a daemon of its own, so that the memory of the import does not count as the training's.
        with self.tools.daemon(folder, state):
            pass
        with contextlib.ExitStack() as stack:
            daemon = stack.enter_context(self.tools.daemon(folder, state))
            job = stack.enter_context(Job(daemon, self.workload.job_flags()))
            job.warm_up(self.arguments.warm_up, self.say)
            facts = job.facts()
            peers = self._start_peers(stack, job, data)
            prepared = self._prepare(peers, facts["parameters"])
            turns = self._rounds({"permafrost": job, **{name: peers[name] for name in prepared}})
            evaluation = {"permafrost": job.evaluation_seconds(), **{name: answer["evaluation_seconds"] for name, answer in prepared.items()}}
        return {**self._result(facts, prepared, turns, evaluation), "left_out": {n: peer.left_out for n, peer in peers.items() if peer.left_out}}

    def _prepare(self, peers, parameters):
        """Prepares the peers, and returns what those that can run here report of themselves."""
        prepared = {}
        for peer in peers.values():
            peer.load()
        for name, peer in peers.items():
            self.say(f"{SIDES[name]} warms up")
            answer = peer.prepare()
            if peer.left_out:
                self.progress.drop(self.arguments.pairs + 1)
                continue
            if answer["parameters"] != parameters:
                raise RuntimeError(f"{self.workload.name}: Permafrost trains {parameters} parameters, {SIDES[name]} {answer['parameters']}")
            prepared[name] = answer
        return prepared

    def _result(self, facts, prepared, turns, evaluation):
        milliseconds = {name: [1e3 * t["seconds"] / t["steps"] for t in found] for name, found in turns.items()}
        last = turns["permafrost"][-1]
        rows = sum(t["counted"] for t in turns["permafrost"]) / sum(t["steps"] for t in turns["permafrost"])
        sides = {}
        for name, found in turns.items():
            ms = statistics.median(milliseconds[name])
            epoch = facts["steps_per_epoch"] * ms / 1e3
            sides[name] = {"ms_per_step": ms, "ms_by_round": milliseconds[name],
                           "graphs_per_second": statistics.median(t["counted"] / t["seconds"] for t in found),
                           "graphs_per_second_end_to_end": None if evaluation[name] is None else facts["steps_per_epoch"] * rows / (epoch + evaluation[name]),
                           "evaluation_seconds": evaluation[name], "compile_seconds": found[-1]["compile_seconds"],
                           "peak_rss_mb": found[-1]["peak"] / MB, "rss_growth_mb": (found[-1]["rss"] - found[0]["rss"]) / MB,
                           "steps": sum(t["steps"] for t in found), "optimizer": prepared.get(name, {}).get("optimizer", "adam"),
                           "compiled": found[-1].get("compiled")}
        return {"workload": self.workload.name, "title": self.workload.title, **facts, "pairs": self.arguments.pairs, "seconds": self.arguments.seconds,
                "executables": last["executables"], "frozen": last["frozen"],
                "peer": next((answer["version"] for answer in prepared.values()), None), "sides": sides,
                "ratios": {name: ratio(values, milliseconds["permafrost"]) for name, values in milliseconds.items() if name != "permafrost"}}


def read_results(path):
    """Reads a result that --json wrote to `path`."""
    try:
        result = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise SystemExit(f"bench: compare: --results {path}: {getattr(error, 'strerror', None) or error}: accepted: what --json wrote") from None
    if not isinstance(result, dict) or not {"rows", "left_out"} <= result.keys():
        raise SystemExit(f"bench: compare: --results {path}: holds no rows of compare: accepted: what --json wrote")
    return result


def merged(results):
    """Merges the workloads of several runs. A workload that occurs in several comes from the last one."""
    rows = {row["workload"]: row for result in results for row in result["rows"]}
    left_out = {name: why for result in results for name, why in result["left_out"].items() if name not in rows}
    return {**results[-1], "rows": list(rows.values()), "left_out": left_out}


def written(result, arguments):
    if arguments.json:
        arguments.json.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    if arguments.svg:
        arguments.svg.write_text(compare_plot.svg(result, SIDES))
    return result


def measure(arguments, tools_):
    if arguments.results:
        return written(merged([read_results(path) for path in arguments.results]), arguments)
    if not pathlib.Path("/proc/self/status").exists():
        raise tools.Missing("the memory of processes is read from /proc, which is Linux's")
    names, sides = arguments.workloads, arguments.sides
    if "permafrost" not in sides:
        raise SystemExit("bench: compare: --sides must hold permafrost: the others are compared with it")
    left_out = {name: why for name in names if (why := workloads.missing(workloads.WORKLOADS[name], arguments.data))}
    python = peer_venv.python(tools_.work, arguments.install_sampler)
    planned = [workloads.WORKLOADS[name] for name in names if name not in left_out]
    progress = Progress(NAME, (arguments.pairs + 1) * sum(len(sides) - (w.kind == "whole" and "pyg-loader" in sides) for w in planned))
    rows = []
    result = {"machine": tools.machine(), "threads": tools_.threads, "rows": rows, "left_out": left_out}
    with contextlib.closing(progress):
        for workload in planned:
            with tempfile.TemporaryDirectory(dir=tools_.work) as scratch:
                rows.append(Comparison(workload, arguments, tools_, python, progress, pathlib.Path(scratch)).run())
            # Keeps the results so far even if a later workload fails.
            written(result, arguments)
    return written(result, arguments)


def show(result):
    number = lambda value, width, digits: f"{'-':>{width}}" if value is None else f"{value:{width},.{digits}f}"
    lines = ["medians; end to end: with the evaluation of every epoch; compile: of Permafrost its captures"]
    for row in result["rows"]:
        optimizers = sorted({side["optimizer"] for name, side in row["sides"].items() if name != "permafrost"})
        lines += ["", f"{row['title']}; {row['parameters']:,} parameters, {row['steps_per_epoch']} steps an epoch",
                  f"  {row['pairs']} rounds of turns of {row['seconds']:g} s; {row['executables']:.0f} executables, "
                  + ("frozen" if row["frozen"] else "not frozen: --warm-up may be too short")
                  + (f"; {row['peer']}, Adam: {', '.join(optimizers)}" if optimizers else ""),
                  f"  {'':26}{'ms/step':>9}{'graphs/s':>11}{'end to end':>12}{'peak MB':>9}{'growth MB':>11}{'compile s':>11}   over Permafrost (95 %)"]
        for name, side in row["sides"].items():
            r = row["ratios"].get(name)
            beside = f"   {r['median']:.2f}  ({r['low']:.2f} to {r['high']:.2f})" if r else ""
            lines.append(f"  {SIDES[name]:26}{side['ms_per_step']:9.3f}{number(side['graphs_per_second'], 11, 0)}"
                         f"{number(side['graphs_per_second_end_to_end'], 12, 0)}{side['peak_rss_mb']:9.0f}{side['rss_growth_mb']:+11.1f}"
                         f"{side['compile_seconds']:11.1f}{beside}")
        lines += [f"  {SIDES[name]}: {side['compiled']['graphs']} graphs, {side['compiled']['graph_breaks']} graph breaks"
                  for name, side in row["sides"].items() if side["compiled"]]
        lines += [f"  {SIDES[name]}: left out: {why}" for name, why in row["left_out"].items()]
    lines += [""] * bool(result["left_out"]) + [f"{name}: left out: {why}" for name, why in result["left_out"].items()]
    return "\n".join(lines)
