"""Measures training on a store larger than memory, reader by reader, beside PyG with memory-mapped features and beside the disk's own speed.

For each of --times, makes a graph whose float32 features take that many times --limit (unless --dataset or --nodes gives the graph). The graph is
stored as float32 and as bfloat16. The sides of a store:

  free              all of the machine's memory; the daemon finds that it holds the features, maps them, and reads them ahead from end to end
  mapped            in a control group of --limit bytes: mapped, with advice to the kernel
  mapped-unadvised  in the group: mapped, without advice
  io-uring, pread   in the group: read past the page cache into the feature cache
  pyg               in the group: PyG over a memory-mapped file of the float32 features; its batches are drawn before, it trains --peer-batches
                    of an epoch, and its seconds are scaled to all

Every run is a daemon and a job of its own, and starts with a cold page cache. Its first epoch gives the cold figure, and the median of the later
epochs the warm one. In each round every side has a run, in changing order; ratios are taken round by round. The benchmark fails unless losses and
test metrics of all sides of a store are equal to the last bit. Three figures show that the limit takes effect: how often the group hit it, the
group's peak memory, and the major faults. fio's direct reads, and plain reads through the page cache, are given beside them.
"""

import argparse
import contextlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import threading
import time

from bench import fio, page_cache, ratio_plot, tools
from bench.control_group import ControlGroup
from bench.peer_graphzero import Program
from bench.progress import Progress
from bench.rounds import interleave, ratio, ratio_text

NAME = "disk"
MEASURES = "epochs on a store larger than memory: readers, types of features, PyG, and the disk's limit"
NEEDS = "Linux; root, for a memory control group; numpy; 13 times the largest --times x --limit on the disk under --work; PyG or --peer none"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy"]
# Maps each side to the flags of the daemon and the flags of the job.
READERS = {"free": ((), ()), "mapped": (("--feature-reader", "mapped"), ()),
           "mapped-unadvised": (("--feature-reader", "mapped"), ("--no-page-advice",)),
           "io-uring": (("--feature-reader", "io-uring"), ()), "pread": (("--feature-reader", "pread"), ())}
TYPES = ("float32", "bfloat16")
COLORS = {"mapped": "#c2571a", "mapped-unadvised": "#8a6d00", "io-uring": "#1a7f5a", "pread": "#2b6cb0", "pyg": "#5b4bb5"}


def add_arguments(parser):
    tools.add_graph_arguments(parser, features=1000)
    parser.set_defaults(nodes=None, edges=None)
    parser.add_argument("--limit", type=int, default=500_000_000, help="bytes of the control group (default 500000000)")
    parser.add_argument("--times", default="4.1,16", help="how many times the limit the float32 features are, a graph each (default 4.1,16)")
    for flag, known in (("--sides", READERS), ("--types", TYPES)):
        parser.add_argument(flag, type=tools.names_of(NAME, flag, known), default=",".join(known), help="default: %(default)s")
    parser.add_argument("--peer", choices=("pyg", "none"), default="pyg")
    tools.add_numbers(parser, rounds=5, epochs=3, batch_size=256, hidden=64)
    parser.add_argument("--peer-batches", type=int, default=40, help="of each of PyG's epochs (default 40)")
    tools.add_fan_out(parser, "10,5")
    parser.add_argument("--disk-seconds", type=float, default=5, help="of each of the three measurements by plain reads (default 5)")
    parser.add_argument("--fio-seconds", type=int, default=5, help="of each of fio's measurements (default 5)")
    parser.add_argument("--svg", type=tools.path, metavar="FILE", help="draw the warm epochs there, over the free one's")


def graphs_of(arguments, tools_):
    """Returns the folders of the graphs, which are made if needed."""
    if arguments.dataset:
        return [arguments.dataset]
    made = []
    for times in [1.0] if arguments.nodes else [float(times) for times in arguments.times.split(",")]:
        nodes = arguments.nodes or round(times * arguments.limit / 4 / arguments.features)
        size = {"nodes": nodes, "edges": arguments.edges or 10 * nodes}
        made.append(tools_.power_law_graph(argparse.Namespace(**{**vars(arguments), **size})))
    return made


