"""Runs a program that was built with libtorch's CUDA half on the hollow GPU (hollow.h): its environment, its notes,
its switches."""

import contextlib
import os
import pathlib
import re
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
RECORD = struct.Struct("=24sQ")


class Absent(Exception):
    """This machine lacks something that the hollow GPU needs."""


def cuda_bin_dir(bin_dir):
    """Returns a folder of programs that were built with the CUDA module: `bin_dir`, or build-cuda's."""
    for folder in (pathlib.Path(bin_dir), ROOT / "build-cuda" / "bin"):
        if (folder / "libpermafrost_cuda.so").exists():
            return folder.resolve()
    raise Absent("no build with libpermafrost_cuda.so (deploy/install-deps --cuda; deploy/build build-cuda permafrostd permafrost)")


def site_packages(bin_dir):
    """Returns the folder of Python packages that holds the programs' libtorch."""
    cache = bin_dir.parent / "CMakeCache.txt"
    torch_dir = re.search(r"^Torch_DIR:\w+=(.+)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    if torch_dir is None:
        raise Absent(f"{cache} does not tell where libtorch is")
    site = pathlib.Path(torch_dir[1]).parents[3]
    if not list(site.glob("nvidia/*/lib/libcublas.so*")):
        raise Absent(f"{site} lacks the libraries that libtorch's CUDA half needs (deploy/install-deps --cuda)")
    return site


class Gpu:
    """A hollow GPU, with its files in `folder`."""

    def __init__(self, bin_dir, folder):
        self.notes = pathlib.Path(folder) / "notes"
        self.notes.mkdir(parents=True)
        library = pathlib.Path(folder) / "library"
        self.library_path = subprocess.run([ROOT / "tests/hollow/make-gpu", site_packages(bin_dir), library], check=True,
                                           stdout=subprocess.PIPE, text=True).stdout.strip()
        self.preload = library / "hollow.so"

    def environment(self, **variables):
        """Returns the environment for a process that runs on this GPU."""
        return {**os.environ, "HOLLOW_DIR": str(self.notes), "LD_PRELOAD": str(self.preload), "LD_LIBRARY_PATH": self.library_path, **variables}

    def counts(self):
        """Returns how often each operation was done since the process began, by name."""
        records = RECORD.iter_unpack((self.notes / "counts").read_bytes())
        return {name.rstrip(b"\0").decode(): value for name, value in records}

    def launches(self, first=0):
        """Returns the operations from each launch of a graph to the next, counted by name, from launch `first` on."""
        lines = (self.notes / "launches").read_text().splitlines()[first:]
        return [{name: int(times) for name, times in (field.split("=") for field in line.split())} for line in lines]

    def log(self):
        return (self.notes / "log").read_text().splitlines()

    @contextlib.contextmanager
    def switched(self, name):
        """Keeps the switch on within a `with` block."""
        switch = self.notes / name
        switch.touch()
        try:
            yield
        finally:
            switch.unlink()
