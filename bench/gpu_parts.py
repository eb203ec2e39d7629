"""The parts of `bench/run gpu` that show that training on the device is right: self-test, conformance, losses, memory."""

import json
import math
import re
import statistics
import time

from bench.policies import sample

# The most seconds of each part. The budget may end a part earlier.
SELF_TEST_SECONDS, CONFORMANCE_SECONDS, LOSSES_SECONDS, MEMORY_SECONDS = 120, 60, 200, 100
# The self-test prints this if the GPU's kernels cannot be compiled.
WITHOUT_KERNELS = "steps use PyTorch's operators alone"
# The largest accepted difference between an epoch's loss and the mean of the CPU's losses, relative to that mean.
LOSSES_WITHIN = 0.01
# The lowerings. The CPU trains once with each, and rounding alone sets their losses apart by a percent or two.
LOWERINGS = ("auto", "plain", "shape-free")
MEMORY_POLL_SECONDS = 0.05
MODEL = ("--architecture", "gine", "--hidden", 64, "--layers", 4, "--batch-size", 32, "--seed", 1)


def self_test(run, part):
    a = run.arguments
    code = run.program(part, SELF_TEST_SECONDS, "the self-test", run.tools.bin_dir / "permafrostd", "--self-test-device", a.device, "--self-test-steps",
                       a.self_test_steps, "--self-test-data", a.sample, "--threads", run.tools.threads)
    kernels = not any(WITHOUT_KERNELS in line for line in part["lines"])
    part |= {"passed": code == 0 and kernels, "exit_code": code, "steps": a.self_test_steps, "kernels_compiled": kernels}


def conformance(run, part):
    """Runs the device's conformance tests with the device_test of a bundle, or of a build folder that has tests."""
    bin_dir = run.tools.bin_dir
    program = next((path for path in (bin_dir / "device_test", bin_dir.parent / "tests" / "device_test") if path.exists()), None)
    if program is None:
        part["left_out"] = f"there is no device_test in {bin_dir}; the target device_test makes it"
        return
    report = run.scratch / "conformance.json"
    kind = run.arguments.device.partition(":")[0]
    code = run.program(part, CONFORMANCE_SECONDS, "conformance", program, f"--gtest_filter=*Conformance*/{kind}", f"--gtest_output=json:{report}",
                       "--gtest_brief=1")
    part |= {"exit_code": code, **tests_of(json.loads(report.read_text()))}
    part["passed"] = code == 0 and part["run"] > 0 and part["skipped"] == 0


def tests_of(report):
    """Counts the tests that ran and those that were skipped in GoogleTest's JSON report, and names those that failed."""
    tests = [test for suite in report.get("testsuites", []) for test in suite["testsuite"]]
    skipped = [test for test in tests if test["result"] == "SKIPPED"]
    return {"run": len(tests) - len(skipped), "skipped": len(skipped), "failures": [test["name"] for test in tests if test.get("failures")]}


def trained(run, device, state, *flags):
    """Trains a job of --epochs on `device`. Returns its losses by epoch, its captures before and after the first step, and how its steps were
    served."""
    with run.daemon(run.arguments.sample, state, device) as daemon:
        job = daemon.train("losses", "--dataset", "set", *MODEL, "--epochs", run.arguments.epochs, *flags)
        cache, log = daemon.json("cache", "show", "losses"), daemon.client("job", "logs", "losses")
    both = lambda field: sum(int(mode.get(field, 0)) for mode in cache["statistics"])
    before = re.search(r"graph cache warmed up before step 1: (\d+) captures", log)
    before = int(before.group(1)) if before else 0
    return {"train_loss": [epoch["trainLoss"] for epoch in job["epochs"]], "valid_metric": [epoch["validMetric"] for epoch in job["epochs"]],
            "train_seconds": [epoch["trainSeconds"] for epoch in job["epochs"]], "steps": int(job["progress"]["step"]),
            "captures_before_step_1": before, "captures_after_step_1": both("captures") - before, "entries": both("entries"),
            "eager_steps": both("eagerSteps"), "audits": both("audits"), "audit_failures": both("auditFailures"),
            "graph_breaks": len(cache.get("graphBreaks", []))}