class Reads:
    """Measures how fast a daemon reads rows, from the first read to the last, evaluations included. It polls the counters of /metrics."""

    EVERY = 0.2  # seconds

    def __init__(self, daemon):
        self.daemon, self.samples, self.ended = daemon, [], threading.Event()
        self.thread = threading.Thread(target=self._look)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.ended.set()
        self.thread.join()

    def _look(self):
        while not self.ended.wait(self.EVERY):
            self.samples.append((time.monotonic(), self.daemon.metrics().get("permafrost_feature_cache_read_bytes_total", 0)))

    def rate(self):
        """Returns bytes a second, or None if nothing was read, or everything between two polls."""
        changes = [i for i in range(1, len(self.samples)) if self.samples[i][1] != self.samples[i - 1][1]]
        if len(changes) < 2:
            return None
        (begin, none), (end, all_) = self.samples[changes[0] - 1], self.samples[changes[-1]]
        return (all_ - none) / (end - begin)


class Store:
    """One graph whose features are stored as one type. The constructor imports it."""

    def __init__(self, graph, kind, arguments, tools_):
        self.graph, self.arguments, self.tools, self.kind = graph, arguments, tools_, kind
        self.state = tools_.state(graph).with_name(f"{tools_.state(graph).name}-{kind}")
        # Imports in a daemon of its own, so that the memory of the import does not count as the training's.
        with self._daemon():
            self.file = self.state / "datasets" / "set" / "graph.pfg"
        self.bytes = self.file.stat().st_size
        self.numbers = itertools.count()

    def _daemon(self, *flags, **options):
        return self.tools.daemon(self.graph, self.state, *flags, import_flags=("--feature-type", self.kind), **options)

    def _mixed_rate(self, series):
        """Returns what fio reads right after a run with the run's mean bytes per read, or None if the run read nothing."""
        reads = series.get("permafrost_feature_cache_read_seconds_count")
        return fio.mixed_rate(self.file, series["permafrost_feature_cache_read_bytes_total"] / reads, self.arguments.fio_seconds) if reads else None

    def run(self, side, number):
        """Runs one job from a cold page cache. The round's number is the seed."""
        flags, job_flags = READERS[side]
        a, name = self.arguments, f"{side}-{os.getpid()}-{next(self.numbers)}"

        def train(prepare):
            with self._daemon(*flags, prepare=prepare) as daemon:
                page_cache.evict(self.file)
                with Reads(daemon) as reads:
                    job = daemon.train(name, *tools.sage_flags(a), "--hidden", a.hidden, "--epochs", a.epochs, "--seed", number, *job_flags)
                series = {n: v for n, v in daemon.metrics().items() if n.startswith("permafrost_feature_") and "_bucket" not in n}
            seconds = [e["trainSeconds"] for e in job["epochs"]]
            return {"mixed_rate": self._mixed_rate(series), "cold": seconds[0], "warm": statistics.median(seconds[1:] or seconds), "read_rate": reads.rate(), "series": series,
                    "major_faults": int(job["progress"].get("lookAhead", {}).get("majorFaults", 0)),
                    "equal": json.dumps([[e["trainLoss"] for e in job["epochs"]], job["result"]["finalTestMetric"]])}

        if side == "free":
            return train(None)
        with ControlGroup(a.limit) as group:
            return limited(train(group.add), group)


def limited(run, group):
    run["peak_bytes"], run["limit_hits"] = group.read()
    return run


class Pyg:
    def __init__(self, graph, arguments, tools_):
        self.arguments, self.features = arguments, graph / "node_feat.npy"
        batches = tools_.work / f"{graph.name}-batches.pt"
        self.settings = json.dumps({"folder": str(graph), "batches": str(batches), "batch_size": arguments.batch_size, "hidden": arguments.hidden,
                                    "fan_outs": [int(k) for k in arguments.fan_out.split(",")], "threads": arguments.threads})
        self.options = {"cwd": tools.ROOT, "env": tools.peer_environment(arguments.threads)}
        subprocess.run([sys.executable, "-m", "bench.peer_mapped", "sample", self.settings], check=True, **self.options)

        self.left_out = self._why_not()

    def _epochs(self, group, count, most):
        program = Program(sys.executable, "-m", "bench.peer_mapped", "train", self.settings, preexec_fn=group.add, **self.options)
        try:
            page_cache.evict(self.features)
            return [program.ask(f"epoch {most}") for _ in range(count)]
        except (RuntimeError, BrokenPipeError) as error:
            raise RuntimeError(f"PyG ended in the group of {self.arguments.limit} bytes, killed most likely: give it more by --limit, or "
                               "--peer none") from error
        finally:
            program.close()

    def _why_not(self):
        """Returns why PyG cannot run in so little memory, or None if it trains a batch."""
        try:
            with ControlGroup(self.arguments.limit) as group:
                self._epochs(group, 1, 1)
        except RuntimeError as error:
            return str(error)
        return None

    def run(self, _):
        with ControlGroup(self.arguments.limit) as group:
            epochs = self._epochs(group, self.arguments.epochs, self.arguments.peer_batches)
            return limited({"cold": epochs[0]["seconds"], "warm": statistics.median(e["seconds"] for e in epochs[1:] or epochs),
                            "major_faults": sum(e["major_faults"] for e in epochs), "series": {}}, group)


