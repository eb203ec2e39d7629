"""Measures with fio, if it is installed, how fast a file is read past the page cache."""

import json
import shutil
import subprocess

# Maps each name to the block size, the number of reads at once, and fio's pattern.
IN_ORDER = "in order 1m, 8 at once"
PATTERNS = {"random 4k, 1 at once": ("4k", 1, "randread"), "random 4k, 32 at once": ("4k", 32, "randread"),
            "random 8k, 64 at once": ("8k", 64, "randread"), "random 16k, 32 at once": ("16k", 32, "randread"),
            "random 64k, 32 at once": ("64k", 32, "randread"), IN_ORDER: ("1m", 8, "read")}


ENGINES = ("io_uring", "libaio")
MIXED_AT_ONCE = 64


def _read(file, seconds, engine, depth, how, *blocks):
    """Returns MB/s, or None if fio cannot read the file this way."""
    done = subprocess.run(["fio", "--name=read", f"--filename={file}", "--readonly", "--direct=1", f"--rw={how}", *blocks, f"--iodepth={depth}",
                           f"--ioengine={engine}", f"--runtime={seconds}", "--time_based", "--randrepeat=0", "--output-format=json"],
                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if done.returncode != 0:
        return None
    # Warnings may precede the JSON.
    return json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]["bw_bytes"] / 1e6


def read_rates(file, seconds):
    """Returns {pattern: MB/s}, or {} without an fio that can read this file directly."""
    if shutil.which("fio") is None:
        return {}
    for engine in ENGINES:
        rates = {}
        for name, (block, depth, how) in PATTERNS.items():
            if (rate := _read(file, seconds, engine, depth, how, f"--bs={block}")) is None:
                break
            rates[name] = rate
        if rates:
            return rates
    return {}


def blocks_of_mean(mean_bytes):
    """Returns fio's --bssplit for two block lengths, one twice the other, whose mean is `mean_bytes` (4 KiB or more)."""
    short = 4096
    while 2 * short < mean_bytes:
        short *= 2
    percent = round(100 * min(max(2 - mean_bytes / short, 0), 1))
    return f"{short}/{percent}:{2 * short}/{100 - percent}"


def mixed_rate(file, mean_bytes, seconds):
    """Returns MB/s of random reads of `mean_bytes` on average, MIXED_AT_ONCE at once, or None without an fio that can
    do it."""
    if shutil.which("fio") is None:
        return None
    rates = (_read(file, seconds, engine, MIXED_AT_ONCE, "randread", f"--bssplit={blocks_of_mean(mean_bytes)}") for engine in ENGINES)
    return next((rate for rate in rates if rate is not None), None)
