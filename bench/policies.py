"""Measures what each cache policy costs and keeps: executables, their bytes, growth of the process, captures, milliseconds of a step.

Every policy trains the same job in a daemon of its own, whose /metrics are read while it runs. Growth of resident memory is taken from the
end of warm-up (the first fifth of the training steps) to the end, and also as a least-squares slope over steps. Executables, bytes and hits
are the job's last statistics. With --rounds above 1, every round runs all policies in turn, and milliseconds are medians over the rounds.

  always, never, clear-per-step                 the policies of #10689, with exact shapes
  freeze+pad, freeze+eager, freeze+transient    frozen at the derived point; transient is that of #10689
  freeze+dynamic                                one executable for every shape
  freeze+ladder, freeze+ladder-K                8 rungs, or K
  ...+balanced                                  any of them with batches of equal load

With --fan-out the job trains on one large graph by sampled neighbours, such as:

  bench/run policies --dataset ../shared/data/node/musae_git --fan-out 10,5 --batch-size 128

`audits` are steps that also ran eagerly and were compared bit for bit; `differ` counts the audits that found a difference.
"""

import re
import statistics
import sys
import tempfile
import time

from bench import tools, tu
from bench.rounds import interleave, ratio

NAME = "policies"
MEASURES = "each cache policy: executables kept, growth of the process, milliseconds a step"
NEEDS = "nothing else"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = []
POLICIES = ["always", "never", "clear-per-step", "freeze+dynamic", "freeze+ladder", "freeze+pad", "freeze+eager", "freeze+transient",
            "freeze+dynamic+balanced", "freeze+ladder-1+balanced", "freeze+ladder-4+balanced"]
KNOWN = re.compile(r"(always|never|clear-per-step|freeze\+(dynamic|ladder(-[1-9][0-9]*)?|pad|eager|transient))(\+balanced)?")
FORMS = "always, never, clear-per-step, freeze+dynamic, freeze+ladder, freeze+ladder-RUNGS, freeze+pad, freeze+eager, freeze+transient, each also with +balanced"
MB = 1e6


def policy_names(text):
    policies = text.split(",")
    if unknown := [policy for policy in policies if not KNOWN.fullmatch(policy)]:
        raise SystemExit(f"bench: policies: --policies {','.join(unknown)}: accepted: {FORMS}")
    return policies


def hops(text):
    """Checks the value of --fan-out."""
    if not all(hop == "all" or (hop.isdecimal() and int(hop) > 0) for hop in text.split(",")):
        raise SystemExit(f"bench: policies: --fan-out {text}: accepted: whole numbers from 1, or all, divided by commas")
    return text


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=tools.SAMPLE, help="folder of many small graphs, or a zipped TUDataset; with --fan-out of one large graph (default: deploy/sample/zinc)")
    parser.add_argument("--fan-out", type=hops, help="neighbours drawn, hop by hop; a layer each in place of --layers")
    parser.add_argument("--architecture", help="default: the server's, gine of sets and sage of one large graph")
    parser.add_argument("--policies", type=policy_names, default=",".join(POLICIES), help=f"divided by commas: {FORMS} (default: %(default)s)")
    parser.add_argument("--device", default="cpu", choices=["auto", "cpu", "mps", "cuda"], help="that trains (default cpu)")
    tools.add_numbers(parser, epochs=20, rounds=1, batch_size=32, hidden=64, layers=4)
    parser.add_argument("--loss", help="default: the model's; molhiv and most TUDatasets take bce")
    parser.add_argument("--sample-seconds", type=float, default=0.5, help="between two readings of /metrics (default 0.5)")


def slope(xs, ys):
    """Returns the slope of the least-squares line through the points."""
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    return sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / spread if spread > 0 else 0.0


def sample(m):
    """Picks the figures that are followed from one reading of /metrics."""
    # The cache's gauges exist only while a job runs.
    both = lambda name: sum(m.get(f'permafrost_graph_cache_{name}{{mode="{mode}"}}', 0) for mode in ("train", "eval"))
    return {
        "step": m["permafrost_train_steps_total"],
        "rss": m["process_resident_memory_bytes"],
        "entries": both("entries"),
        "captures": both("captures_total"),
        "cache_bytes": m.get("permafrost_graph_cache_bytes", 0),
        "storage_bytes": m["permafrost_torch_storage_bytes"],
        "storage_allocations": m["permafrost_torch_storage_allocations_total"],
        "frozen": m.get("permafrost_graph_cache_frozen", 0),
    }


def follow(daemon, seconds):
    """Returns readings of /metrics while a job runs."""
    samples = []
    while True:
        page = daemon.metrics()
        # The cache's gauges are 0 once the job has ended.
        if page['permafrost_jobs{state="running"}'] == 1 and page["permafrost_train_steps_total"] > 0:
            samples.append(sample(page))
        elif tools.unended_jobs(page) == 0:
            return samples
        time.sleep(seconds)


def share(mode):
    """Returns how a mode's steps were served, and the rows that padding added, from the mode's statistics."""
    number = lambda field: float(mode.get(field, 0))
    served = max(1.0, number("hits") + number("paddedHits") + number("misses"))
    return {"steps": served, "exact": number("hits") / served, "padded": number("paddedHits") / served,
            "eager": number("eagerSteps") / served, "transient": number("transientSteps") / served,
            "rows_added": (number("paddingNodes") + number("paddingEdges")) / max(1.0, number("nodes") + number("edges"))}