def facts(runs):
    """Returns the figures of a side, as medians over the rounds."""
    median = lambda name: statistics.median(run[name] for run in runs)
    out = {"cold_seconds": median("cold"), "warm_seconds": median("warm"), "major_faults": median("major_faults")}
    if "peak_bytes" in runs[0]:
        out |= {"peak_bytes": median("peak_bytes"), "limit_hits": median("limit_hits")}
    # The daemon's own figures of its feature cache, over the whole run.
    series = {name: statistics.median(run["series"].get(name, 0) for run in runs) for name in runs[0]["series"]}
    out["features"] = series
    if reads := series.get("permafrost_feature_cache_read_seconds_count"):
        out["bytes_a_read"] = series["permafrost_feature_cache_read_bytes_total"] / reads
    if rates := [run["read_rate"] for run in runs if run.get("read_rate")]:
        out["read_megabytes_a_second"] = statistics.median(rates) / 1e6
    if shares := [run["read_rate"] / 1e6 / run["mixed_rate"] for run in runs if run.get("read_rate") and run.get("mixed_rate")]:
        out["read_share_of_fio"] = statistics.median(shares)
    return out


def compared(runs, store_bytes, in_order):
    """Compares the sides of a store. runs: {side: [run of each round]}; in_order: the disk's bytes a second for reading in order."""
    of = lambda side, which: [run[which] for run in runs[side]]
    over = lambda a, b: ratio(of(a, "warm"), of(b, "warm"))
    sides = [side for side in runs if side != "free"]
    out = {"over_free": {side: over(side, "free") for side in sides} if "free" in runs else {}}
    direct = [side for side in ("io-uring", "pread") if side in runs]
    for slow in ("mapped", "pyg"):
        if slow in runs:
            out[f"{slow}_over"] = {side: over(slow, side) for side in direct}
    if "free" in runs:
        # The time to read the whole file once in order and then compute. A first epoch may do both at once.
        both = [store_bytes / in_order + seconds for seconds in of("free", "warm")]
        out["cold_over_read_then_compute"] = {side: ratio(of(side, "cold"), both) for side in runs if side != "pyg"}
    return out


def measure(arguments, tools_):
    if not hasattr(os, "posix_fadvise"):
        raise tools.Missing("control groups and posix_fadvise are Linux's")
    with ControlGroup(arguments.limit):
        pass
    sides, types = arguments.sides, arguments.types
    if arguments.peer == "pyg":
        tools.need_packages(["torch", "torch_geometric"])
    folders = graphs_of(arguments, tools_)
    progress = Progress(NAME, len(folders) * arguments.rounds * (len(sides) * len(types) + (arguments.peer == "pyg")))
    with contextlib.closing(progress):
        stores = [{kind: Store(folder, kind, arguments, tools_) for kind in types} for folder in folders]
        file = next(iter(stores[-1].values())).file
        disk = {"fio": fio.read_rates(file, arguments.fio_seconds), "plain": page_cache.disk(file, arguments.disk_seconds)}
        in_order = 1e6 * (disk["fio"].get(fio.IN_ORDER) or disk["plain"]["long"])
        graphs = [measure_graph(folder, of_types, sides, in_order, arguments, tools_, progress) for folder, of_types in zip(folders, stores)]
    result = {"graphs": graphs, "rounds": arguments.rounds, "epochs": arguments.epochs, "disk_megabytes_a_second": disk}
    if arguments.svg:
        arguments.svg.write_text(drawing(result, tools_.threads))
    return result


