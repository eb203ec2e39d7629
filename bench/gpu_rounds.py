"""One workload of `bench/run gpu`: Permafrost's job beside PyG's ways to train the same module, in interleaved rounds.

A side that cannot start, or fails in a round, is named with the reason; the others go on. After each round the result on disk holds
all rounds so far."""

import contextlib
import dataclasses
import json
import statistics
import subprocess
import sys

from bench import kernel_times, tools, workloads
from bench.compare_sides import Job, Pyg
from bench.gpu_run import LeftOut, reason
from bench.rounds import interleave, ratio

SIDES = {"permafrost": "Permafrost", "pyg": "PyG, eager", "pyg-graph": "PyG in a CUDA graph", "pyg-reduce-overhead": "PyG, reduce-overhead",
         "pyg-device": "PyG, features on the device", "pyg-pinned": "PyG, features pinned"}
# The sides of each kind of workload. The quickest to prepare come first.
SIDES_OF = {"graphs": ("permafrost", "pyg", "pyg-graph", "pyg-reduce-overhead"), "sampled": ("permafrost", "pyg-device", "pyg-pinned")}
# A side that overruns its turn by this many seconds counts as hung.
GRACE_SECONDS = 20
PREPARE_SECONDS = 180
PROFILED_STEPS = 50
NEEDS_GPU = {"pyg-graph": "not on this device: CUDA graphs are a GPU's"}


class Peer(Pyg):
    """A process of `bench.peer_gpu`. It is killed at the end, because it cannot read a command while its compiler works."""

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def start(self):
        """Loads and warms up. Returns itself, and the facts that it reports."""
        self.load()
        return self, self.prepare()


