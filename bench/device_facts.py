"""Prints as JSON what a device is and which versions run on it, as torch and the driver report: `python -m bench.device_facts DEVICE`.

It runs in a process of its own, so that the benchmark itself holds no memory of the device."""

import contextlib
import importlib.metadata
import json
import platform
import shutil
import subprocess
import sys

import torch

# The fields that nvidia-smi is asked for.
ASKED = ("driver_version", "memory.total", "clocks.sm", "clocks.max.sm", "power.limit")


def version(package):
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def of_driver(index):
    """Asks nvidia-smi for the facts of a card. Returns {} without nvidia-smi."""
    if shutil.which("nvidia-smi") is None:
        return {}
    done = subprocess.run(["nvidia-smi", f"--id={index}", f"--query-gpu={','.join(ASKED)}", "--format=csv,noheader"], capture_output=True, text=True)
    if done.returncode != 0:
        return {"nvidia_smi": done.stdout.strip()[:200]}
    return dict(zip(ASKED, (value.strip() for value in done.stdout.strip().split(","))))


def facts(device):
    found = {"device": str(device), "python": platform.python_version(), "torch": torch.__version__, "torch_cuda": torch.version.cuda,
             "torch_geometric": version("torch_geometric"), "triton": version("triton"), "numpy": version("numpy")}
    if device.type != "cuda":
        return found | {"name": "cpu"}
    properties = torch.cuda.get_device_properties(device)
    return found | {"name": properties.name, "capability": f"{properties.major}.{properties.minor}", "multiprocessors": properties.multi_processor_count,
                    "memory_bytes": properties.total_memory, **of_driver(device.index or 0)}


if __name__ == "__main__":
    print(json.dumps(facts(torch.device(sys.argv[1]))))
