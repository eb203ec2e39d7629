"""Times the kernels of a training step of the daemon on an NVIDIA GPU by CUPTI, in the daemon's process (programs/kernel_times.cc)."""

import json
import os
import time

from bench.gpu_run import LeftOut

LIBRARY = "libkernel_times.so"
WRITE_SECONDS = 10
# The name of Adam's kernel, which occurs in every training step and in no other step.
OF_TRAINING = "FusedOptimizer"
KEPT_KERNELS = 12


class Times:
    """Times kernels in a daemon. bin_dir: the folder of the programs; the library lies beside them, or in the folder lib of a bundle. scratch: a
    folder for the files of a measurement."""

    def __init__(self, bin_dir, scratch):
        self.library = next((path for path in (bin_dir / LIBRARY, bin_dir.parent / "lib" / LIBRARY) if path.exists()), None)
        if self.library is None:
            raise LeftOut(f"there is no {LIBRARY} in {bin_dir}; the target kernel_times makes it where CUPTI is")
        self.switch, self.to = scratch / "kernel-times-on", scratch / "kernel-times.json"

    def environment(self):
        """Returns the environment for a process whose kernels are timed. libtorch brings CUPTI."""
        torch = os.environ["PERMAFROST_TORCH_LIB"]
        path = [f"{torch}/../../nvidia/{folder}/lib" for folder in ("cu13", "cuda_cupti")] + [os.environ.get("LD_LIBRARY_PATH", "")]
        return os.environ | {"CUDA_INJECTION64_PATH": str(self.library), "KERNEL_TIMES_WHILE": str(self.switch), "KERNEL_TIMES_TO": str(self.to),
                             "LD_LIBRARY_PATH": ":".join(filter(None, path))}

    def of_steps(self, seconds):
        """Times the kernels for some seconds. Returns the means of a training step, which is one graph of the device."""
        self.to.unlink(missing_ok=True)
        self.switch.touch()
        time.sleep(seconds)
        self.switch.unlink()
        end = time.monotonic() + WRITE_SECONDS
        while not self.to.exists():
            if time.monotonic() > end:
                raise RuntimeError("the daemon's kernels were not told: CUPTI does not run")
            time.sleep(0.05)
        told = json.loads(self.to.read_text())
        if told["dropped"]:
            raise RuntimeError(f"CUPTI dropped {told['dropped']} records of kernels")
        return of_training(told["launches"])


def of_training(launches):
    """Sums up the graphs that train. kernel_seconds is the time of a step's kernels. span_seconds runs from the start of its first kernel to the
    end of its last."""
    training = [graph for graph in launches if graph["graph"] and any(OF_TRAINING in name for name in graph["kernels"])]
    steps = sum(graph["launches"] for graph in training)
    if steps == 0:
        raise RuntimeError("no graph of the device trained")
    total = {}
    for graph in training:
        for name, found in graph["kernels"].items():
            calls, seconds = total.get(name, (0, 0))
            total[name] = calls + found["calls"], seconds + found["seconds"]
    longest = sorted(total.items(), key=lambda kernel: -kernel[1][1])[:KEPT_KERNELS]
    return {"steps": steps, "kernels": sum(calls for calls, _ in total.values()) / steps,
            "kernel_seconds": sum(seconds for _, seconds in total.values()) / steps,
            "span_seconds": sum(graph["span_seconds"] for graph in training) / steps,
            "longest": {name: {"calls": calls / steps, "seconds": seconds / steps} for name, (calls, seconds) in longest}}
