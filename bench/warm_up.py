"""Measures what a job waits for before its steps, and the effect of nearly equal batch sizes on what is learned.

There are three measurements on the same set of graphs. Each has its own flag for the number of repetitions:

  warm-up    seconds of the captures before the first step (`cache show`) over seconds of the first epoch's training (`job show`),
             of jobs of one epoch in one daemon (--jobs); its first job is among them
  resume     a daemon that trains is killed (SIGKILL) after its first checkpoint and started again (--kills): seconds from the start of its
             process, and from when it says that it is ready, to the first step that /metrics counts
  batching   the validation metric of the best epoch with random and with balanced batches (--seeds); `difference` is balanced minus random,
             with a 95 % interval by bootstrap over the seeds of both

warm-up and resume have a row for each of `--shapes dynamic` (one executable for every shape) and `ladder` (8 rungs a mode). resume also has
`exact`, which captures nothing before its steps.
"""

import pathlib
import random
import re
import statistics
import tempfile
import time

from bench import tools
from bench.rounds import difference, difference_text
from tests.parity.daemon import Daemon

NAME = "warm-up"
MEASURES = "a warm-up beside the first epoch, from a kill to the first step after it, and what balanced batches teach"
NEEDS = "nothing else"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = []
WARMS_UP, RESUMES = ("dynamic", "ladder"), ("dynamic", "ladder", "exact")
BATCHINGS = ("random", "balanced")
# The most seconds to wait for anything here.
PATIENCE = 120


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=tools.SAMPLE, help="folder of many small graphs (default: deploy/sample/zinc)")
    tools.add_numbers(parser, jobs=7, kills=7, seeds=5, epochs=20, batch_size=32, hidden=64, layers=4)
    parser.add_argument("--resume-epochs", type=int, default=100, help="of a job that is killed, which must outlive its first checkpoint (default 100)")
    parser.add_argument("--loss", help="default: the model's; molhiv takes bce")


def flags_of(arguments):
    flags = ["--dataset", "set", "--batch-size", arguments.batch_size, "--hidden", arguments.hidden, "--layers", arguments.layers]
    return flags + (["--loss", arguments.loss] if arguments.loss else [])


def spread(values):
    return {"median": statistics.median(values), "least": min(values), "most": max(values), "values": values}


def warm_up(arguments, daemon, shapes, number):
    """Returns the seconds of a job's captures before its first step, and of its first epoch."""
    name = f"warm-{shapes}-{number}"
    job = daemon.train(name, *flags_of(arguments), "--epochs", 1, "--cache-policy", "freeze", "--shapes", shapes)
    cache = daemon.json("cache", "show", name)
    captures, seconds = (sum(float(mode[field]) for mode in cache["statistics"]) for field in ("captures", "captureSeconds"))
    said = re.search(r"graph cache warmed up before step 1: (\d+) captures", daemon.client("job", "logs", name))
    if said is None or int(said[1]) != captures:
        raise RuntimeError(f"job {name} captured {captures:.0f} times, and its log says {said[0] if said else 'nothing of a warm-up'}")
    return seconds, float(job["epochs"][0]["trainSeconds"])


def warm_ups(arguments, tools_, state):
    rows = {}
    with tools_.daemon(arguments.dataset, state) as daemon:
        for shapes in WARMS_UP:
            found = [warm_up(arguments, daemon, shapes, number) for number in range(arguments.jobs)]
            rows[shapes] = {"share": spread([seconds / epoch for seconds, epoch in found]),
                            "warm_up_seconds": spread([seconds for seconds, _ in found]),
                            "epoch_seconds": spread([epoch for _, epoch in found])}
    return rows


