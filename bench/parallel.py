"""Finds the size from which several threads are faster than one, for each kind of parallel region of the operators, in
microseconds.

Each size runs on one thread and on --threads, in interleaved rounds. A region begins --gap microseconds after the last one, as in
a step. The gap is longer than threads spin (GOMP_SPINCOUNT, as permafrostd sets it), so that each region has to wake them. The
constants of the operators are chosen from these results.
"""

import statistics

from bench import tools
from bench.operators import add_filter, interval, opened
from bench.rounds import interleave, ratio

NAME = "parallel"
MEASURES = "from which size on an operator's parallel regions are faster on several threads than on one"
NEEDS = "Google Benchmark (deploy/install-deps --tests)"
PROGRAMS = ["operators"]
PACKAGES = []


def add_arguments(parser):
    tools.add_numbers(parser, rounds=15, gap=50)
    for flag, power in (("--smallest", 12), ("--largest", 20)):
        parser.add_argument(flag, type=int, default=power, help=f"size, as a power of two (default {power})")
    add_filter(parser)


def sweep(arguments, program, region):
    """Returns one row for each size, and `crossing`: the smallest size from which on the median ratio is always above 1, or None."""
    rows, crossing = [], None
    for size in (2**power for power in range(arguments.smallest, arguments.largest + 1)):
        seconds = lambda threads: lambda _: program.ask(f"region {region['name']} {size} {threads} {1e-6 * arguments.gap}")["seconds"]
        times = interleave({"one": seconds(1), "several": seconds(arguments.threads)}, arguments.rounds)
        rows.append({"size": size, **{f"{side}_us": 1e6 * statistics.median(values) for side, values in times.items()},
                     "ratio": ratio(times["one"], times["several"])})
        if rows[-1]["ratio"]["median"] <= 1:
            crossing = None
        else:
            crossing = crossing or size
    return {**region, "rows": rows, "crossing": crossing}


def measure(arguments, tools_):
    with opened(arguments, tools_, "regions") as (program, wanted):
        return {"regions": [sweep(arguments, program, region) for region in wanted]}


def show(result):
    lines = []
    for region in result["regions"]:
        lines += [f"{region['name']}: {region['constant']}", f"{'size':>10}{'one us':>10}{'several us':>12}{'ratio':>8}   95 %"]
        lines += [f"{row['size']:10}{row['one_us']:10.1f}{row['several_us']:12.1f}{interval(row['ratio'])}" for row in region["rows"]]
        lines.append(f"  several threads are faster from {region['crossing'] or 'no size'} on")
    return "\n".join(lines)
