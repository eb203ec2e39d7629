"""Provides what every trial needs: the contract's stubs, the real daemon under faults, and a small dataset."""

import contextlib
import functools
import importlib
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import google.api.field_behavior_pb2
import grpc
from grpc_tools import protoc

ROOT = pathlib.Path(__file__).resolve().parents[2]
ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")
# Epochs of a job that must not end before something happens to it, however long a trial waits for its turn.
LONG = 300


class NotRun(Exception):
    """The trial cannot run on this machine; the message says why."""


class Contract:
    """The modules generated from proto/. Gives what is in `permafrost.v1`, by name."""

    def __init__(self):
        folder = tempfile.mkdtemp(prefix="permafrost-stubs-")
        # The folder of google/api and google/rpc, from the package googleapis-common-protos.
        common = pathlib.Path(google.api.field_behavior_pb2.__file__).parents[2]
        protos = sorted(str(path) for path in (ROOT / "proto").rglob("*.proto"))
        own = pathlib.Path(importlib.import_module("grpc_tools").__file__).parent / "_proto"
        if protoc.main(["protoc", f"-I{ROOT / 'proto'}", f"-I{common}", f"-I{own}", f"--python_out={folder}", f"--grpc_python_out={folder}",
                        *protos]) != 0:
            raise RuntimeError("protoc failed")
        # Makes regular packages, since the client's packages of the same names would hide namespace packages.
        for package in ("permafrost", "permafrost/v1"):
            (pathlib.Path(folder) / package / "__init__.py").touch()
        sys.path.insert(0, folder)
        importlib.invalidate_caches()
        self.modules = []
        for path in protos:
            name = pathlib.Path(path).relative_to(ROOT / "proto").with_suffix("").as_posix().replace("/", ".")
            self.modules += [importlib.import_module(f"{name}_pb2"), importlib.import_module(f"{name}_pb2_grpc")]

    def __getattr__(self, name):
        for module in self.modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(name)


@functools.cache
def contract():
    return Contract()


class Server:
    """permafrostd on one state directory, which a trial may start and kill repeatedly."""

    def __init__(self, bin_dir, folder, *flags):
        self.bin_dir = pathlib.Path(bin_dir).resolve()
        self.folder = pathlib.Path(folder)
        self.state_dir = self.folder / "state"
        self.import_root = self.folder / "root"
        self.import_root.mkdir(parents=True, exist_ok=True)
        self.flags = flags
        self.log_path = self.folder / "stderr"
        self.process = None
        self.channel = None

    def launch(self, faults=(), prepare=None):
        """Starts the daemon with the rules of faults.cc. Call `await_ready` next."""
        environment = dict(os.environ)
        if faults:
            environment.update(LD_PRELOAD=str(self.bin_dir / "libtorture_faults.so"), PERMAFROST_FAULTS=";".join(faults),
                               PERMAFROST_FAULTS_LOG=str(self.folder / "faults"), PERMAFROST_STALL_FILE=str(self.folder / "stall"))
        with open(self.log_path, "a") as log:
            usual = {"--listen": "127.0.0.1:0", "--metrics": "127.0.0.1:0", "--threads": "2"}
            others = [part for flag, value in usual.items() if flag not in self.flags for part in (flag, value)]
            self.process = subprocess.Popen(
                [self.bin_dir / "permafrostd", *others, "--state-dir", self.state_dir, "--import-root", self.import_root,
                 "--device", "cpu", *self.flags],
                stdout=subprocess.PIPE, stderr=log, text=True, env=environment, preexec_fn=prepare)

    def await_ready(self, target=None):
        """Waits until the daemon is ready. Returns False if it ended before. target: the address of its gRPC, if it is not the one that it
        reports."""
        ready = re.search(r"grpc (\S+), metrics (\S+), ", self.process.stdout.readline())
        if ready is None:
            self.process.wait()
            return False
        told, self.metrics_url = ready.groups()
        target = target or told
        self.channel = grpc.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)])
        self.target = target
        made = contract()
        self.jobs = made.JobServiceStub(self.channel)
        self.datasets = made.DatasetServiceStub(self.channel)
        self.caches = made.GraphCacheServiceStub(self.channel)
        self.server = made.ServerServiceStub(self.channel)
        return True

    def start(self, faults=(), prepare=None):
        self.launch(faults, prepare)
        if not self.await_ready():
            raise RuntimeError(f"permafrostd did not start: {self.log()[-2000:]}")
        return self

    def log(self):
        return self.log_path.read_text()

    def running(self):
        return self.process is not None and self.process.poll() is None

    def close(self):
        if self.channel is not None:
            self.channel.close()
            self.channel = None

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(timeout=60)
        self.close()

    def stop(self, limit=60):
        """Sends SIGTERM, and returns the exit code."""
        self.process.send_signal(signal.SIGTERM)
        code = self.process.wait(timeout=limit)
        self.close()
        return code

    def metrics(self):
        with urllib.request.urlopen(self.metrics_url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def resident_bytes(self):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) * 1024

    # Calls have deadlines, so that no trial waits forever.

    def import_dataset(self, name, source, limit=60):
        made = contract()
        self.datasets.ImportDataset(made.ImportDatasetRequest(dataset_id=name, options=made.ImportOptions(source_path=str(source))), timeout=30)
        return self.await_dataset(name, limit)

    def await_dataset(self, name, limit=60):
        made = contract()
        return until(limit, f"dataset {name}", lambda: ready_or_failed(
            self.datasets.GetDataset(made.GetDatasetRequest(name=f"datasets/{name}"), timeout=30)))

    def get(self, job):
        return self.jobs.GetJob(contract().GetJobRequest(name=f"jobs/{job}"), timeout=30)

    def await_end(self, job, limit=120):
        def ended():
            seen = self.get(job)
            return seen if state_of(seen) in ENDED else None

        return until(limit, f"the end of job {job}", ended)

    def log_of(self, job):
        stream = self.jobs.StreamJobLogs(contract().StreamJobLogsRequest(name=f"jobs/{job}"), timeout=30)
        return b"".join(piece.data for piece in stream).decode()

    def list_jobs(self):
        made = contract()
        jobs, token = [], ""
        while True:
            page = self.jobs.ListJobs(made.ListJobsRequest(page_size=1000, page_token=token), timeout=30)
            jobs += page.jobs
            token = page.next_page_token
            if not token:
                return jobs


