"""Writes the power-law graph that the benchmarks of large graphs use, for other programs to read."""

from bench import tools

NAME = "graph"
MEASURES = "nothing: writes the power-law graph that `import` to `disk` use"
NEEDS = "numpy"
PROGRAMS = []
PACKAGES = ["numpy"]


def add_arguments(parser):
    tools.add_graph_arguments(parser)


def measure(arguments, tools_):
    return {"folder": str(tools_.power_law_graph(arguments))}


def show(result):
    return result["folder"]
