"""Tests the daemon on a hollow GPU (hollow.h): whole jobs under every cache policy, commands, failures and a kill, and what each step asks
of the device. Does not test what a step computes, since kernels do nothing.

usage: daemon_test.py BIN_DIR ZINC_DIR [--steps N] [TRIAL...]
"""

import argparse
import concurrent.futures
import contextlib
import functools
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import threading

from tests.hollow.gpu import Absent, Gpu, cuda_bin_dir
from tests.hollow.job import Job, until
from tests.parity.daemon import Daemon

SKIPPED = 77
# A replayed training step of the default job brings its batch by one copy. The host waits only if the device is three batches behind.
MOST_COPIES_A_STEP = 1
MOST_WAITS_A_STEP = 0
WAITS_A_STEP_BEHIND = 1
STEPS_AN_EPOCH = 313  # of ZINC's sample, in batches of 32 graphs
COPIES = ("h2d_pageable", "h2d_pinned")
WAITS = ("stream_syncs", "event_syncs", "device_syncs", "blocking_copies")
# A short job: 40 steps of training, and 8 of evaluation.
SHORT = ("--dataset", "zinc", "--batch-size", "256", "--epochs", "1")
TRIALS = {}
# Each of these has a daemon of its own.
OWN_TRIALS = ("kill", "features", "workspaces")
# For the stream of steps, cuBLAS takes 32 MiB and cuBLASLt 1 MiB, and the stream of captures takes the same: libtorch's default for the
# hollow card.
WORKSPACES = 2 * (33 << 20)
# The device memory beyond the workspaces: room for steps and for a part of a job's features.
FEATURES_ROOM = 60_000_000


def trial(function):
    TRIALS[function.__name__] = function
    return function


def done_since(gpu, before):
    return {name: value - before[name] for name, value in gpu.counts().items()}


def expect(holds, what):
    assert holds, what


def a_step(launches, names):
    """Returns the median and the maximum of these counts from one launch of a graph to the next."""
    done = [sum(launch.get(name, 0) for name in names) for launch in launches]
    return statistics.median_low(done), max(done)


def freeze_exact(on_miss):
    return ("--shapes", "exact", "--freeze-at", "8", "--on-miss", on_miss)


# Maps each policy to its flags, and to a check of its cache after the given number of training steps.
POLICIES = {
    "freeze": ((), lambda c, _: c["frozenCaptures"] == c["eagerSteps"] == 0 and c["entries"] == c["capacity"] > 0),
    "freeze-exact-pad": (freeze_exact("pad"), lambda c, _: c["frozenCaptures"] == c["eagerSteps"] == 0 and c.train("entries") == 9),
    "freeze-exact-eager": (freeze_exact("eager"), lambda c, _: c["frozenCaptures"] == 0 < c["eagerSteps"]),
    "freeze-exact-transient": (freeze_exact("transient"), lambda c, _: c["frozenCaptures"] == c["transientSteps"] > 0),
    "always": (("--cache-policy", "always"), lambda c, _: c["entries"] == c["captures"] == c["misses"] > 9),
    "never": (("--cache-policy", "never"), lambda c, steps: c["captures"] == 0 and c.train("eagerSteps") == steps),
    "clear-per-step": (("--cache-policy", "clear-per-step"), lambda c, steps: c.train("captures") == steps and c["entries"] == 0),
}


@trial
def policies(daemon, gpu, _):
    for name, (flags, holds) in POLICIES.items():
        before = gpu.counts()
        job = Job(daemon, f"policy-{name}", *SHORT, *flags)
        steps = int(job.succeed()["progress"]["step"])
        done, cache = done_since(gpu, before), job.cache().whole()
        expect(holds(cache, steps), f"{name}: {cache.shown['statistics']}")
        expect(done["captures"] == cache["captures"], f"{name}: the device made {done['captures']} captures, the cache {cache['captures']}")
        expect(gpu.counts()["graphs"] == 0, f"{name}: graphs outlive their job")
        print(f"{name}: {steps} steps, {cache['captures']} captures, {done['launches']} launches, "
              f"{sum(done[n] for n in COPIES)} copies to the device, {sum(done[n] for n in WAITS)} waits")


