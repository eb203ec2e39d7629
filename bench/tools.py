"""Provides what the benchmarks run on: the programs, which are built if they are missing, other packages, datasets, and the machine."""

import contextlib
import dataclasses
import importlib.util
import json
import os
import pathlib
import platform
import subprocess
import sys
import zlib

from tests.parity.daemon import Daemon

ROOT = pathlib.Path(__file__).resolve().parent.parent
SAMPLE = ROOT / "deploy" / "sample" / "zinc"
# The folder of programs in an unpacked bundle (bench/gpu-bundle). A repository has no such folder.
BUNDLED = ROOT / "bin"

# The environment of Permafrost's own programs. Their threads wait as in permafrostd, which sets this for itself. Peers keep their own
# defaults.
ENVIRONMENT = {"GOMP_SPINCOUNT": "1000", **os.environ}


def peer_environment(threads):
    """Returns the environment that a peer's users have, without the caller's settings of how long threads spin."""
    own = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    return {**own, "OMP_NUM_THREADS": str(threads)}


class Missing(Exception):
    """Something that a benchmark needs is not on this machine. The message has one line."""


def path(text):
    """Resolves a path against the folder of bench/run's caller."""
    return pathlib.Path(os.environ.get("PERMAFROST_CALLER_DIR", "."), text).resolve()


def names_of(benchmark, flag, known, or_none=False):
    """Returns an argparse type for a comma-separated list of names from `known`. Faults are reported before anything is built."""

    def parse(text):
        names = [] if or_none and text == "none" else text.split(",")
        if unknown := [name for name in names if name not in known]:
            raise SystemExit(f"bench: {benchmark}: {flag} {','.join(unknown)}: accepted: {', '.join([*known, *(['none'] if or_none else [])])}")
        return names

    return parse


def need_packages(names):
    for name in names:
        if importlib.util.find_spec(name) is None:
            raise Missing(f"the Python package {name} is not in {sys.executable}; to install it: deploy/install-deps --tests")


@dataclasses.dataclass
class Tools:
    """The programs and folders of a benchmark. bin_dir: the folder of the programs. work: the folder kept between runs, for graphs and
    imported stores."""

    bin_dir: pathlib.Path
    work: pathlib.Path
    threads: int

    def daemon(self, dataset, state_dir, *flags, **options):
        """Starts a daemon, and imports `dataset` into it as `set`."""
        return Daemon(self.bin_dir, state_dir, dataset, *flags, threads=self.threads, import_as="set", **options)

    def state(self, dataset):
        """Returns the state directory of a dataset. It is kept, so that the dataset is imported only once."""
        return self.work / f"state-{dataset.name}-{zlib.crc32(str(dataset).encode()):08x}"

    def store(self, dataset):
        """Returns the folder of the imported store of `dataset`."""
        with self.daemon(dataset, self.state(dataset)):
            return self.state(dataset) / "datasets" / "set"

    def program(self, name, *arguments):
        """Runs a program to its end, and returns the JSON that it prints."""
        command = [self.bin_dir / name, *map(str, arguments)]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT).stdout)

    def power_law_graph(self, arguments):
        """Returns the graph's folder: --dataset, or a graph that is made here the first time."""
        if arguments.dataset:
            return arguments.dataset
        need_packages(["numpy"])
        from bench import power_law

        folder = self.work / f"power-law-{arguments.nodes}-{arguments.edges}-{arguments.features}"
        if not folder.exists():
            print(f"bench: making {folder}", file=sys.stderr)
            half = folder.with_name(folder.name + ".half")
            power_law.write(half, arguments.nodes, arguments.edges, arguments.features)
            half.rename(folder)
        return folder


def add_graph_arguments(parser, features=100):
    parser.add_argument("--dataset", type=path, help="folder of one large graph (default: a power-law graph is made)")
    for flag, value in (("--nodes", 1_000_000), ("--edges", 10_000_000), ("--features", features)):
        parser.add_argument(flag, type=int, default=value, help=f"of the graph that is made (default {value})")


def add_numbers(parser, **defaults):
    """Adds flags that take whole numbers. rounds=7 adds --rounds with the default 7."""
    for name, value in defaults.items():
        parser.add_argument("--" + name.replace("_", "-"), type=int, default=value, help=f"default {value}")


def add_fan_out(parser, default):
    parser.add_argument("--fan-out", default=default, help=f"neighbours drawn, hop by hop; a layer each (default {default})")


def sage_flags(arguments):
    """Returns the flags of a job that trains GraphSAGE on samples of the daemon's graph."""
    return ("--dataset", "set", "--architecture", "sage", "--fan-out", arguments.fan_out, "--layers", len(arguments.fan_out.split(",")),
            "--batch-size", arguments.batch_size)


def unended_jobs(page):
    """Counts the jobs on a page of /metrics that wait for the device or are on it."""
    ended = ("succeeded", "failed", "cancelled")
    return sum(count for series, count in page.items()
               if series.startswith("permafrost_jobs{state=") and not any(f'"{state}"' in series for state in ended))


def build(build_dir, programs):
    """Builds the programs that are missing or outdated in `build_dir`, and returns their folder."""
    if not (ROOT / ".deps" / "cmake-args").exists():
        raise Missing("nothing to build with is installed yet: run deploy/install-deps --tests")
    flags = ["-DPERMAFROST_BENCH=ON"] + ([] if (build_dir / "CMakeCache.txt").exists() else ["-DPERMAFROST_TESTS=OFF", "-DPERMAFROST_UNITY=ON"])
    done = subprocess.run([ROOT / "deploy" / "build", build_dir, *flags, *programs], stdout=sys.stderr)
    if done.returncode != 0:
        raise SystemExit(f"bench: {' '.join(programs)} could not be built in {build_dir}")
    return build_dir / "bin"


def machine():
    """Describes the machine that the figures come from."""
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError):
        for line in open("/proc/cpuinfo"):
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {"cpu": model, "cores": os.cpu_count(), "memory_gib": round(memory / 2**30, 1), "system": f"{platform.system()} {platform.release()}"}
