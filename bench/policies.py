"""What each cache policy costs and keeps: executables, their bytes, growth of the process, captures, milliseconds a step.

Every policy trains the same job in a daemon of its own, whose /metrics are read twice a second while it runs. Growth of
resident memory is taken from the end of warm-up (the first --warmup-steps training steps) to the end, and as a slope over
steps by least squares. Executables, bytes and hits are the job's own last statistics.

usage: policies.py BIN_DIR DATASET_DIR [--epochs 20] [--policies always,never,...] [--warmup-steps N] [--rounds 1]
                   [--batch-size 32] [--hidden 64] [--layers 4] [--threads 2] [--json FILE] [--samples FILE]
Policies: always, never, clear-per-step, freeze+pad, freeze+eager, freeze+transient. With --rounds above 1 every round runs all
of them in turn, and milliseconds are medians over the rounds, with the time of captures and without it.
"""

import argparse
import json
import pathlib
import statistics
import tempfile
import time

from daemon import Daemon

POLICIES = ["always", "never", "clear-per-step", "freeze+pad", "freeze+eager", "freeze+transient"]
MB = 1e6


def slope(xs, ys):
    """Of the least-squares line through the points."""
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / spread if spread > 0 else 0.0


def sample(m):
    both = lambda name: sum(m[f'permafrost_graph_cache_{name}{{mode="{mode}"}}'] for mode in ("train", "eval"))
    return {
        "step": m["permafrost_train_steps_total"],
        "rss": m["process_resident_memory_bytes"],
        "entries": both("entries"),
        "captures": both("captures_total"),
        "cache_bytes": m["permafrost_graph_cache_bytes"],
        "storage_bytes": m["permafrost_torch_storage_bytes"],
        "storage_allocations": m["permafrost_torch_storage_allocations_total"],
        "frozen": m["permafrost_graph_cache_frozen"],
    }