@trial
def long(daemon, gpu, steps):
    """Tests the default job, sealed: nothing is captured after its warm-up, and nothing grows."""
    job = Job(daemon, "long", "--dataset", "zinc", "--epochs", math.ceil(steps / STEPS_AN_EPOCH))
    job.reach(1)
    begun, cache = gpu.counts(), job.cache()
    job.reach(STEPS_AN_EPOCH + 1)
    settled = gpu.counts()
    job.succeed()
    ended, cache_at_end = gpu.counts(), job.cache().whole()
    for name in ("entries", "entryBytes", "captures"):
        expect(cache[name] == cache_at_end[name], f"{name}: {cache[name]} before, {cache_at_end[name]} after")
    expect(begun["captures"] == ended["captures"], "the device captured while the cache was frozen")
    launches = gpu.launches(begun["launches"])
    copies, waits = a_step(launches, COPIES), a_step(launches, WAITS)
    print(f"long: {job.step()} steps, {cache_at_end['entries']} entries before and after; from one replay to the next "
          f"{copies[0]} copies to the device (at most {copies[1]}), {a_step(launches, ['d2d'])[0]} within it, {waits[0]} waits (at most {waits[1]}); "
          f"device memory {settled['bytes'] / 1e6:.1f} MB after an epoch")
    expect(copies[0] <= MOST_COPIES_A_STEP, f"{copies[0]} copies to the device a step, at most {MOST_COPIES_A_STEP} are known")
    expect(waits[0] <= MOST_WAITS_A_STEP, f"{waits[0]} waits a step, at most {MOST_WAITS_A_STEP} are known")


@trial
def behind(daemon, gpu, _):
    """Tests that the host waits for a device that is behind, so that no buffer is written while it is copied."""
    first = len(gpu.launches())
    with gpu.switched("behind"):
        job = Job(daemon, "behind", *SHORT)
        job.succeed()
    expect(job.cache().whole()["eagerSteps"] == 0, "a job on a device that is behind runs eager")
    waits = a_step(gpu.launches(first), WAITS)
    expect(waits[0] == WAITS_A_STEP_BEHIND, f"{waits[0]} waits a step for a device that is behind, not {WAITS_A_STEP_BEHIND}")
    print(f"behind: {job.step()} steps, each of which waits once, for the copy that was begun three batches before")


@trial
def commands(daemon, gpu, _):
    """Tests that graphs are dropped and captured again while a job runs. The pool of their memory ends with the last graph, and is made
    again."""
    job = Job(daemon, "commands", "--dataset", "zinc", "--epochs", "400")
    job.reach(1)
    for command in ("clear", "thaw", "clear", "freeze"):
        before = gpu.counts()
        daemon.client("cache", command, "commands")
        job.reach(job.step() + 20)
        if command == "clear":
            until("captures after cache clear", lambda count=before["captures"]: gpu.counts()["captures"] > count)
    daemon.client("cache", "policy", "commands", "--policy", "clear-per-step")
    job.reach(job.step() + 20)
    cache = job.cache().whole()
    daemon.client("job", "cancel", "commands")
    job.end()
    expect(gpu.counts()["graphs"] == 0, "graphs outlive a cancelled job")
    print(f"commands: cleared, thawed, cleared, frozen, cleared at each step: {cache['captures']} captures, no graph break")


@trial
def rows(daemon, _, __):
    """Tests that a job evaluates, predicts and plans on the device, and that a census is refused."""
    Job(daemon, "rows", *SHORT).succeed()
    daemon.client("job", "evaluate", "rows", "--rows", "valid")
    daemon.client("job", "predict", "rows", "--rows", "all", "--to", "-")
    daemon.client("cache", "plan", "--dataset", "zinc", "--epochs", "2")
    refused = subprocess.run([daemon.bin_dir / "permafrost", "--server", daemon.server, "cache", "census", "--dataset", "zinc"],
                             check=False, capture_output=True, text=True)
    expect(refused.returncode == 4 and "beside CUDA" in refused.stderr, f"a census: {refused}")
    print("rows: evaluated, predicted, planned; a census is refused")


def goes_on(daemon, name):
    """Checks that a job after a failure succeeds like any other."""
    job = Job(daemon, f"{name}-after", *SHORT)
    job.succeed()
    expect(job.cache().whole()["eagerSteps"] == 0, f"the job after {name} runs eager")


@trial
def proof(daemon, gpu, _):
    with gpu.switched("spoil"):
        job = Job(daemon, "proof", *SHORT)
        shown = job.succeed()
    cache = job.cache()
    cache.breaks("otherwise than the step did")
    expect(cache.train("eagerSteps") == int(shown["progress"]["step"]), f"steps of a replay that differs: {cache.shown['statistics']}")
    goes_on(daemon, "proof")
    print(f"proof: {cache.shown['graphBreaks'][0]['why']}; all steps eager, the next job replays")


