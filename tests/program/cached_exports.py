"""Copies exported modules from a cache, and exports those that the cache lacks (export_modules.py).

usage: cached_exports.py CACHE OUT [NAME...]   (all if none is named)

Entries in CACHE are valid only for the same version of the scripts in tests/program, of Python, torch and PyG, and
for the same processor, since processors round differently.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import sys
import warnings
from importlib import metadata
from pathlib import Path


def versions() -> str:
    scripts = b"".join(path.read_bytes() for path in sorted(Path(__file__).resolve().parent.glob("*.py")))
    with contextlib.suppress(FileNotFoundError):
        facts = Path("/proc/cpuinfo").read_text().splitlines()
        scripts += "".join(sorted({line for line in facts if line.startswith(("flags", "Features", "model name"))})).encode()
    parts = (platform.python_version(), metadata.version("torch"), metadata.version("torch_geometric"))
    return "-".join([hashlib.sha256(scripts).hexdigest()[:16], *parts])


def all_names(kept: Path) -> list[str]:
    listed = kept / "names.json"
    if not listed.exists():
        from modules import MODULES

        unfinished = kept / f"names.{os.getpid()}"
        unfinished.write_text(json.dumps(list(MODULES)))
        unfinished.rename(listed)
    return json.loads(listed.read_text())


def make(kept: Path) -> None:
    # Imported here because it takes seconds, and modules from the cache do not need it.
    import export_modules
    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    unfinished = kept.with_name(f"{kept.name}.unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir()
    export_modules.write(kept.name, unfinished)
    unfinished.rename(kept)


def main(cache: Path, out: Path, names: list[str]) -> None:
    kept = cache / versions()
    kept.mkdir(parents=True, exist_ok=True)
    for name in names or all_names(kept):
        # If several processes want a module, one writes it while the others wait.
        with (kept / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                if not (kept / name).exists():
                    make(kept / name)
            except ModuleNotFoundError:
                raise
            except Exception as error:
                raise SystemExit(f"cached_exports: {name}: {error}") from error
        shutil.copytree(kept / name, out, dirs_exist_ok=True)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
    except (metadata.PackageNotFoundError, ModuleNotFoundError) as absent:
        print(f"cached_exports: {absent}", file=sys.stderr)
        sys.exit(77)
