"""Hard trials of the daemon: kills, failing system calls, crowds, damage, fuzzing, long runs.

usage: python -m tests.torture BIN_DIR [--long] [--seed N] [TRIAL...]
  BIN_DIR   holds permafrostd and libtorture_faults.so
  --long    as often as the project promises; without it a short form of each, for every run of the tests
  --seed    the seed of random draws (default: 1)
  TRIAL     only these; --list names them
Each trial prints a line. The exit code is 1 if one failed, 77 if the trials that were named could not run here.
"""

import argparse
import pathlib
import sys
import time
import traceback

from tests.torture import crowd, cycles, damage, faults, fuzz, kills, programs, ranks, resealed, scrapes, soak, stops
from tests.torture.world import NotRun

# Maps each name to (the function, its arguments in the short form, and those in the long form).
TRIALS = {
    "kills": (kills.random_kills, {"count": 50, "seconds": 600}, {"count": 500, "seconds": float("inf")}),
    "failpoints": (kills.failpoints, {"count": 1, "places": 6}, {"count": 20, "places": 19}),
    "stops": (stops.stops, {"count": 4}, {"count": 50}),
    "failures": (faults.failures, {"count": 1}, {"count": 20}),
    "read-only": (faults.read_only, {}, {}),
    "full-disk": (faults.full_disk, {"megabytes": 48}, {"megabytes": 256}),
    "vanished": (faults.vanished_files, {}, {}),
    "port": (faults.taken_port, {}, {}),
    "descriptors": (faults.few_descriptors, {"most": 96}, {"most": 512}),
    "clock": (faults.clock, {}, {}),
    "ranks": (ranks.kills, {"count": 6, "bounded": False}, {"count": 50, "bounded": True}),
    "links": (ranks.links, {"every": False}, {"every": True}),
    "checkpoints": (damage.checkpoints, {"flips": 50, "resumes": 1}, {"flips": 1000, "resumes": 20}),
    "resealed": (resealed.resealed, {"count": 12}, {"count": 300}),
    "rows": (damage.rows, {}, {}),
    "stores": (damage.stores, {"count": 4}, {"count": 200}),
    "duplicates": (crowd.duplicates, {"count": 1000}, {"count": 1000}),
    "readers": (crowd.slow_readers, {"count": 200, "pairs": 1, "graphs": 64, "epochs": 6, "held": False},
                {"count": 200, "pairs": 30, "graphs": 4000, "epochs": 40, "held": True}),
    "metrics": (scrapes.metrics, {"rounds": 1, "seconds": 1, "graphs": 64, "held": False},
                {"rounds": 30, "seconds": 2, "graphs": 4000, "held": True}),
    "clients": (crowd.clients, {"count": 100}, {"count": 500}),
    "greedy": (crowd.greedy, {"most": 3072}, {"most": 3072}),
    "cycles": (cycles.cycles, {"count": 4}, {"count": 200}),
    "requests": (fuzz.requests, {"count": 600}, {"count": 100_000}),
    "programs": (programs.programs, {"count": 60}, {"count": 1000}),
    "configurations": (fuzz.configurations, {"count": 15}, {"count": 1000}),
    "soak": (soak.soak, {"steps": 4000, "graphs": 1000, "shapes": 1000}, {"steps": 100_000, "graphs": 4000, "shapes": 10_000}),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin_dir", nargs="?", type=pathlib.Path)
    parser.add_argument("trials", nargs="*", metavar="TRIAL")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_intermixed_args()
    if arguments.list:
        print("\n".join(TRIALS))
        return 0
    unknown = [name for name in arguments.trials if name not in TRIALS]
    if unknown or arguments.bin_dir is None:
        parser.error(f"unknown trials {unknown}; accepted: {', '.join(TRIALS)}" if unknown else "BIN_DIR is missing")
    failed, skipped = [], []
    for name, (run, short, long) in TRIALS.items():
        if arguments.trials and name not in arguments.trials:
            continue
        began = time.monotonic()
        try:
            result = run(arguments.bin_dir, arguments.seed, **(long if arguments.long else short))
            word = "ok"
        except NotRun as reason:
            skipped.append(name)
            word, result = "not run", reason
        except Exception as error:  # noqa: BLE001 - the other trials go on
            traceback.print_exc()
            failed.append(name)
            word, result = "FAILED", error
        print(f"{name:<12} {word:<7} {time.monotonic() - began:6.1f} s  {result}", flush=True)
    if failed:
        print(f"failed with --seed {arguments.seed}: {' '.join(failed)}")
    # ctest takes exit code 77 for a skipped test.
    return 1 if failed else 77 if skipped and arguments.trials == skipped else 0


if __name__ == "__main__":
    sys.exit(main())