def ready_or_failed(dataset):
    state = dataset.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[dataset.state].name.removeprefix("STATE_")
    return dataset if state in ("READY", "FAILED") else None


def state_of(job):
    return job.DESCRIPTOR.fields_by_name["state"].enum_type.values_by_number[job.state].name.removeprefix("STATE_")


def until(limit, what, ask):
    """Calls `ask` until its result is true, and returns it. Errors: RuntimeError after `limit` seconds."""
    end = time.monotonic() + limit
    while True:
        answer = ask()
        if answer:
            return answer
        if time.monotonic() > end:
            raise RuntimeError(f"waited {limit} s for {what}")
        time.sleep(0.02)


def write_set(folder, graphs=64, seed=0, nodes=10, spread=5, links=(1, 1)):
    """Writes small graphs of two classes as a TUDataset, `folder`/SET_*.txt.

    nodes, spread: a graph has `nodes` nodes or up to `spread` - 1 more.
    links: the fewest and the most links that each node of one graph draws. A wider range gives more distinct shapes.
    """
    folder.mkdir(parents=True, exist_ok=True)
    draw = random.Random(seed)
    edges, indicator, labels, node_labels = [], [], [], []
    first = 1
    for graph in range(graphs):
        size = nodes + draw.randrange(spread)
        # Draws nothing if there is no choice, so that the other draws of the seed do not depend on `links`.
        each = draw.randint(*links) if links[0] < links[1] else links[0]
        labels.append(graph % 2)
        for node in range(size):
            indicator.append(graph + 1)
            node_labels.append(draw.randrange(3))
            for _ in range(each):
                other = draw.randrange(size)
                if other != node:
                    edges += [(first + node, first + other), (first + other, first + node)]
        first += size
    edges = sorted(set(edges))
    (folder / "SET_A.txt").write_text("".join(f"{a}, {b}\n" for a, b in edges))
    for name, values in (("graph_indicator", indicator), ("graph_labels", labels), ("node_labels", node_labels)):
        (folder / f"SET_{name}.txt").write_text("".join(f"{value}\n" for value in values))
    return folder


def job_spec(dataset="set", epochs=4, seed=1, every_steps=5, **fields):
    """Returns a job that trains `dataset` in a second or two."""
    made = contract()
    spec = made.JobSpec(dataset=f"datasets/{dataset}", epochs=epochs, batch_size=8, seed=seed, loss=made.JobSpec.LOSS_CROSS_ENTROPY, **fields)
    spec.model.architecture = made.ModelSpec.ARCHITECTURE_GIN
    spec.model.hidden_channels = 8
    spec.model.num_layers = 2
    spec.checkpoint.every_steps = every_steps
    return spec


def losses(job):
    return [(epoch.train_loss, epoch.valid_loss) for epoch in job.epochs]


@contextlib.contextmanager
def folder_of(name):
    """Yields a folder that is removed if the trial succeeds, and kept for inspection if it fails."""
    folder = pathlib.Path(tempfile.mkdtemp(prefix=f"permafrost-{name}-"))
    try:
        yield folder
    except BaseException:
        print(f"  what is left of it: {folder}", flush=True)
        raise
    subprocess.run(["rm", "-rf", folder], check=True)
