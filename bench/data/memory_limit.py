"""A graph several times larger than the memory that the daemon may use trains to the same loss.

The daemon runs the same job three times: with all of the machine, in a memory control group, and there without the sampler's
advice to the kernel. That the limit bites is shown by the group's own count of times it was hit, by the peak of what it held, and
by the major faults. The losses must be equal.

usage: memory_limit.py BIN_DIR DATASET_DIR STATE_DIR --limit BYTES [--threads 2] [--epochs 2] [--fan-out 10,5] [--batch-size 256]
Needs to be root. STATE_DIR keeps the imported store between runs.
"""

import argparse
import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from cold_epoch import evict  # noqa: E402
from daemon import Daemon  # noqa: E402


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
        self.path.mkdir()
        (self.path / self.names[0]).write_text(str(limit))

    def enter(self):
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def read(self):
        """Peak bytes, and times that the limit was hit."""
        events = (self.path / self.names[2]).read_text()
        hits = int(events) if self.one is not None else int(next(l for l in events.splitlines() if l.startswith("max ")).split()[1])
        return int((self.path / self.names[1]).read_text()), hits

    def remove(self):
        self.path.rmdir()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("dataset", type=pathlib.Path)
    parser.add_argument("state_dir", type=pathlib.Path)
    parser.add_argument("--limit", type=int, required=True)
    for flag, value in (("--threads", 2), ("--epochs", 2), ("--batch-size", 256)):
        parser.add_argument(flag, type=int, default=value)
    parser.add_argument("--fan-out", default="10,5")
    arguments = parser.parse_args()
    store = arguments.state_dir / "datasets" / "set" / "graph.pfg"

    def run(name, prepare=None, *flags):
        daemon = Daemon(arguments.bin_dir, arguments.state_dir, arguments.dataset.resolve(), arguments.threads, prepare=prepare)
        try:
            evict(store)
            name = f"{name}-{os.getpid()}"
            daemon.client("job", "submit", "--id", name, "--dataset", "set", "--architecture", "sage", "--fan-out", arguments.fan_out,
                          "--batch-size", arguments.batch_size, "--epochs", arguments.epochs, "--watch", *flags)
            job = daemon.json("job", "show", name)
            if job["state"] != "STATE_SUCCEEDED":
                raise SystemExit(f"memory_limit: {name}: {job.get('error', job['state'])}")
        finally:
            daemon.stop()
        return {"losses": [e["trainLoss"] for e in job["epochs"]], "seconds": [e["trainSeconds"] for e in job["epochs"]],
                "test_metric": job["result"]["finalTestMetric"], "major_faults": int(job["progress"]["lookAhead"].get("majorFaults", 0))}

    runs, groups = {"free": run("free")}, {}
    for name, flags in (("limited", ()), ("limited, no advice", ("--no-page-advice",))):
        group = Group(arguments.limit)
        try:
            runs[name] = run(name.replace(", ", "-").replace(" ", "-"), group.enter, *flags)
            peak, hits = group.read()
            groups[name] = {"peak_bytes": peak, "limit_hits": hits}
        finally:
            group.remove()
    alike = [(r["losses"], r["test_metric"]) for r in runs.values()]
    equal = all(one == alike[0] for one in alike)
    print(json.dumps({"store_bytes": store.stat().st_size, "limit_bytes": arguments.limit, "times_the_limit": store.stat().st_size / arguments.limit,
                      "groups": groups, "runs": runs, "equal": equal}, indent=1))
    sys.exit(0 if equal and all(g["limit_hits"] > 0 for g in groups.values()) else 1)


if __name__ == "__main__":
    main()