@trial
def invalidated(daemon, gpu, _):
    with gpu.switched("invalidate"):
        job = Job(daemon, "invalidated", *SHORT)
        job.succeed()
    job.cache().breaks("the device refuses it")
    goes_on(daemon, "invalidated")
    print("invalidated: a graph break, all steps eager, the next job replays")


@trial
def memory(daemon, gpu, _):
    for switch in ("no-memory", "no-capture-memory"):
        before = gpu.counts()
        with gpu.switched(switch):
            Job(daemon, switch, *SHORT).fail("OUT_OF_MEMORY", "out of device memory")
        expect(done_since(gpu, before)["failed_mallocs"] > 0, f"{switch}: no allocation failed")
        expect(gpu.counts()["graphs"] == 0, f"{switch}: graphs outlive their job")
        goes_on(daemon, switch)
    print("memory: OUT_OF_MEMORY before and in a capture, each time the next job replays")


def write_ring(folder):
    """Writes the graph of the top README: 300 nodes in two halves."""
    raw = folder / "ring" / "raw"
    raw.mkdir(parents=True)
    (raw / "num-node-list.csv").write_text("300\n")
    (raw / "edge.csv").write_text("".join(f"{i},{(i + 1) % 300}\n" for i in range(300)))
    (raw / "node-feat.csv").write_text("".join(f"{i / 300 - 0.5},{i % 2}\n" for i in range(300)))
    (raw / "node-label.csv").write_text("".join(f"{i // 150}\n" for i in range(300)))
    return folder / "ring"


NODE_JOBS = {
    "whole": ("--architecture", "gcn"),
    "sampled": ("--fan-out", "3,3", "--batch-size", "32"),
    "links": ("--link-prediction", "--fan-out", "3,3", "--batch-size", "32"),
    "walks": ("--architecture", "node2vec"),
}


@trial
def nodes(daemon, gpu, _):
    daemon.client("dataset", "import", "ring", daemon.ring)
    for name, flags in NODE_JOBS.items():
        job = Job(daemon, f"nodes-{name}", "--dataset", "ring", "--epochs", "5", *flags)
        first = len(gpu.launches())
        job.succeed()
        cache, launches = job.cache().whole(), gpu.launches(first)
        expect(cache["eagerSteps"] == 0, f"{name}: {cache.shown['statistics']}")
        # GraphSAGE's means are computed on the device.
        expect(("lie on the device, which gathers them" in job.log()) == (name in ("sampled", "links")), f"{name}: {job.log()}")
        print(f"nodes, {name}: {job.step()} steps, {cache['captures']} captures; from one replay to the next {a_step(launches, COPIES)[0]} "
              f"copies to the device, {a_step(launches, WAITS)[0]} waits")


def write_wide(folder):
    """Writes 20,000 nodes on a ring, each with 1,000 features, 80 MB in total."""
    raw = folder / "wide" / "raw"
    raw.mkdir(parents=True)
    (raw / "num-node-list.csv").write_text("20000\n")
    (raw / "edge.csv").write_text("".join(f"{i},{(i + 1) % 20000}\n" for i in range(20000)))
    rows = [",".join(str((i + column) % 7) for column in range(1000)) + "\n" for i in range(7)]
    (raw / "node-feat.csv").write_text("".join(rows[i % 7] for i in range(20000)))
    (raw / "node-label.csv").write_text("".join(f"{i // 10000}\n" for i in range(20000)))
    return folder / "wide"


def features(start, gpu, folder):
    """Tests a device that has room beside the steps for only a part of the features. The rest is pinned, and the device gathers both."""
    with start(HOLLOW_MEMORY=str(WORKSPACES + FEATURES_ROOM)) as daemon:
        daemon.client("dataset", "import", "wide", write_wide(folder))
        first = len(gpu.launches())
        job = Job(daemon, "features", "--dataset", "wide", "--architecture", "gcn", "--fan-out", "2,1", "--batch-size", "32", "--epochs", "1")
        job.succeed()
        told = [line for line in job.log().splitlines() if "rows wanted most" in line and "pinned memory of the host" in line]
        expect(len(told) == 1, f"features: {job.log()}")
        expect(job.cache().whole()["eagerSteps"] == 0, "a job whose features are in two parts runs eager")
        copies, waits = a_step(gpu.launches(first), COPIES)[0], a_step(gpu.launches(first), WAITS)[0]
        expect(copies <= MOST_COPIES_A_STEP and waits <= MOST_WAITS_A_STEP, f"features: {copies} copies to the device and {waits} waits a step")
        print(f"features: {told[0].split('features: ')[-1]}; {job.step()} steps, {copies} copies to the device, {waits} waits")


