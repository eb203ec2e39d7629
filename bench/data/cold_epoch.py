"""An epoch whose pages are not in memory: with the sampler's advice to the kernel and without it.

The store's pages are thrown out of the page cache before every job (a job is one epoch of sampled GraphSAGE, which reads the
store's pages for the first time; nothing else maps it then). Rounds alternate the order; the ratio is taken round by round, with
the 95 % interval of its median by bootstrap. What the disk gives is measured beside: random reads of 4 KiB, one at a time and 32
at a time, and one long read.

usage: cold_epoch.py BIN_DIR DATASET_DIR STATE_DIR [--rounds 5] [--threads 2] [--fan-out 15,10] [--batch-size 1024]
                     [--output text|json]
STATE_DIR keeps the imported store between runs, on the disk that is to be measured.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from daemon import Daemon  # noqa: E402
from ratios import interval  # noqa: E402


def evict(store):
    """Throws the file's pages out of the page cache; pages that someone maps stay."""
    descriptor = os.open(store, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def disk(store, reads=2000, seconds=5):
    """MB/s of 4 KiB reads at random places, one at a time and 32 at a time, and of one long read."""
    size = store.stat().st_size
    descriptor = os.open(store, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_RANDOM)
    draw, speeds = random.Random(2), {}

    def rate(read, places):
        evict(store)
        begin, done = time.perf_counter(), 0
        for got in read(places):
            done += got
            if time.perf_counter() - begin > seconds:
                break
        return done / (time.perf_counter() - begin) / 1e6

    one = lambda place: len(os.pread(descriptor, 4096, place))
    places = [draw.randrange(0, size - 4096) // 4096 * 4096 for _ in range(reads)]
    speeds["random_1"] = rate(lambda p: map(one, p), places)
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        speeds["random_32"] = rate(lambda p: pool.map(one, p), [draw.randrange(0, size - 4096) // 4096 * 4096 for _ in range(8 * reads)])
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_NORMAL)
    speeds["long"] = rate(lambda p: (len(os.pread(descriptor, 1 << 20, place)) for place in p), range(0, size, 1 << 20))
    os.close(descriptor)
    return speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("dataset", type=pathlib.Path)
    parser.add_argument("state_dir", type=pathlib.Path)
    for flag, value in (("--rounds", 5), ("--threads", 2), ("--batch-size", 1024)):
        parser.add_argument(flag, type=int, default=value)
    parser.add_argument("--fan-out", default="15,10")
    parser.add_argument("--output", choices=("text", "json"), default="text")
    arguments = parser.parse_args()
    daemon = Daemon(arguments.bin_dir, arguments.state_dir, arguments.dataset.resolve(), arguments.threads)
    store = arguments.state_dir / "datasets" / "set" / "graph.pfg"
    jobs = 0

    def epoch(advice):
        nonlocal jobs
        jobs += 1
        name = f"cold-{os.getpid()}-{jobs}"
        evict(store)
        daemon.client("job", "submit", "--id", name, "--dataset", "set", "--architecture", "sage", "--fan-out", arguments.fan_out,
                      "--batch-size", arguments.batch_size, "--epochs", 1, "--seed", jobs, "--watch",
                      *(() if advice else ("--no-page-advice",)))
        job = daemon.json("job", "show", name)
        if job["state"] != "STATE_SUCCEEDED":
            raise SystemExit(f"cold_epoch: {name}: {job.get('error', job['state'])}")
        look_ahead = job["progress"].get("lookAhead", {})
        return {"epoch": job["epochs"][0]["trainSeconds"], "job": job["result"]["trainSeconds"],
                "major_faults": int(look_ahead.get("majorFaults", 0)), "advised": int(look_ahead.get("advisedBytes", 0))}

    try:
        speeds = disk(store)
        runs = {True: [], False: []}
        for r in range(arguments.rounds):
            for advice in (True, False) if r % 2 == 0 else (False, True):
                runs[advice].append(epoch(advice))
    finally:
        daemon.stop()
    result = {"disk_megabytes_per_second": speeds, "store_bytes": store.stat().st_size, "rounds": arguments.rounds}
    for what in ("epoch", "job"):
        ratio, low, high = interval([b[what] / a[what] for a, b in zip(runs[True], runs[False])])
        result[what] = {"advised_seconds": statistics.median(run[what] for run in runs[True]),
                        "unadvised_seconds": statistics.median(run[what] for run in runs[False]), "ratio": ratio, "low": low, "high": high}
    for name, advice in (("advised", True), ("unadvised", False)):
        result[name] = {key: statistics.median(run[key] for run in runs[advice]) for key in ("major_faults", "advised")}
    if arguments.output == "json":
        print(json.dumps(result))
        return
    print(f"store of {result['store_bytes'] / 1e6:.0f} MB, {arguments.rounds} interleaved rounds, pages evicted before each")
    print("disk, MB/s: " + ", ".join(f"{name} {speed:.0f}" for name, speed in speeds.items()) + "\n")
    for what in ("epoch", "job"):
        r = result[what]
        print(f"{what:6}  advised {r['advised_seconds']:7.2f} s   not {r['unadvised_seconds']:7.2f} s   ratio {r['ratio']:.2f} "
              f"(95 %: {r['low']:.2f} to {r['high']:.2f})")
    print(f"major faults: advised {result['advised']['major_faults']:.0f}, not {result['unadvised']['major_faults']:.0f}; "
          f"advised {result['advised']['advised'] / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
