"""The real daemon for as long as a test needs it, and its client."""

import contextlib
import re
import signal
import subprocess


@contextlib.contextmanager
def running(bin_dir, import_root, work):
    """Yields a function that runs `permafrost` with the arguments given. The daemon must end with code 0."""
    daemon = subprocess.Popen(
        [bin_dir / "permafrostd", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--state-dir", work / "state",
         "--import-root", import_root, "--device", "cpu", "--threads", "2"],
        stdout=subprocess.PIPE, text=True)
    try:
        server = re.search(r"grpc (\S+),", daemon.stdout.readline()).group(1)

        def client(*arguments):
            subprocess.run([bin_dir / "permafrost", "--server", server, *arguments], check=True)

        yield client
    finally:
        daemon.send_signal(signal.SIGTERM)
        code = daemon.wait(timeout=60)
    assert code == 0, f"permafrostd ended with code {code}"
