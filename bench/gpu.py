"""Shows that training on a GPU is right, and measures a step beside PyG's ways to train the same module.

The most important parts come first, so that a run that ends early has them:

  self-test      `permafrostd --self-test-device`: every step compared with the CPU's, under each cache policy
  conformance    device_test on the device, if it is in the bundle or in the build folder
  losses         equal jobs on the device and on the CPU: losses by epoch, and captures after the first step
  memory         --memory-steps of one job: bytes and entries in the last third of its steps beside the second
  zinc-gine-64, zinc-gine-256, sage
                 the workloads of `bench/run compare`, in interleaved rounds of --seconds a side: Permafrost's job, and PyG with its batches on the
                 device, in a hand-made CUDA graph, and under torch.compile(mode="reduce-overhead"). In sage PyG's features lie on the device, or
                 pinned on the host. After the rounds the profiler sums the kernels of a step

The Python that runs this is PyG's side, and the programs of a bundle load its torch. The result is in TO/result.json, which is complete after each
round: a run that is cut short keeps its results, and says "complete": false. A part or side that fails is named with the reason, and the others go
on. --device cpu rehearses everything without a GPU.
"""

import argparse
import contextlib
import importlib.util
import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from bench import gpu_parts, gpu_rounds, gpu_show, tools, workloads
from bench.gpu_run import OverTime, Run

NAME = "gpu"
MEASURES = "training on a GPU beside the CPU and PyG: losses, captures, memory, steps, kernels"
NEEDS = "a CUDA build of torch, PyG and a bundle of bench/gpu-bundle; --device cpu rehearses it without"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy", "torch", "torch_geometric", "safetensors"]
WORKLOADS = ("zinc-gine-64", "zinc-gine-256", "sage")
PARTS = {"self-test": gpu_parts.self_test, "conformance": gpu_parts.conformance, "losses": gpu_parts.losses, "memory": gpu_parts.memory,
         **{name: gpu_rounds.measure(workloads.WORKLOADS[name]) for name in WORKLOADS}}
FACTS_SECONDS = 90


def device_of(text):
    if not re.fullmatch(r"cpu|cuda(:\d+)?", text):
        raise SystemExit(f"bench: gpu: --device {text}: accepted: cpu, cuda, cuda:N for the card N, from 0")
    return text


def positive(flag):
    """Makes an argparse type for the named flag that takes seconds above 0."""

    def parse(text):
        with contextlib.suppress(ValueError):
            if 0 < (value := float(text)) < math.inf:
                return value
        raise SystemExit(f"bench: gpu: {flag} {text}: accepted: seconds above 0")

    return parse


def programs_of_bundle(text):
    """Returns the folder of programs in the unpacked bundle that --bundle names."""
    folder = tools.path(text) / "bin"
    if not folder.is_dir():
        raise SystemExit(f"bench: gpu: --bundle {text}: has no folder bin; accepted: what bench/gpu-bundle wrote")
    return folder


def add_arguments(parser):
    parser.add_argument("--device", type=device_of, default="cuda", help="that trains: cuda, cuda:N, or cpu, which rehearses (default cuda)")
    parser.add_argument("--bundle", type=programs_of_bundle, dest="bin_dir", default=argparse.SUPPRESS, metavar="DIR",
                        help="programs are those of this folder, which bench/gpu-bundle made")
    parser.add_argument("--budget", type=positive("--budget"), default=300, metavar="SECONDS", help="of the whole run; parts that do not fit are left out (default 300)")
    parser.add_argument("--to", type=tools.path, metavar="DIR", help="where result.json is written (default: gpu in the work folder)")
    parser.add_argument("--parts", type=tools.names_of(NAME, "--parts", PARTS), default=",".join(PARTS), help="default: %(default)s")
    parser.add_argument("--sides", type=tools.names_of(NAME, "--sides", gpu_rounds.SIDES), default=",".join(gpu_rounds.SIDES), help="default: %(default)s")
    parser.add_argument("--seconds", type=positive("--seconds"), default=1, help="of each turn (default 1)")
    parser.add_argument("--compiler", choices=("inductor", "aot_eager"), default="inductor", help="torch.compile's backend; aot_eager rehearses (default inductor)")
    parser.add_argument("--sample", type=tools.path, default=tools.SAMPLE, help="folder of the zinc workloads (default: deploy/sample/zinc)")
    tools.add_numbers(parser, rounds=9, epochs=6, self_test_steps=200, memory_steps=10_000, nodes=200_000, edges=2_000_000, features=100)


def facts(run):
    """Returns the device's facts, as torch and the driver report them, or why they are unknown."""
    device = run.arguments.device
    try:
        with run.limit(FACTS_SECONDS, "asking torch for the device"):
            code, lines = printed(sys.executable, "-m", "bench.device_facts", device)
    except OverTime as error:
        code, lines = 1, [str(error)]
    return json.loads(lines[-1]) if code == 0 else {"device": device, "failed": lines[-1][:500]}


def printed(*command):
    """Runs a program. Returns its exit code and the lines that it printed, or those of its standard error if it failed."""
    done = subprocess.run(command, cwd=tools.ROOT, capture_output=True, text=True)
    return done.returncode, ((done.stderr if done.returncode else done.stdout).strip() or "no reason given").splitlines()


def complete(part):
    """Returns whether everything was measured that the device supports."""
    return not {"failed", "left_out"} & part.keys() and not part.get("sides_failed") and part.get("rounds") != 0


def measure(arguments, tools_):
    to = arguments.to or tools_.work / "gpu"
    # Makes a bundle's programs load the torch of PyG's Python.
    os.environ.setdefault("PERMAFROST_TORCH_LIB", str(pathlib.Path(importlib.util.find_spec("torch").origin).with_name("lib")))
    with tempfile.TemporaryDirectory(dir=tools_.work) as scratch:
        run = Run(arguments, tools_, pathlib.Path(scratch), to)
        run.result |= {"permafrost": printed(tools_.bin_dir / "permafrostd", "--version")[1][-1], "device": facts(run), "budget": arguments.budget}
        run.save()
        for name in (name for name in PARTS if name in arguments.parts):
            run.part(name, PARTS[name])
        run.result["complete"] = all(complete(part) for part in run.result["parts"].values())
        run.save()
    print(f"bench: gpu: {run.file}", file=sys.stderr)
    return run.result


def show(result):
    return gpu_show.text(result)
