"""An epoch whose pages are not in memory: with the sampler's advice to the kernel and without it.

The store's pages are thrown out of the page cache before every job, a job being one epoch of sampled GraphSAGE. Rounds alternate
the order. What the disk gives is measured beside: random reads of 4 KiB, one at a time and 32 at a time, and one long read.
"""

import os
import statistics

from bench import page_cache, tools
from bench.rounds import interleave, ratio, ratio_text

NAME = "cold"
MEASURES = "an epoch whose pages are on disk, with the sampler's advice to the kernel and without"
NEEDS = "Linux; numpy; the disk to be measured under --work"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy"]


def add_arguments(parser):
    tools.add_graph_arguments(parser)
    tools.add_numbers(parser, rounds=5, batch_size=1024)
    tools.add_fan_out(parser, "15,10")
    parser.add_argument("--disk-seconds", type=float, default=5, help="of each of the three measurements of the disk (default 5)")


def measure(arguments, tools_):
    if not hasattr(os, "posix_fadvise"):
        raise tools.Missing("this system cannot throw a file out of its page cache (posix_fadvise)")
    graph = tools_.power_law_graph(arguments)
    state = tools_.state(graph)
    store = state / "datasets" / "set" / "graph.pfg"
    jobs = []
    with tools_.daemon(graph, state) as daemon:
        def epoch(advised):
            def run(number):
                name = f"cold-{os.getpid()}-{len(jobs)}"
                page_cache.evict(store)
                job = daemon.train(name, *tools.sage_flags(arguments), "--epochs", 1, "--seed", number,
                                   *(() if advised else ("--no-page-advice",)))
                jobs.append((advised, job["progress"].get("lookAhead", {})))
                return job["epochs"][0]["trainSeconds"]

            return run

        disk = page_cache.disk(store, arguments.disk_seconds)
        seconds = interleave({"advised": epoch(True), "unadvised": epoch(False)}, arguments.rounds, warm_up=0)
    median_of = lambda field, way: statistics.median(int(seen.get(field, 0)) for advised, seen in jobs if advised == way)
    return {"store_bytes": store.stat().st_size, "disk_megabytes_a_second": disk,
            "seconds": {name: statistics.median(values) for name, values in seconds.items()},
            "major_faults": {"advised": median_of("majorFaults", True), "unadvised": median_of("majorFaults", False)},
            "advised_bytes": median_of("advisedBytes", True), "ratio": ratio(seconds["unadvised"], seconds["advised"])}


def show(result):
    return "\n".join([
        f"store of {result['store_bytes'] / 1e6:.0f} MB, its pages thrown out before each epoch",
        "disk, MB/s: " + ", ".join(f"{name} {speed:.0f}" for name, speed in result["disk_megabytes_a_second"].items()),
        *(f"{name:10}{result['seconds'][name]:8.2f} s an epoch, {result['major_faults'][name]:.0f} major faults" for name in result["seconds"]),
        f"advised: {result['advised_bytes'] / 1e6:.0f} MB",
        f"unadvised over advised  {ratio_text(result['ratio'])}"])
