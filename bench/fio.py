"""What fio, where there is one, reads of a file past the page cache."""

import json
import shutil
import subprocess

# Name -> block size, reads at once, how.
IN_ORDER = "in order 1m, 8 at once"
PATTERNS = {"random 4k, 1 at once": ("4k", 1, "randread"), "random 4k, 32 at once": ("4k", 32, "randread"),
            "random 8k, 64 at once": ("8k", 64, "randread"), "random 16k, 32 at once": ("16k", 32, "randread"),
            "random 64k, 32 at once": ("64k", 32, "randread"), IN_ORDER: ("1m", 8, "read")}


def read_rates(file, seconds):
    """{pattern: MB/s}; {} where there is no fio, or none that can read this file directly."""
    if shutil.which("fio") is None:
        return {}
    rates = {}
    for engine in ("io_uring", "libaio"):
        for name, (block, depth, how) in PATTERNS.items():
            done = subprocess.run(["fio", "--name=read", f"--filename={file}", "--readonly", "--direct=1", f"--rw={how}", f"--bs={block}",
                                   f"--iodepth={depth}", f"--ioengine={engine}", f"--runtime={seconds}", "--time_based", "--randrepeat=0",
                                   "--output-format=json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            if done.returncode != 0:
                break
            # Warnings may stand before the JSON.
            found = json.loads(done.stdout[done.stdout.index("{"):])
            rates[name] = found["jobs"][0]["read"]["bw_bytes"] / 1e6
        if rates:
            return rates
    return {}
