"""Draws the ratios of `compare`: for each workload, PyG's step time over Permafrost's, with its 95 % interval."""

from bench import ratio_plot

COLORS = {"pyg": "#c2571a", "pyg-loader": "#8a6d00", "pyg-compile": "#5b4bb5"}


def svg(result, names):
    """Returns the drawing as SVG. `names` maps each side to its title."""
    m, rounds = result["machine"], sorted({row["pairs"] for row in result["rows"]})
    return ratio_plot.svg("Time of a training step, over Permafrost's (1: equal; more: PyG is slower)",
                          [(row["workload"], row["ratios"]) for row in result["rows"]],
                          {name: (names[name], color) for name, color in COLORS.items()},
                          f"{m['cpu']}, {result['threads']} threads; medians of {' or '.join(map(str, rounds))} rounds, 95 % intervals")
