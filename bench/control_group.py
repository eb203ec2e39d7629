"""Makes a memory control group of version 2 or 1. Linux only; needs root."""

import os
import pathlib

from bench import tools


class ControlGroup:
    """A control group below this process's own, which exists while the context is entered. Every process in it must
    have ended before the context exits."""

    def __init__(self, limit):
        self.limit = limit
        lines = [line.rstrip("\n").split(":", 2) for line in open("/proc/self/cgroup")]
        root = pathlib.Path("/sys/fs/cgroup")
        self.one = next((path for _, controllers, path in lines if "memory" in controllers.split(",")), None)
        if self.one is not None:
            base = root / "memory" / self.one.lstrip("/")
            self.names = ("memory.limit_in_bytes", "memory.max_usage_in_bytes", "memory.failcnt")
        else:
            base = root / next(path for _, controllers, path in lines if not controllers).lstrip("/")
            self.names = ("memory.max", "memory.peak", "memory.events")
        self.path = base / f"permafrost-bench-{os.getpid()}"

    def __enter__(self):
        try:
            self.path.mkdir()
            (self.path / self.names[0]).write_text(str(self.limit))
        except OSError as error:
            raise tools.Missing(f"no memory control group can be made here: {error}; run as root") from error
        return self

    def __exit__(self, *_):
        self.path.rmdir()

    def add(self):
        """Moves this process into the group. Used as subprocess's preexec_fn."""
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def read(self):
        """Returns the peak bytes, and how often the limit was hit."""
        events = (self.path / self.names[2]).read_text()
        hits = int(events) if self.one is not None else int(next(l for l in events.splitlines() if l.startswith("max ")).split()[1])
        return int((self.path / self.names[1]).read_text()), hits
