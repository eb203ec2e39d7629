"""Measures importing molecules from SMILES and a graph from Parquet with the Python client, from the file to a dataset that is ready.

Each round imports both into one daemon, in changing order. The client reads, converts, and uploads the files or hands them over. The client
is the wheel of this tree. Molecules are drawn from fragments by a fixed seed, with 8 to 47 heavy atoms each.
"""

import random
import statistics
import subprocess
import sys
import tempfile
import time

from bench import tools
from bench.rounds import interleave
from tests.parity.daemon import Daemon

NAME = "sources"
MEASURES = "importing SMILES and Parquet with the Python client, in seconds"
NEEDS = "numpy, pyarrow and rdkit (deploy/install-deps --tests)"
PROGRAMS = ["permafrostd", "permafrost"]
PACKAGES = ["numpy", "pyarrow", "rdkit", "grpc", "xxhash", "tqdm"]
_RINGS = ("c1ccccc1", "C1CCCCC1", "c1ccncc1", "c1ccoc1", "C1CCNCC1")
_PIECES = ("C", "CC", "C(=O)N", "O", "C(C)C", "C(F)(F)", "S(=O)(=O)", "NC(=O)", "C=C")


def add_arguments(parser):
    tools.add_numbers(parser, rounds=5, molecules=1000, nodes=100_000, edges=1_000_000)


def molecule(draw):
    return "C" + "".join(draw.choice(_RINGS) + draw.choice(_PIECES) for _ in range(draw.randint(1, 5))) + "O"


def make_tables(folder, arguments):
    import numpy as np
    import pyarrow as pa
    import pyarrow.parquet as pq

    draw = random.Random(1)
    lines = [f"{molecule(draw)},{draw.random():.6f}\n" for _ in range(arguments.molecules)]
    (folder / "molecules.csv").write_text("smiles,gap\n" + "".join(lines))
    numbers = np.random.default_rng(1)
    ends = numbers.integers(0, arguments.nodes, size=(2, arguments.edges))
    pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), folder / "edges.parquet")
    features = {f"f{c}": numbers.random(arguments.nodes, dtype=np.float32) for c in range(8)}
    labels = numbers.integers(0, 5, arguments.nodes)
    pq.write_table(pa.table({"id": np.arange(arguments.nodes), **features, "label": labels}), folder / "nodes.parquet")


def client_of(folder):
    """Returns the package permafrost, installed from the wheel of this tree."""
    wheel = subprocess.run([tools.ROOT / "deploy" / "python-wheel", "--to", folder, "--python", sys.executable], check=True,
                           stdout=subprocess.PIPE, text=True).stdout.strip()
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--target",
                    folder / "installed", wheel], check=True)
    sys.path.insert(0, str(folder / "installed"))
    from permafrost import Client

    return Client


def measure(arguments, tools_):
    facts = {}
    with tempfile.TemporaryDirectory(dir=tools_.work) as work:
        folder = tools.path(work) / "data"
        folder.mkdir()
        make_tables(folder, arguments)
        connect = client_of(folder)
        with Daemon(tools_.bin_dir, folder.parent / "state", folder, threads=tools_.threads) as daemon, connect(daemon.server) as client:
            def timed(name, make):
                def once(number):
                    begun = time.monotonic()
                    dataset = make(f"{name}-{number}")
                    seconds = time.monotonic() - begun
                    facts[name] = dict(dataset.summary)
                    return seconds
                return once

            seconds = interleave({
                "smiles": timed("smiles", lambda name: client.datasets.import_smiles(
                    folder / "molecules.csv", name, column="smiles", targets=["gap"], progress=False)),
                "parquet": timed("parquet", lambda name: client.datasets.import_parquet(
                    folder / "edges.parquet", name, nodes=folder / "nodes.parquet", id="id", label="label", progress=False)),
            }, arguments.rounds)
    return {"seconds": {name: statistics.median(values) for name, values in seconds.items()},
            "rounds": {name: [min(values), max(values)] for name, values in seconds.items()}, "datasets": facts}


def show(result):
    lines = []
    for name, seconds in result["seconds"].items():
        low, high = result["rounds"][name]
        what = ", ".join(f"{value} {key}" for key, value in result["datasets"][name].items() if value)
        lines.append(f"{name:10}{seconds:8.2f} s ({low:.2f} to {high:.2f})   {what}")
    return "\n".join(lines)