def measure_graph(folder, stores, sides, in_order, arguments, tools_, progress):
    """Measures all stores of a graph in interleaved rounds. stores: {type: Store}."""
    def turn(said, run):
        def one(number):
            progress.say(f"{folder.name}, round {number + 1} of {arguments.rounds}, {said}")
            answer = run(number)
            progress.turn()
            return answer

        return one

    turns = {(kind, side): turn(f"{kind}, {side}", lambda number, store=store, side=side: store.run(side, number))
             for kind, store in stores.items() for side in sides}
    peer = Pyg(folder, arguments, tools_) if arguments.peer == "pyg" else None
    if peer and peer.left_out:
        progress.drop(arguments.rounds)
    elif peer:
        # PyG reads the float32 file, and is reported beside the first store.
        turns[next(iter(stores)), "pyg"] = turn("PyG", peer.run)
    runs = interleave(turns, arguments.rounds, warm_up=0)
    rows = []
    for kind, store in stores.items():
        mine = {side: found for (of, side), found in runs.items() if of == kind}
        check_equal(kind, {side: found for side, found in mine.items() if side != "pyg"})
        rows.append({"type": kind, "store_bytes": store.bytes, "times": store.bytes / arguments.limit,
                     "sides": {side: facts(found) for side, found in mine.items()}, **compared(mine, store.bytes, in_order)})
    return {"folder": folder.name, "limit_bytes": arguments.limit, "stores": rows, "left_out": peer.left_out if peer else None}


def check_equal(kind, runs):
    for number, of_round in enumerate(zip(*runs.values(), strict=True)):
        if len({run["equal"] for run in of_round}) > 1:
            told = {side: run["equal"] for side, run in zip(runs, of_round)}
            raise SystemExit(f"bench: disk: {kind}, round {number}: losses or test metric differ: {told}")


def label(store):
    return f"{store['times']:.3g}x, {store['type']}"


def drawing(result, threads):
    m = tools.machine()
    return ratio_plot.svg("Time of an epoch with little memory, over one with all of it (1: as fast)",
                          [(label(s), s["over_free"]) for g in result["graphs"] for s in g["stores"]],
                          {side: (side, color) for side, color in COLORS.items()},
                          f"{m['cpu']}, {threads} threads; medians of {result['rounds']} rounds, 95 % intervals")


def show(result):
    disk = result["disk_megabytes_a_second"]
    lines = ["disk, MB/s: " + "; ".join(f"{name} {speed:.0f}" for name, speed in {**disk["fio"], **disk["plain"]}.items())]
    if not disk["fio"]:
        lines.append("no fio here that reads directly: its figures are missing")
    for graph, store in ((g, s) for g in result["graphs"] for s in g["stores"]):
        lines += ["", f"{label(store)}: store of {store['store_bytes'] / 1e9:.2f} GB, limit of {graph['limit_bytes'] / 1e9:.2f} GB; "
                  "losses and test metrics are equal",
                  f"  {'':18}{'cold s':>9}{'warm s':>9}{'faults':>11}{'limit hit':>11}{'peak GB':>9}   warm over free"]
        for name, side in store["sides"].items():
            group = f"{side['limit_hits']:11.0f}{side['peak_bytes'] / 1e9:9.2f}" if "limit_hits" in side else f"{'-':>11}{'-':>9}"
            beside = f"   {ratio_text(store['over_free'][name])}" if name in store["over_free"] else ""
            lines.append(f"  {name:18}{side['cold_seconds']:9.2f}{side['warm_seconds']:9.2f}{side['major_faults']:11.0f}{group}{beside}")
            told = ", ".join(f"{series.removeprefix('permafrost_feature_cache_')} {value:.6g}" for series, value in side["features"].items() if value)
            lines += [f"    {told}"] if told else []
            if "read_megabytes_a_second" in side:
                of_fio = f", {side['read_share_of_fio']:.2f} of what fio reads right after of as long ones" if "read_share_of_fio" in side else ""
                lines.append(f"    {side['read_megabytes_a_second']:.0f} MB/s from the first read to the last, {side['bytes_a_read'] / 1e3:.1f} kB a read"
                             f"{of_fio}")
        for what, title in (("mapped_over", "mapped over {}"), ("pyg_over", "PyG over {}"), ("cold_over_read_then_compute", "cold over reading, then computing, {}")):
            lines += [f"  {title.format(side):46}{ratio_text(value)}" for side, value in store.get(what, {}).items()]
        lines += [f"  left out: {graph['left_out']}"] if graph["left_out"] and store is graph["stores"][0] else []
        if any(side.get("limit_hits") == 0 for name, side in store["sides"].items() if name.startswith("mapped")):
            lines.append("  the limit was never hit: this run says nothing of little memory; choose a smaller --limit or larger --times")
    return "\n".join(lines)