def run(arguments, policy):
    """Trains once under `policy` in a fresh daemon; returns its row."""
    name, _, on_miss = policy.partition("+")
    flags = ["--cache-policy", name] + (["--on-miss", on_miss] if on_miss else [])
    with tempfile.TemporaryDirectory() as work:
        daemon = Daemon(arguments.bin_dir, work, arguments.dataset, arguments.threads)
        try:
            daemon.client("job", "submit", "--id", "bench", "--dataset", "set", "--epochs", arguments.epochs, "--seed", 1,
                          "--batch-size", arguments.batch_size, "--hidden", arguments.hidden, "--layers", arguments.layers,
                          *flags)
            samples = []
            while True:
                page = daemon.metrics()
                # Gauges of the cache are 0 once the job has ended.
                if page['permafrost_jobs{state="running"}'] == 1 and page["permafrost_train_steps_total"] > 0:
                    samples.append(sample(page))
                elif page['permafrost_jobs{state="queued"}'] == 0 and page['permafrost_jobs{state="running"}'] == 0:
                    break
                time.sleep(0.5)
            job, cache = daemon.json("job", "show", "bench"), daemon.json("cache", "show", "bench")
        finally:
            daemon.stop()
    if job["state"] != "STATE_SUCCEEDED":
        raise SystemExit(f"policies: the job under {policy} ended as {job['state']}: {job.get('error')}")
    steps = int(job["progress"]["step"])
    warmup = arguments.warmup_steps if arguments.warmup_steps is not None else steps // 5
    warm = [s for s in samples if s["step"] >= warmup]
    number = lambda statistics_of_mode, field: float(statistics_of_mode.get(field, 0))
    modes = {s["mode"].removeprefix("GRAPH_CACHE_MODE_").lower(): s for s in cache["statistics"]}
    both = lambda field: sum(number(s, field) for s in modes.values())
    shares = {}
    for mode, s in modes.items():
        served = number(s, "hits") + number(s, "paddedHits") + number(s, "misses")
        rows = number(s, "nodes") + number(s, "edges")
        shares[mode] = {
            "steps": served,
            "exact": number(s, "hits") / served,
            "padded": number(s, "paddedHits") / served,
            "eager": number(s, "eagerSteps") / served,
            "transient": number(s, "transientSteps") / served,
            "rows_added": (number(s, "paddingNodes") + number(s, "paddingEdges")) / rows,
        }
    frozen = [s for s in samples if s["frozen"] == 1]
    return {
        "policy": policy,
        "steps": steps,
        "executables": both("entries"),
        "cache_mb": float(cache.get("totalBytes", 0)) / MB,
        "captures": both("captures"),
        "capture_seconds": both("captureSeconds"),
        "ms_per_step": job["result"]["meanStepMilliseconds"],
        "ms_per_step_without_captures": job["result"]["meanStepMilliseconds"] - 1e3 * both("captureSeconds") / steps,
        "best_valid_metric": job["result"]["bestValidMetric"],
        "rss_growth_mb": (warm[-1]["rss"] - warm[0]["rss"]) / MB,
        "rss_mb_per_10000_steps": 1e4 * slope([s["step"] for s in warm], [s["rss"] for s in warm]) / MB,
        "shares": shares,
        "samples": len(warm),
        # Least and most after the freeze: equal where nothing grows.
        "frozen": {key: [min(s[key] for s in frozen), max(s[key] for s in frozen)]
                   for key in ("entries", "captures", "cache_bytes", "storage_bytes")} if frozen else None,
        "all_samples": samples,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bin_dir", type=pathlib.Path)
    parser.add_argument("dataset", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--policies", default=",".join(POLICIES))
    for flag, value in (("--epochs", 20), ("--batch-size", 32), ("--hidden", 64), ("--layers", 4), ("--threads", 2),
                        ("--rounds", 1)):
        parser.add_argument(flag, type=int, default=value)
    parser.add_argument("--warmup-steps", type=int, help="default: a fifth of the steps")
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--samples", type=pathlib.Path, help="every reading of /metrics, as JSON")
    arguments = parser.parse_args()
    policies = arguments.policies.split(",")
    if unknown := set(policies) - set(POLICIES):
        parser.error(f"--policies {','.join(sorted(unknown))}: accepted: {', '.join(POLICIES)}")
    rounds = [[run(arguments, policy) for policy in policies] for _ in range(arguments.rounds)]
    rows = rounds[-1]
    for i, row in enumerate(rows):
        for key in ("ms_per_step", "ms_per_step_without_captures"):
            row[key] = statistics.median(r[i][key] for r in rounds)
    if arguments.samples:
        arguments.samples.write_text(json.dumps({row["policy"]: row["all_samples"] for row in rows}) + "\n")
    for row in rows:
        del row["all_samples"]
    print(f"{arguments.epochs} epochs, {rows[0]['steps']} steps, batch {arguments.batch_size}, {arguments.threads} threads")
    print(f"{'policy':18}{'executables':>12}{'cache MB':>10}{'captures':>10}{'RSS MB':>9}{'MB/10k steps':>14}"
          f"{'exact %':>9}{'padded %':>10}{'rows +%':>9}{'ms/step':>9}{'no captures':>13}")
    for row in rows:
        train = row["shares"]["train"]
        print(f"{row['policy']:18}{row['executables']:12.0f}{row['cache_mb']:10.1f}{row['captures']:10.0f}"
              f"{row['rss_growth_mb']:+9.1f}{row['rss_mb_per_10000_steps']:+14.2f}{100 * train['exact']:9.1f}"
              f"{100 * train['padded']:10.1f}{100 * train['rows_added']:9.2f}{row['ms_per_step']:9.2f}"
              f"{row['ms_per_step_without_captures']:13.2f}")
    if arguments.json:
        arguments.json.write_text(json.dumps({"settings": {k: str(v) for k, v in vars(arguments).items()}, "rows": rows},
                                             indent=1) + "\n")


if __name__ == "__main__":
    main()