def losses(run, part):
    """Trains equal jobs on the device and on the CPU. Two jobs on the device must have the same losses, to the bit."""
    with run.limit(LOSSES_SECONDS, "the jobs whose losses are compared"):
        part["device"] = trained(run, run.arguments.device, "losses-device")
        part["repeats"] = trained(run, run.arguments.device, "losses-again")["train_loss"] == part["device"]["train_loss"]
        run.save()
        part["cpu"] = {name: trained(run, "cpu", f"losses-{name}", "--lowering", name)["train_loss"] for name in LOWERINGS}
    epochs = list(zip(*part["cpu"].values()))
    part["cpu_spread"] = max((max(of_epoch) - min(of_epoch)) / statistics.mean(of_epoch) for of_epoch in epochs)
    part["apart"] = [abs(ours / statistics.mean(cpu) - 1) for ours, cpu in zip(part["device"]["train_loss"], epochs)]
    part["largest"] = max(part["apart"])
    part["passed"] = part["largest"] <= LOSSES_WITHIN and part["repeats"] and part["device"]["captures_after_step_1"] == 0


def memory_of(page):
    """Picks the figures that must not grow from a page of /metrics. The device's bytes are absent if the device does not report them."""
    device = {f"device_{kind}": page[f'permafrost_device_memory_bytes{{kind="{kind}"}}'] for kind in ("allocated", "reserved", "driver")
              if f'permafrost_device_memory_bytes{{kind="{kind}"}}' in page}
    found = sample(page)
    return {"step": found["step"], "rss": found["rss"], "entries": found["entries"], "captures": found["captures"], "cache": found["cache_bytes"], **device}


def grown(samples, steps):
    """Returns, for each figure, its highest value in the second and in the last third of the steps. The first third warms up."""
    between = lambda low, high: [s for s in samples if low * steps <= s["step"] <= high * steps]
    middle, last = between(1 / 3, 2 / 3), between(2 / 3, math.inf)
    if not middle or not last:
        return {}
    told = [name for name in last[-1] if name != "step" and all(name in s for s in (*middle, *last))]
    return {name: [max(s[name] for s in middle), max(s[name] for s in last)] for name in told}


def memory(run, part):
    """Reads memory and entries while a job trains for --memory-steps."""
    a, samples = run.arguments, []
    part |= {"steps": a.memory_steps, "samples": samples}
    try:
        with run.limit(MEMORY_SECONDS, f"{a.memory_steps:,} steps"), run.daemon(a.sample, "memory", a.device) as daemon:
            graphs = int(daemon.json("dataset", "show", "set")["graphSet"]["train"]["numGraphs"])
            # The job has twice as many steps, so that it still trains at the last reading. It ends with the daemon.
            daemon.client("job", "submit", "--id", "memory", "--dataset", "set", *MODEL, "--epochs", math.ceil(2 * a.memory_steps / math.ceil(graphs / 32)))
            while not samples or samples[-1]["step"] < a.memory_steps:
                page = daemon.metrics()
                if page['permafrost_jobs{state="failed"}'] > 0:
                    raise RuntimeError(f"the job failed: {daemon.json('job', 'show', 'memory').get('error')}")
                if page["permafrost_train_steps_total"] > 0:
                    samples.append(memory_of(page))
                time.sleep(MEMORY_POLL_SECONDS)
    finally:
        part["grown"] = grown(samples, a.memory_steps)
    part["passed"] = flat(part["grown"])


def flat(grown_):
    """Returns whether no bounded figure grew, or None if there were too few readings. Two figures are in the result but not judged: bytes of live
    tensors, which change within a step, and the process's own memory, which the system manages."""
    judged = [name for name in grown_ if name in ("entries", "captures", "cache", "device_reserved")]
    return all(grown_[name][1] <= grown_[name][0] for name in judged) if judged else None
