"""Compares each fused operator with the same computation by PyTorch's operators: one forward and one backward pass, in microseconds.

Google Benchmark times both in one process, in interleaved rounds. Data-dependent inputs (edges, labels) are random. Their sizes are those
of the shipped ZINC sample's batches, unless the shape gives others.
"""

import argparse
import contextlib
import re
import statistics

from bench import tools
from bench.peer_graphzero import Program
from bench.rounds import interleave, ratio

NAME = "operators"
MEASURES = "each fused operator beside the same of PyTorch's operators"
NEEDS = "Google Benchmark (deploy/install-deps --tests)"
PROGRAMS = ["operators"]
PACKAGES = []


def add_arguments(parser):
    tools.add_numbers(parser, rounds=25)
    parser.add_argument("--seconds", type=float, default=0.02, help="each run takes at least (default 0.02)")
    add_filter(parser)


def pattern(text):
    try:
        return re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text}: {error}") from None


def add_filter(parser):
    parser.add_argument("--filter", type=pattern, default=pattern(""), help="only those whose name this pattern finds")


@contextlib.contextmanager
def opened(arguments, tools_, kind, *flags):
    """Yields the program, and its entries of one kind that match --filter."""
    program = Program(tools_.bin_dir / "operators", "--serve", "--threads", arguments.threads, *flags, env=tools.ENVIRONMENT)
    with contextlib.closing(program):
        wanted = [entry for entry in program.ask("list")[kind] if arguments.filter.search(entry["name"])]
        if not wanted:
            raise RuntimeError(f"--filter {arguments.filter.pattern}: finds none of the {kind}")
        yield program, wanted


def compare(arguments, program, operator):
    seconds = lambda side: lambda _: program.ask(f"time {operator['name']}/{side}")["seconds"]
    times = interleave({side: seconds(side) for side in ("fused", "plain")}, arguments.rounds)
    return {**operator, **{f"{side}_us": 1e6 * statistics.median(values) for side, values in times.items()},
            "ratio": ratio(times["plain"], times["fused"])}


def measure(arguments, tools_):
    with opened(arguments, tools_, "operators", "--seconds", arguments.seconds) as (program, wanted):
        return {"rows": [compare(arguments, program, operator) for operator in wanted]}


def interval(value):
    return f"{value['median']:8.2f}   {value['low']:.2f} to {value['high']:.2f}"


def show(result):
    lines = [f"{'operator':28}{'shape':28}{'fused us':>10}{'plain us':>10}{'ratio':>8}   95 %"]
    lines += [f"{row['name']:28}{row['shape']:28}{row['fused_us']:10.1f}{row['plain_us']:10.1f}{interval(row['ratio'])}" for row in result["rows"]]
    return "\n".join(lines)
