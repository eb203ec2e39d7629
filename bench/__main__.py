"""Runs the benchmarks: `bench/run list` names them, and `bench/run NAME --help` lists the flags of one.

Exit codes: 0 done; 1 failed; 2 bad usage; 77 something that the benchmark needs is not on this machine (one line says what).
"""

import argparse
import json
import signal
import subprocess
import sys

from bench import (compare, disk, folds, gpu, graph, imports, links, models, node2vec, nodes, operators, parallel, policies, replicas, sampling, sets,
                   simulate, sources, steps, tools, user_modules, warm_up)

# Each module has NAME, MEASURES and NEEDS (a line each), PROGRAMS (to be built), PACKAGES (Python modules that it needs),
# add_arguments(parser), measure(arguments, tools) -> a JSON object, and show(result) -> text.
BENCHMARKS = [steps, operators, parallel, compare, user_modules, folds, sets, links, node2vec, models, policies, replicas, simulate, warm_up, imports,
              sources, sampling, nodes, disk, graph, gpu]
MISSING = 77


def listing():
    rows = [f"  {b.NAME:14}{b.MEASURES}\n{'':16}needs: {b.NEEDS}" for b in BENCHMARKS]
    return "\n".join(["Benchmarks; each builds the programs that it needs and makes the data that it is not given:", *rows])


def parse(arguments):
    parser = argparse.ArgumentParser(prog="bench/run", description=listing(), formatter_class=argparse.RawDescriptionHelpFormatter,
                                     epilog=__doc__.split("\n\n")[1])
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    commands.add_parser("list", help="what each benchmark measures and needs")
    for benchmark in BENCHMARKS:
        command = commands.add_parser(benchmark.NAME, help=benchmark.MEASURES, description=benchmark.__doc__,
                                      formatter_class=argparse.RawDescriptionHelpFormatter)
        command.set_defaults(benchmark=benchmark)
        command.add_argument("--output", choices=("text", "json"), default="text")
        command.add_argument("--build-dir", type=tools.path, default=tools.ROOT / "build", help="where the programs are built (default: build)")
        command.add_argument("--bin-dir", type=tools.path, default=tools.BUNDLED if tools.BUNDLED.is_dir() else None,
                             help="folder of programs that are built already: nothing is built (default: that of an unpacked bundle)")
        command.add_argument("--work", type=tools.path, help="folder for graphs and stores, which are kept (default: BUILD_DIR/bench)")
        tools.add_numbers(command, threads=2)
        benchmark.add_arguments(command)
    return parser.parse_args(arguments)


def main():
    arguments = parse(sys.argv[1:])
    if arguments.name == "list":
        print(listing())
        return 0
    benchmark = arguments.benchmark
    # SIGTERM exits, so that the processes that this one started end too.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        tools.need_packages(benchmark.PACKAGES)
        # `compare --results` and `simulate --measurements` start from earlier results, and need no programs.
        programs = [] if getattr(arguments, "results", None) else benchmark.PROGRAMS
        bin_dir = arguments.bin_dir or (tools.build(arguments.build_dir, programs) if programs else None)
        work = arguments.work or arguments.build_dir / "bench"
        work.mkdir(parents=True, exist_ok=True)
        result = benchmark.measure(arguments, tools.Tools(bin_dir, work, arguments.threads))
    except tools.Missing as missing:
        print(f"bench: {benchmark.NAME}: {missing}", file=sys.stderr)
        return MISSING
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        print(f"bench: {benchmark.NAME}: {error}", file=sys.stderr)
        return 1
    result = {"benchmark": benchmark.NAME, "threads": arguments.threads, "machine": tools.machine(), **result}
    if arguments.output == "json":
        print(json.dumps(result, indent=1, allow_nan=False))
    else:
        m = result["machine"]
        print(f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB, {m['system']}; {arguments.threads} threads")
        print(benchmark.show(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
