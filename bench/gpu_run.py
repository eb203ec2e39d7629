"""The state that the parts of `bench/run gpu` share: the settings, the time that is left, and the result, which is complete on disk after each
step."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time

from bench import tools

# With fewer seconds left, nothing new is started.
LEAST_SECONDS = 5
# The number of lines of a program's output that the result keeps.
KEPT_LINES = 24


class LeftOut(Exception):
    """A part cannot be measured here. The message has one line."""


class OverTime(Exception):
    """A part took longer than it may. The message has one line."""


def reason(error):
    """Describes an error in one line."""
    if isinstance(error, subprocess.CalledProcessError):
        return f"{' '.join(map(str, error.cmd))[-300:]} ended with exit code {error.returncode}"
    lines = str(error).strip().splitlines() or [""]
    name = "" if isinstance(error, (OverTime, RuntimeError)) else f"{type(error).__name__}: "
    return f"{name}{lines[0]}"[:500]


class Run:
    """One run of the benchmark. scratch: a folder that is removed after the run. to: the folder of result.json.

    Threads: call it only from the main thread, since `limit` interrupts by a signal."""

    def __init__(self, arguments, tools_, scratch, to):
        self.arguments, self.tools, self.scratch = arguments, tools_, scratch
        self.end = time.monotonic() + arguments.budget
        self.file = to / "result.json"
        to.mkdir(parents=True, exist_ok=True)
        self.result = {"benchmark": "gpu", "threads": tools_.threads, "machine": tools.machine(), "complete": False, "device": {}, "parts": {}}

    @property
    def on_gpu(self):
        return self.arguments.device.startswith("cuda")

    def left(self):
        return self.end - time.monotonic()

    def spent(self):
        """Returns why nothing new may start, or None while time is left."""
        return f"the budget of {self.arguments.budget:g} s is used up" if self.left() < LEAST_SECONDS else None

    def say(self, text):
        print(f"bench: gpu: {text}; {max(0, self.left()):.0f} s left", file=sys.stderr, flush=True)

    @contextlib.contextmanager
    def limit(self, seconds, what):
        """Raises OverTime when the given seconds, or the whole budget, are over."""
        left = self.left()
        if left <= 0:
            raise OverTime(f"{what}: {self.spent()}")
        why = f"{what} took longer than {seconds:.0f} s" if seconds < left else f"{what} took longer than the {left:.0f} s that the budget left"

        def stop(*_):
            raise OverTime(why)

        before = signal.signal(signal.SIGALRM, stop)
        signal.setitimer(signal.ITIMER_REAL, min(seconds, left))
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)

    def save(self):
        """Replaces result.json atomically, so that a reader never sees half of it."""
        half = self.file.with_suffix(".half")
        half.write_text(json.dumps(self.result, indent=1, allow_nan=False) + "\n")
        half.replace(self.file)

    def part(self, name, work):
        """Lets `work(run, part)` fill in a part. An exception becomes the part's result, and the run goes on."""
        part = self.result["parts"][name] = {}
        self.say(name)
        begin = time.monotonic()
        try:
            if spent := self.spent():
                part["left_out"] = spent
            else:
                work(self, part)
        except Exception as error:
            part["failed"] = reason(error)
        finally:
            part["seconds"] = time.monotonic() - begin
            self.save()

    def program(self, part, seconds, what, *command):
        """Runs a program to its end. Returns its exit code, and keeps the last lines of its output in the part."""
        log = self.scratch / "program.log"
        try:
            with self.limit(seconds, what), open(log, "w") as out:
                return subprocess.run([str(word) for word in command], stdout=out, stderr=subprocess.STDOUT, env=tools.ENVIRONMENT | os.environ,
                                      cwd=tools.ROOT).returncode
        finally:
            part["lines"] = log.read_text(errors="replace").splitlines()[-KEPT_LINES:]

    def daemon(self, dataset, name, device, **options):
        """Starts a daemon whose state directory has the given name in the scratch folder, and imports `dataset` as `set`."""
        return self.tools.daemon(dataset, self.scratch / name, "--exit-timeout", "10", device=device, **options)
