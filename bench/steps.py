"""Measures milliseconds of a training step for each way to serve it: replayed by an executable of its own shape or of every shape
(dynamic), padded to the shapes of a frozen cache or to the rungs of a ladder of 8, or run eager.

Each round takes the next batch whose shape neither the frozen cache nor the ladder holds. It trains on the batch once in each way, in
changing order, with models that began equal. Every executable is captured before the clock starts.
"""

import statistics

from bench import tools
from bench.rounds import ratio, ratio_text

NAME = "steps"
MEASURES = "a training step replayed exactly, by one executable for every shape, padded, on a ladder, and run eager"
NEEDS = "nothing else"
PROGRAMS = ["step_modes", "permafrostd", "permafrost"]
PACKAGES = []
PAIRS = (("dynamic", "exact"), ("padded", "exact"), ("ladder", "exact"), ("exact", "eager"), ("dynamic", "eager"))


def add_arguments(parser):
    parser.add_argument("--dataset", type=tools.path, default=tools.SAMPLE, help="folder of many small graphs (default: deploy/sample/zinc)")
    tools.add_numbers(parser, rounds=400, batch_size=32, hidden=64, layers=4, freeze_at=0)


def measure(arguments, tools_):
    flags = [word for name in ("rounds", "batch_size", "hidden", "layers", "freeze_at", "threads")
             for word in ("--" + name.replace("_", "-"), getattr(arguments, name))]
    result = tools_.program("step_modes", tools_.store(arguments.dataset), *flags)
    times = result.pop("milliseconds")
    result["milliseconds"] = {name: statistics.median(values) for name, values in times.items()}
    result["ratios"] = {f"{a} / {b}": ratio(times[a], times[b]) for a, b in PAIRS}
    return result


def show(result):
    lines = [f"  {name:8}{value:8.3f} ms a step" for name, value in result["milliseconds"].items()]
    added = ", ".join(f"{name} {100 * part:.2f} %" for name, part in result["rows_added_beyond_exact"].items() if name in ("padded", "ladder"))
    lines.append(f"  rows added beyond the exact form's own node: {added}")
    return "\n".join(lines + [f"  {name:18}{ratio_text(value)}" for name, value in result["ratios"].items()])
