"""A permafrostd of its own for a benchmark, driven as its users drive it."""

import json
import re
import signal
import subprocess
import urllib.request


class Daemon:
    """`dataset` is imported as `set`, with `import_flags`, unless the state directory has one of that name already.
    `prepare` runs in the daemon's process before it is one."""

    def __init__(self, bin_dir, state_dir, dataset, threads, *flags, import_flags=(), prepare=None):
        self.bin_dir = bin_dir
        self.process = subprocess.Popen(
            [bin_dir / "permafrostd", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--state-dir", state_dir,
             "--import-root", dataset, "--device", "cpu", "--threads", str(threads), *flags],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=prepare)
        ready = self.process.stdout.readline()
        if "ready" not in ready:
            raise SystemExit(f"bench: permafrostd did not start; to see why: {bin_dir / 'permafrostd'} --state-dir {state_dir} "
                             f"--import-root {dataset}")
        self.server = re.search(r"grpc (\S+),", ready).group(1)
        self.metrics_url = re.search(r"metrics (\S+),", ready).group(1)
        if not any(kept["name"] == "datasets/set" for kept in self.json("dataset", "list").get("datasets", [])):
            self.client("dataset", "import", "set", dataset, *import_flags)

    def client(self, *arguments):
        return subprocess.run([self.bin_dir / "permafrost", "--server", self.server, *map(str, arguments)], check=True,
                              capture_output=True, text=True).stdout

    def json(self, *arguments):
        return json.loads(self.client("--output", "json", *arguments))

    def metrics(self):
        """Value of each series, by its name with labels as exported."""
        with urllib.request.urlopen(self.metrics_url, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))}

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(timeout=60)
