"""Runs the real daemon while a test or a benchmark needs it, and drives it as users do."""

import json
import pathlib
import re
import signal
import subprocess
import tempfile
import urllib.request


class Daemon:
    """`permafrostd` of `bin_dir` on free ports, with `dataset` as its import root. It is a context manager: leaving it stops the daemon and
    requires exit code 0.

    import_as: imports `dataset` under this name, with `import_flags`, unless the state directory has it already.
    prepare: runs in the new process before it becomes the daemon.
    environment: the daemon's environment; the test's unless given."""

    def __init__(self, bin_dir, state_dir, dataset, *flags, threads=2, import_as=None, import_flags=(), prepare=None, device="cpu",
                 environment=None):
        self.bin_dir = pathlib.Path(bin_dir)
        self.log = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            [self.bin_dir / "permafrostd", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--state-dir", state_dir,
             "--import-root", dataset, "--device", device, "--threads", str(threads), *flags],
            stdout=subprocess.PIPE, stderr=self.log, text=True, preexec_fn=prepare, env=environment)
        try:
            ready = re.search(r"grpc (\S+), metrics (\S+), device (\S+) ", self.process.stdout.readline())
        except BaseException:
            self._kill()
            raise
        if ready is None:
            self._kill()
            raise RuntimeError(f"permafrostd did not start: {self._log_tail()}")
        self.server, self.metrics_url, self.device = ready.groups()
        try:
            if import_as and not any(kept["name"] == f"datasets/{import_as}" for kept in self.json("dataset", "list").get("datasets", [])):
                self.client("dataset", "import", import_as, dataset, *import_flags)
        except BaseException:
            self.stop()
            raise

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        code = self.stop()
        if kind is None and code != 0:
            raise RuntimeError(f"permafrostd ended with code {code}: {self._log_tail()}")

    def _kill(self):
        self.process.kill()
        self.process.wait()

    def _log_tail(self):
        self.log.seek(0)
        return "".join(self.log.readlines()[-5:]).strip()

    def client(self, *arguments):
        """Runs `permafrost` with the arguments, and returns what it prints. Its errors go to standard error."""
        return subprocess.run([self.bin_dir / "permafrost", "--server", self.server, *map(str, arguments)], check=True,
                              stdout=subprocess.PIPE, text=True).stdout

    def json(self, *arguments):
        return json.loads(self.client("--output", "json", *arguments))

    def train(self, job, *flags):
        """Runs a job to its end, and returns it as `job show` reports it. The job must succeed."""
        self.client("job", "submit", "--id", job, *flags, "--watch")
        shown = self.json("job", "show", job)
        if shown["state"] != "STATE_SUCCEEDED":
            raise RuntimeError(f"job {job} ended as {shown['state']}: {shown.get('error')}")
        return shown

    def metrics(self):
        """Returns the value of each series, by its exported name with labels."""
        with urllib.request.urlopen(self.metrics_url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def stop(self):
        """Stops the daemon, and returns its exit code. Idempotent. Kills a daemon that does not end in time, or if the wait is interrupted."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=60)
        except BaseException:
            self._kill()
            raise
