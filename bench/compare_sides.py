"""The two kinds of side of `compare`: a job of the daemon, and PyG in a process of its own. A turn of a given number of seconds returns
{steps, counted (graphs or seed nodes), seconds, compile_seconds (so far), rss, peak}; `seconds` excludes compilation."""

import json
import re
import signal
import statistics
import time

from bench import tools
from bench.peer_graphzero import Program
from bench.process_memory import memory

# If Permafrost's cache never freezes, its warm-up ends after this many seconds without a capture.
QUIET_SECONDS = 3
# Seconds between two readings of /metrics while the end of a step is awaited.
POLL_SECONDS = 0.002


class Job:
    """A job that goes on through all rounds. SIGSTOP stops its daemon during the turns of other sides.

    A turn runs from the end of one step to the end of another, by this process's clock. It includes batching, the cache, checkpoints and
    all other work of the daemon. Captures and evaluations that ended in the turn are subtracted, as the daemon reports both."""

    def __init__(self, daemon, flags):
        self.daemon, self.between = daemon, []
        daemon.client("job", "submit", "--id", "compare", "--dataset", "set", *flags)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # A stopped process would not receive the signal to end.
        self.go_on()

    def _look(self):
        page = self.daemon.metrics()
        if tools.unended_jobs(page) == 0:
            job = self.daemon.json("job", "show", "compare")
            raise RuntimeError(f"Permafrost's job ended before the rounds did, as {job['state']}: {job.get('error')}")
        captures = lambda what, modes: sum(page[f'permafrost_graph_cache_{what}_total{{mode="{mode}"}}'] for mode in modes)
        return {"time": time.perf_counter(), "steps": page["permafrost_train_steps_total"], "counted": page["permafrost_train_graphs_total"],
                "epoch": page.get("permafrost_train_epoch", 0), "frozen": page.get("permafrost_graph_cache_frozen") == 1,
                "captures": captures("captures", ("train", "eval")), "train_capture_seconds": captures("capture_seconds", ("train",)),
                "capture_seconds": captures("capture_seconds", ("train", "eval")),
                "executables": sum(page.get(f'permafrost_graph_cache_entries{{mode="{mode}"}}', 0) for mode in ("train", "eval")),
                "checkpoints": page["permafrost_checkpoint_seconds_count"],
                "device_bytes": page.get('permafrost_device_memory_bytes{kind="reserved"}')}

    def _after_steps(self, count):
        """Waits for `count` more steps, and returns the figures right after the last of them."""
        target = self._look()["steps"] + count
        while (seen := self._look())["steps"] < target:
            time.sleep(POLL_SECONDS)
        return seen

    def _epochs(self):
        return {int(e["epoch"]): e["validSeconds"] for e in self.daemon.json("job", "show", "compare").get("epochs", [])}

    def warm_up(self, limit, say):
        """Waits until an epoch is over, a checkpoint exists, and the cache is frozen or has captured nothing for QUIET_SECONDS."""
        begin = changed = time.perf_counter()
        captures = -1
        while time.perf_counter() - begin < limit:
            now = self._look()
            if now["captures"] != captures:
                captures, changed = now["captures"], now["time"]
            quiet = now["frozen"] or now["time"] - changed > QUIET_SECONDS
            if now["epoch"] > 1 and now["checkpoints"] > 0 and quiet:
                break
            say(f"Permafrost warms up: step {now['steps']:.0f}, {captures:.0f} executables captured")
            time.sleep(0.1)
        # The first epoch's time includes the capture of evaluation, so it counts only if there is no other.
        self.between = list(self._epochs().values())

    def facts(self):
        """Returns the numbers of parameters and of steps in an epoch. Call it after the warm-up."""
        log = self.daemon.client("job", "logs", "compare")
        parameters, steps = map(int, re.search(r"new run: (\d+) parameters, (\d+) steps an epoch", log).groups())
        return {"parameters": parameters, "steps_per_epoch": steps}

    def pause(self):
        self.daemon.process.send_signal(signal.SIGSTOP)

    def go_on(self):
        self.daemon.process.send_signal(signal.SIGCONT)

    def turn(self, seconds):
        self.go_on()
        # Skips the step in progress, since its time includes the stop.
        begin = self._after_steps(2)
        time.sleep(seconds)
        end = self._after_steps(1)
        rss, peak = memory(self.daemon.process.pid)
        evaluations = []
        if end["epoch"] > begin["epoch"]:
            epochs = self._epochs()
            evaluations = [epochs[n] for n in range(int(begin["epoch"]), int(end["epoch"]))]
        self.pause()
        self.between += evaluations
        since = lambda name: end[name] - begin[name]
        return {"steps": since("steps"), "counted": since("counted"), "compile_seconds": end["capture_seconds"], "rss": rss, "peak": peak,
                "seconds": since("time") - sum(evaluations) - since("train_capture_seconds"), "executables": end["executables"],
                "frozen": end["frozen"], "device_bytes": end["device_bytes"]}

    def evaluation_seconds(self):
        """Returns the median time of an evaluation. The first epoch counts only if there is no other."""
        return statistics.median(self.between[1:] or self.between) if self.between else None


class Pyg(Program):
    """PyG in a process of its own. `left_out` says why this side cannot run here, or is None if it can. module: the module that serves this
    side, with the commands of bench/peer_pyg.py."""

    def __init__(self, python, settings, threads, scratch, module="bench.peer_pyg", compile_threads=1):
        self.log = scratch / f"{settings['side']}.log"
        environment = {**tools.peer_environment(threads), "TORCHINDUCTOR_CACHE_DIR": str(scratch / f"{settings['side']}-inductor"),
                       "TORCHINDUCTOR_COMPILE_THREADS": str(compile_threads)}
        with open(self.log, "w") as log:
            super().__init__(python, "-m", module, json.dumps(settings), cwd=tools.ROOT, env=environment, stderr=log)
        self.left_out = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def ask(self, command):
        try:
            return super().ask(command)
        except (RuntimeError, BrokenPipeError) as error:
            tail = self.log.read_text().strip().splitlines()[-1:]
            raise RuntimeError("; ".join(["PyG: " + str(error).split(": ", 1)[-1], *tail])) from error

    def load(self):
        return self._unless_left_out("load")

    def prepare(self):
        """Warms up, and returns the facts of PyG and its module."""
        return self._unless_left_out("prepare")

    def _unless_left_out(self, command):
        answer = {} if self.left_out else self.ask(command)
        self.left_out = self.left_out or answer.get("left_out")
        return answer

    def turn(self, seconds):
        return self.ask(f"train {seconds}")