def until(what, asked, seconds):
    """Calls `asked` every `seconds` until it returns a value other than None, and returns that value."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if (value := asked()) is not None:
            return value
        time.sleep(seconds)
    raise RuntimeError(f"{what}: not within {PATIENCE} s")


def resume(arguments, tools_, shapes, number, state):
    """Kills a daemon that trains, starts it again, and returns the seconds to its first step, from the start of its process and from its being
    ready."""
    first = tools_.daemon(arguments.dataset, state)
    job = f"killed-{shapes}-{number}"
    try:
        first.client("job", "submit", "--id", job, *flags_of(arguments), "--epochs", arguments.resume_epochs, "--seed", number,
                     "--cache-policy", "freeze", "--shapes", shapes)

        def checkpointed():
            shown = first.json("job", "show", job)
            if shown["state"] in ("STATE_SUCCEEDED", "STATE_FAILED"):
                raise RuntimeError(f"job {job} ended before it was killed {shown.get('error')}; --resume-epochs gives it more")
            return shown if int(shown["progress"]["checkpointStep"]) > 0 else None

        until(f"a checkpoint of {job}", checkpointed, 0.05)
        # Kills at any point between two checkpoints.
        time.sleep(random.Random(number).random() * 0.3)
    finally:
        first.process.kill()
        first.process.wait()
    begin = time.monotonic()
    with Daemon(tools_.bin_dir, state, arguments.dataset, threads=tools_.threads) as second:
        ready = time.monotonic()
        until(f"a step of {job}", lambda: True if second.metrics().get("permafrost_train_steps_total", 0) > 0 else None, 0.005)
        stepped = time.monotonic()
        if (resumes := int(second.json("job", "show", job)["resumes"])) != 1:
            raise RuntimeError(f"job {job} was resumed {resumes} times, expected once")
        second.client("job", "cancel", job)
    return stepped - begin, stepped - ready


def resumes(arguments, tools_, scratch):
    rows = {}
    for shapes in RESUMES:
        found = [resume(arguments, tools_, shapes, number, scratch / f"{shapes}-{number}") for number in range(arguments.kills)]
        rows[shapes] = {"from_process": spread([whole for whole, _ in found]), "from_ready": spread([rest for _, rest in found])}
    return rows


def batchings(arguments, tools_, state):
    rows = {}
    with tools_.daemon(arguments.dataset, state) as daemon:
        for batching in BATCHINGS:
            swept = daemon.json("job", "sweep", *flags_of(arguments), "--id", batching, "--vary", f"seed=1..{arguments.seeds}", "--max-jobs",
                                arguments.seeds, "--epochs", arguments.epochs, "--batching", batching)
            (metric,) = swept["jobs"][0]["valid"]
            rows[batching] = {split: [job[split][metric] for job in swept["jobs"]] for split in ("valid", "test")}
    return metric, rows


def measure(arguments, tools_):
    with tempfile.TemporaryDirectory(dir=tools_.work) as folder:
        scratch = pathlib.Path(folder)
        result = {"dataset": arguments.dataset.name, "epochs": arguments.epochs, "warm_up": warm_ups(arguments, tools_, scratch / "warm-up"),
                  "resume": resumes(arguments, tools_, scratch)}
        metric, rows = batchings(arguments, tools_, scratch / "batching")
    return {**result, "metric": metric, "batching": rows,
            "difference": {split: difference(rows["balanced"][split], rows["random"][split]) for split in ("valid", "test")}}


def show(result):
    range_of = lambda found, scale, digits, unit: (f"{scale * found['median']:.{digits}f} {unit} ({scale * found['least']:.{digits}f} to "
                                                   f"{scale * found['most']:.{digits}f}, {len(found['values'])} times)")
    lines = [f"{result['dataset']}: warm-up over the first epoch's training"]
    lines += [f"  {shapes:9}{range_of(row['share'], 100, 1, '%')}: {row['warm_up_seconds']['median']:.3f} s of {row['epoch_seconds']['median']:.3f} s"
              for shapes, row in result["warm_up"].items()]
    lines.append("from the start after a kill to the first step")
    lines += [f"  {shapes:9}from the process {range_of(row['from_process'], 1, 2, 's')}, from ready {range_of(row['from_ready'], 1, 2, 's')}"
              for shapes, row in result["resume"].items()]
    lines.append(f"{result['metric']} of the best epoch of {result['epochs']}")
    lines += [f"  {batching:9}" + ", ".join(f"{split} {statistics.fmean(values):.4f} ± {statistics.pstdev(values):.4f}"
                                            for split, values in row.items()) for batching, row in result["batching"].items()]
    lines += [f"  balanced - random, {split:6}{difference_text(value)}" for split, value in result["difference"].items()]
    return "\n".join(lines)
