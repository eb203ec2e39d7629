"""A graph several times larger than the memory that the daemon may use trains to the same loss.

The daemon runs the same job three times: with all of the machine, in a memory control group, and there without the sampler's
advice to the kernel. That the limit bites is shown by the group's own count of times it was hit, by the peak of what it held, and
by the major faults. The benchmark fails unless losses and test metric are equal to the last bit. One run each: no intervals.
"""

import os
import pathlib

from bench import page_cache, tools

NAME = "memory-limit"
MEASURES = "an epoch on a store larger than the memory that the daemon may use; losses must stay equal"
NEEDS = "Linux; root, for a memory control group; numpy; 12 GB under --work for the graph that it makes"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy"]


class Group:
    """A memory control group of version 2 or 1, below this process's."""

    def __init__(self, limit):
        lines = [line.rstrip("\n").split(":", 2) for line in open("/proc/self/cgroup")]
        root = pathlib.Path("/sys/fs/cgroup")
        self.one = next((path for _, controllers, path in lines if "memory" in controllers.split(",")), None)
        if self.one is not None:
            base = root / "memory" / self.one.lstrip("/")
            self.names = ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt")
        else:
            base = root / next(path for _, controllers, path in lines if not controllers).lstrip("/")
            self.names = ("memory.max", "memory.peak", "memory.events")
        self.path = base / f"permafrost-bench-{os.getpid()}"
        try:
            self.path.mkdir()
            (self.path / self.names[0]).write_text(str(limit))
        except OSError as error:
            raise tools.Missing(f"no memory control group can be made here: {error}; run as root") from error

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def read(self):
        """Peak bytes, and times that the limit was hit."""
        events = (self.path / self.names[2]).read_text()
        hits = int(events) if self.one is not None else int(next(l for l in events.splitlines() if l.startswith("max ")).split()[1])
        return int((self.path / self.names[1]).read_text()), hits

    def remove(self):
        self.path.rmdir()


def add_arguments(parser):
    tools.add_graph_arguments(parser, features=1000)
    parser.add_argument("--limit", type=int, default=10**9, help="bytes that the daemon may use (default 1000000000)")
    tools.add_numbers(parser, epochs=2, batch_size=256)
    tools.add_fan_out(parser, "10,5")


def train(arguments, tools_, graph, name, *flags, prepare=None):
    """One job in a daemon of its own, from a cold page cache."""
    state = tools_.state(graph)
    with tools_.daemon(graph, state, prepare=prepare) as daemon:
        page_cache.evict(state / "datasets" / "set" / "graph.pfg")
        job = daemon.train(f"{name}-{os.getpid()}", *tools.sage_flags(arguments), "--epochs", arguments.epochs, *flags)
    return {"losses": [e["trainLoss"] for e in job["epochs"]], "seconds": [e["trainSeconds"] for e in job["epochs"]],
            "test_metric": job["result"]["finalTestMetric"], "major_faults": int(job["progress"].get("lookAhead", {}).get("majorFaults", 0))}


def measure(arguments, tools_):
    if not hasattr(os, "posix_fadvise"):
        raise tools.Missing("control groups and posix_fadvise are Linux's")
    Group(arguments.limit).remove()
    graph = tools_.power_law_graph(arguments)
    runs = {"free": train(arguments, tools_, graph, "free")}
    for name, flags in (("limited", ()), ("limited-unadvised", ("--no-page-advice",))):
        group = Group(arguments.limit)
        try:
            runs[name] = train(arguments, tools_, graph, name, *flags, prepare=group.enter)
            runs[name]["peak_bytes"], runs[name]["limit_hits"] = group.read()
        finally:
            group.remove()
    if len({(tuple(run["losses"]), run["test_metric"]) for run in runs.values()}) > 1:
        raise SystemExit(f"bench: memory-limit: losses or test metric differ: {runs}")
    store = (tools_.state(graph) / "datasets" / "set" / "graph.pfg").stat().st_size
    return {"store_bytes": store, "limit_bytes": arguments.limit, "runs": runs}


def show(result):
    lines = [f"store of {result['store_bytes'] / 1e9:.2f} GB, limit of {result['limit_bytes'] / 1e9:.2f} GB; losses and test metric are equal"]
    for name, run in result["runs"].items():
        lines.append(f"{name:18} seconds an epoch: {', '.join(f'{s:.2f}' for s in run['seconds'])}; {run['major_faults']} major faults"
                     + (f"; the limit was hit {run['limit_hits']} times, peak {run['peak_bytes'] / 1e9:.2f} GB" if "limit_hits" in run else ""))
    if any(run.get("limit_hits") == 0 for run in result["runs"].values()):
        lines.append("the limit was never hit: this run says nothing; choose a smaller --limit")
    return "\n".join(lines)