def workspaces(start):
    """Tests that cuBLAS's memory for each stream does not count as memory for jobs."""
    of_128_mib = {"CUBLAS_WORKSPACE_CONFIG": ":65536:2"}
    for variables, taken in ({}, WORKSPACES), (of_128_mib, WORKSPACES + 2 * (96 << 20)):
        with start(HOLLOW_MEMORY=str(10**9), **variables) as daemon:
            submit = [daemon.bin_dir / "permafrost", "--server", daemon.server, "job", "submit", *SHORT, "--hidden", "4096", "--layers", "64"]
            refused = subprocess.run(submit, check=False, capture_output=True, text=True)
            left = math.floor((10**9 - taken) / 1e8) / 10
            expect(f"the device has {left} GB" in refused.stderr, f"a job beside workspaces of {taken} bytes: {refused}")
    print("workspaces: those of two streams are counted out of the device's memory, by default and by CUBLAS_WORKSPACE_CONFIG")


@contextlib.contextmanager
def watched(daemon):
    """Reads /metrics and the server's info continuously."""
    done = threading.Event()

    def look():
        looks = 0
        while not done.wait(0.2):
            daemon.metrics()
            daemon.client("server", "info")
            looks += 1
        return looks

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield
        finally:
            done.set()
        expect(looking.result() > 0, "nobody looked at the device")


def kill(start, gpu):
    """Tests kill -9 in the middle of a job. The job's next run captures again."""
    daemon = start()
    job = Job(daemon, "killed", "--dataset", "zinc", "--epochs", "4", "--checkpoint-every", "50")
    job.reach(150)
    daemon.process.kill()
    daemon.process.wait()
    with start() as daemon:
        job = Job(daemon, "killed")
        shown = job.succeed()
        cache = job.cache().whole()
        expect(int(shown["resumes"]) == 1, f"{shown['resumes']} resumes")
        expect(cache["entries"] == cache["capacity"] and cache["eagerSteps"] == 0, f"after the resume: {cache.shown['statistics']}")
        expect(gpu.counts()["graphs"] == 0, "graphs outlive their job")
        print(f"kill: resumed, {cache['entries']} entries, {cache['recaptures']} captured again")


def check_notes(gpu):
    forbidden = [line for line in gpu.log() if line.startswith("FORBIDDEN")]
    assert not forbidden, f"{len(forbidden)} calls that a capture forbids: {sorted(set(forbidden))[:5]}"
    callers = [line for line in gpu.log() if line.startswith("thread ")]
    # The thread that starts the daemon opens the device. Afterwards only the device's thread calls it.
    assert gpu.counts()["threads"] <= 2, f"more threads than the device's call it: {callers}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("bin_dir")
    parser.add_argument("zinc")
    parser.add_argument("--steps", type=int, default=10_000, help="of the long job")
    parser.add_argument("trials", nargs="*", help=f"{', '.join([*TRIALS, *OWN_TRIALS])}; all, unless named")
    arguments = parser.parse_intermixed_args()
    wanted = arguments.trials or [*TRIALS, *OWN_TRIALS]
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        try:
            bin_dir = cuda_bin_dir(arguments.bin_dir)
            gpu = Gpu(bin_dir, folder / "gpu")
        except Absent as absent:
            print(f"skipped: {absent}")
            return SKIPPED
        root = folder / "root"
        ring = write_ring(root)

        def start(state, **variables):
            # A busy machine may take long to end a process.
            daemon = Daemon(bin_dir, folder / state, root, "--import-root", arguments.zinc, "--exit-timeout", "0", device="cuda",
                            environment=gpu.environment(**variables))
            daemon.ring = ring
            # pread leaves the file's position alone, at which the daemon writes.
            log = os.pread(daemon.log.fileno(), 1 << 20, 0).decode()
            expect("PyTorch's operators alone" not in log, f"the kernels of training steps were not compiled: {log}")
            if not daemon.json("dataset", "list").get("datasets"):
                daemon.client("dataset", "import", "zinc", arguments.zinc)
            return daemon

        chosen = [name for name in TRIALS if name in wanted]
        if chosen:
            with start("state") as daemon, watched(daemon):
                for name in chosen:
                    TRIALS[name](daemon, gpu, arguments.steps)
            check_notes(gpu)
        if "kill" in wanted:
            kill(lambda: start("killed"), gpu)
            check_notes(gpu)
        if "features" in wanted:
            features(functools.partial(start, "features"), gpu, root)
            check_notes(gpu)
        if "workspaces" in wanted:
            workspaces(functools.partial(start, "workspaces"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
