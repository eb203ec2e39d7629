"""Trains or exports a module of bench/module_nets.py in PyG's process.

`python -m bench.peer_modules SETTINGS` answers the commands of bench/peer_pyg.py. `python -m bench.peer_modules SETTINGS FILE` writes the
module as a program, and prints the seconds that this took as JSON. SETTINGS: those of bench/peer_pyg.py, with module, hidden and layers in
place of weights.
"""

import json
import sys
import time

import torch

from bench import module_nets
from bench.peer_pyg import Peer, serve


def make(settings):
    """Makes the module. Every side begins with the same weights."""
    torch.manual_seed(1)
    return module_nets.make(settings["module"], settings["hidden"], settings["layers"])


class ModulePeer(Peer):
    def load_module(self, settings):
        return make(settings)


def export(settings, path):
    import tests  # noqa: F401  the Python package's modules are found by it
    from permafrost import export as write

    flat = torch.load(settings["data"])["train"]
    nodes, edges = flat["nodes"][0], flat["edges"][0]
    example = {"x": flat["x"][:nodes], "edge_index": flat["edge_index"][:, :edges], "edge_attr": flat["edge_attr"][:edges],
               "batch": torch.zeros(nodes, dtype=torch.long)}
    module = make(settings)
    begin = time.perf_counter()
    write(module, example, path)
    return {"seconds": time.perf_counter() - begin}


def main():
    settings, *path = sys.argv[1:]
    if path:
        print(json.dumps(export(json.loads(settings), *path)))
    else:
        serve(ModulePeer, json.loads(settings))


if __name__ == "__main__":
    main()