def run(arguments, tools_, policy):
    """Trains once under `policy` in a fresh daemon, and returns a row."""
    plain = policy.removesuffix("+balanced")
    name, _, variant = plain.partition("+")
    form, _, rungs = variant.partition("-")
    shapes = form if form in ("dynamic", "ladder") else "exact"
    flags = ["--on-miss", form] if form in ("pad", "eager", "transient") else []
    flags += ["--rungs", rungs] if rungs else []
    flags += ["--batching", "balanced"] if plain != policy else []
    flags += ["--loss", arguments.loss] if arguments.loss else []
    flags += ["--architecture", arguments.architecture] if arguments.architecture else []
    flags += ["--fan-out", arguments.fan_out] if arguments.fan_out else []
    layers = len(arguments.fan_out.split(",")) if arguments.fan_out else arguments.layers
    dataset = tu.folder(arguments.dataset, tools_.work) if arguments.dataset.suffix == ".zip" else arguments.dataset
    with tempfile.TemporaryDirectory() as work, tools_.daemon(dataset, work, device=arguments.device) as daemon:
        daemon.client("job", "submit", "--id", "bench", "--dataset", "set", "--epochs", arguments.epochs, "--seed", 1,
                      "--batch-size", arguments.batch_size, "--hidden", arguments.hidden, "--layers", layers,
                      "--cache-policy", name, "--shapes", shapes, *flags)
        samples = follow(daemon, arguments.sample_seconds)
        job, cache = daemon.json("job", "show", "bench"), daemon.json("cache", "show", "bench")
    if job["state"] != "STATE_SUCCEEDED":
        raise RuntimeError(f"the job under {policy} ended as {job['state']}: {job.get('error')}")
    steps = int(job["progress"]["step"])
    warm = [s for s in samples if s["step"] >= steps // 5]
    frozen = [s for s in samples if s["frozen"] == 1]
    both = lambda field: sum(float(mode.get(field, 0)) for mode in cache["statistics"])
    # Captures of dynamic and ladder happen before the first step.
    within_steps = both("captureSeconds") if shapes == "exact" else 0.0
    return {
        "policy": policy,
        "device": daemon.device,
        "steps": steps,
        "executables": both("entries"),
        "cache_mb": float(cache.get("totalBytes", 0)) / MB,
        "captures": both("captures"),
        "audits": both("audits"),
        "audit_failures": both("auditFailures"),
        "capture_seconds": both("captureSeconds"),
        "ms_per_step": job["result"]["meanStepMilliseconds"],
        "ms_per_step_without_captures": job["result"]["meanStepMilliseconds"] - 1e3 * within_steps / steps,
        # None if the job ended before a second reading.
        "rss_growth_mb": (warm[-1]["rss"] - warm[0]["rss"]) / MB if len(warm) > 1 else None,
        "rss_mb_per_10000_steps": 1e4 * slope([s["step"] for s in warm], [s["rss"] for s in warm]) / MB if len(warm) > 1 else None,
        "shares": {mode["mode"].removeprefix("GRAPH_CACHE_MODE_").lower(): share(mode) for mode in cache["statistics"]},
        # The minimum and maximum after the freeze. They are equal if nothing grows.
        "frozen": {key: [min(s[key] for s in frozen), max(s[key] for s in frozen)]
                   for key in ("entries", "captures", "cache_bytes", "storage_bytes")} if frozen else None,
        "samples": samples,
    }


def measure(arguments, tools_):
    policies = arguments.policies
    if arguments.fan_out:
        composed = [policy for policy in policies if policy.endswith("+balanced")]
        policies = [policy for policy in policies if policy not in composed]
        told = f"bench: policies: {', '.join(composed)}: batches of one large graph are not balanced"
        if not policies:
            raise SystemExit(f"{told}; accepted with --fan-out: policies without +balanced")
        if composed:
            print(f"{told}: left out", file=sys.stderr)
    runs = interleave({policy: lambda _, policy=policy: run(arguments, tools_, policy) for policy in policies}, arguments.rounds, warm_up=0)
    rows = []
    for policy in policies:
        row = runs[policy][-1]
        for key in ("ms_per_step", "ms_per_step_without_captures"):
            times = [r[key] for r in runs[policy]]
            row[key] = statistics.median(times)
            if arguments.rounds > 1 and policy != policies[0]:
                row[key + "_ratio"] = ratio(times, [r[key] for r in runs[policies[0]]])
        rows.append(row)
    return {"epochs": arguments.epochs, "batch_size": arguments.batch_size, "rounds": arguments.rounds, "rows": rows}


def show(result):
    signed = lambda value, width, digits: f"{'-':>{width}}" if value is None else f"{value:+{width}.{digits}f}"
    lines = [f"{result['epochs']} epochs, {result['rows'][0]['steps']} steps, batch {result['batch_size']}, rounds {result['rounds']}, "
             f"device {result['rows'][0]['device']}",
             f"{'policy':26}{'executables':>12}{'cache MB':>10}{'captures':>10}{'RSS MB':>9}{'MB/10k steps':>14}"
             f"{'exact %':>9}{'padded %':>10}{'rows +%':>9}{'audits':>8}{'differ':>8}{'ms/step':>9}{'no captures':>13}"]
    for row in result["rows"]:
        train = row["shares"]["train"]
        lines.append(f"{row['policy']:26}{row['executables']:12.0f}{row['cache_mb']:10.1f}{row['captures']:10.0f}"
                     f"{signed(row['rss_growth_mb'], 9, 1)}{signed(row['rss_mb_per_10000_steps'], 14, 2)}{100 * train['exact']:9.1f}"
                     f"{100 * train['padded']:10.1f}{100 * train['rows_added']:9.2f}{row['audits']:8.0f}{row['audit_failures']:8.0f}"
                     f"{row['ms_per_step']:9.2f}"
                     f"{row['ms_per_step_without_captures']:13.2f}")
    return "\n".join(lines)