class Contest:
    """Owns the data, the processes and the rounds of one workload, and fills in `part` of the result."""

    def __init__(self, workload, run, part):
        self.workload, self.run, self.part, self.arguments = workload, run, part, run.arguments
        named = [name for name in SIDES_OF[workload.kind] if name in self.arguments.sides]
        left_out = {} if run.on_gpu else {name: why for name, why in NEEDS_GPU.items() if name in named}
        self.names = [name for name in named if name not in left_out]
        self.scratch = run.scratch / workload.name
        self.scratch.mkdir()
        self.sides, self.milliseconds, self.weights = {}, {}, self.scratch / "weights.safetensors"
        # The peers' file of tensors. Workloads of one kind and batch size share one file.
        self.data = run.scratch / f"{workload.kind}-{workload.batch_size}.pt"
        part |= {"title": workload.title, "seconds_a_turn": self.arguments.seconds, "rounds": 0, "sides": {}, "ratios": {}, "sides_left_out": left_out, "sides_failed": {}}

    def _write_data(self, folder):
        w = self.workload
        if not self.data.exists():
            settings = json.dumps({"batch_size": w.batch_size, "fan_outs": w.fan_outs})
            subprocess.run([sys.executable, "-m", "bench.peer_data", w.kind, folder, self.data, settings], cwd=tools.ROOT, check=True)

    def _write_weights(self, folder):
        """Writes the weights from which the peers' module is made. A job on the CPU trains them, since one on the device may fail."""
        short = dataclasses.replace(self.workload, epochs=1)
        with self.run.daemon(folder, f"{self.workload.name}/weights", "cpu") as daemon:
            daemon.train("weights", "--dataset", "set", *short.job_flags())
            daemon.client("job", "export", "weights", "--artifact", "last-weights", "--to", self.weights)

    def _start_ours(self, stack, folder):
        daemon = stack.enter_context(self.run.daemon(folder, f"{self.workload.name}/state", self.arguments.device))
        job = stack.enter_context(Job(daemon, self.workload.job_flags()))
        job.warm_up(PREPARE_SECONDS, lambda _: None)
        facts = job.facts()
        job.pause()
        return job, facts

    def _start_peers(self, stack):
        """Starts the peers' processes. They import torch and PyG while the data are made, and read no file before the command to load."""
        w, a, threads = self.workload, self.arguments, self.run.tools.threads
        common = {"kind": w.kind, "data": str(self.data), "weights": str(self.weights), "loss": w.loss, "batch_size": w.batch_size,
                  "fan_outs": w.fan_outs, "threads": threads, "compiler": a.compiler, "device": a.device}
        return {name: stack.enter_context(Peer(sys.executable, common | {"side": name}, threads, self.scratch, "bench.peer_gpu", threads))
                for name in self.names if name != "permafrost"}

    def _seconds_of_rounds(self):
        """Estimates the seconds of all rounds with all planned sides."""
        return (1 + self.arguments.rounds) * len(self.names) * (self.arguments.seconds + 0.2)

    def _prepare(self, stack, folder, peers):
        for name in self.names:
            self.run.say(f"{self.workload.name}: {SIDES[name]} warms up")
            if spent := self.run.spent():
                self.part["sides_left_out"][name] = spent
                continue
            try:
                self._prepare_side(stack, name, folder, peers.get(name))
            except Exception as error:
                self.part["sides_failed"][name] = reason(error)
            self.run.save()

    def _prepare_side(self, stack, name, folder, peer):
        # Leaves enough time for the rounds.
        seconds = min(PREPARE_SECONDS, max(GRACE_SECONDS, self.run.left() - self._seconds_of_rounds()))
        # Ends a side at once if it fails to start.
        with contextlib.ExitStack() as own:
            with self.run.limit(seconds, f"preparing {SIDES[name]}"):
                side, facts = self._start_ours(own, folder) if peer is None else own.enter_context(peer).start()
            self._check(name, facts)
            stack.push(own.pop_all())
        self.sides[name], self.part["sides"][name] = side, {"prepared": facts}

    def _check(self, name, facts):
        """Refuses a side whose model has another number of parameters than the others'."""
        for other, of_other in ((n, s["prepared"]) for n, s in self.part["sides"].items()):
            if facts["parameters"] != of_other["parameters"]:
                raise RuntimeError(f"{name} trains {facts['parameters']} parameters, {other} {of_other['parameters']}")

    def _turn(self, name):
        def turn(number):
            if name in self.part["sides_failed"]:
                return None
            try:
                with self.run.limit(self.arguments.seconds + GRACE_SECONDS, f"a turn of {SIDES[name]}"):
                    return self.sides[name].turn(self.arguments.seconds)
            except Exception as error:
                self.part["sides_failed"][name] = f"in round {number}: {reason(error)}"
                # From now on, a failed side must take no time from the others' turns.
                if name == "permafrost":
                    self.sides[name].pause()
                else:
                    self.sides[name].process.kill()
                return None

        return turn

    def _keep(self, turns):
        """Writes the result of the rounds so far. Returns whether there is time for another round."""
        part = self.part
        part["rounds"] = max(map(len, turns.values()))
        for name, found in turns.items():
            found = [answer for answer in found if answer is not None]
            if not found:
                continue
            self.milliseconds[name] = [1e3 * answer["seconds"] / answer["steps"] for answer in found]
            part["sides"][name] |= {"ms_per_step": statistics.median(self.milliseconds[name]), "ms_by_round": self.milliseconds[name],
                                    "counted_per_second": statistics.median(answer["counted"] / answer["seconds"] for answer in found),
                                    "host_bytes": found[-1]["rss"], "device_bytes": found[-1].get("device_bytes")}
        ours = self.milliseconds.get("permafrost", [])
        for name, theirs in self.milliseconds.items():
            both = min(len(ours), len(theirs))
            if name != "permafrost" and both:
                part["ratios"][name] = ratio(theirs[:both], ours[:both])
        self.run.save()
        return self.run.left() > self._seconds_of_rounds() / (1 + self.arguments.rounds)

    def _inside(self):
        """Measures the kernels of a step on each side."""
        for name in [name for name in self.sides if name not in self.part["sides_failed"]]:
            ask = self._own_kernels if name == "permafrost" else lambda name=name: self.sides[name].ask(f"kernels {PROFILED_STEPS}")
            try:
                with self.run.limit(GRACE_SECONDS, f"the profile of {SIDES[name]}"):
                    self.part["sides"][name]["inside"] = ask()
            except LeftOut as why:
                self.part["sides"][name]["inside"] = {"left_out": str(why)}
            except Exception as error:
                self.part["sides"][name]["inside"] = {"failed": reason(error)}
            self.run.save()

    def _own_kernels(self):
        """Trains the job again in a daemon whose kernels CUPTI times (kernel_times.py)."""
        if not self.run.on_gpu:
            raise LeftOut("not on this device: kernels are a GPU's")
        times = kernel_times.Times(self.run.tools.bin_dir, self.scratch)
        with self.run.daemon(self.folder, f"{self.workload.name}/kernels", self.arguments.device, environment=times.environment()) as daemon:
            with Job(daemon, self.workload.job_flags()) as job:
                job.warm_up(GRACE_SECONDS, lambda _: None)
                return times.of_steps(self.arguments.seconds)

    def measure(self):
        with contextlib.ExitStack() as stack:
            peers = self._start_peers(stack)
            with self.run.limit(PREPARE_SECONDS, "making the data"):
                self.folder = folder = workloads.folder(self.workload, self.arguments, self.run.tools, sys.executable)
                self._write_data(folder)
                self._write_weights(folder)
            self._prepare(stack, folder, peers)
            if not self.sides:
                raise RuntimeError("no side could be prepared")
            self.run.say(f"{self.workload.name}: {self.arguments.rounds} rounds of {', '.join(self.sides)}")
            interleave({name: self._turn(name) for name in self.sides}, self.arguments.rounds, after=self._keep)
            if not self.milliseconds:
                raise RuntimeError("no side had a turn")
            self._inside()


def measure(workload):
    """Makes the part of the run that measures one workload."""
    return lambda run, part: Contest(workload, run, part).measure()
