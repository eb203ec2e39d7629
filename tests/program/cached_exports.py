"""Copies what export_modules.py writes, and runs it only for modules that a cache has not.

usage: cached_exports.py CACHE OUT [NAME...]   (all where none is named)

CACHE is a folder. What it keeps is used until a script of this folder, torch or PyG changes.
"""

import fcntl
import hashlib
import json
import shutil
import sys
import warnings
from importlib import metadata
from pathlib import Path


def versions() -> str:
    scripts = b"".join(path.read_bytes() for path in sorted(Path(__file__).resolve().parent.glob("*.py")))
    return "-".join([hashlib.sha256(scripts).hexdigest()[:16], *(metadata.version(part) for part in ("torch", "torch_geometric"))])


def all_names(kept: Path) -> list[str]:
    listed = kept / "names.json"
    if not listed.exists():
        from modules import MODULES

        unfinished = kept / "names.unfinished"
        unfinished.write_text(json.dumps(list(MODULES)))
        unfinished.rename(listed)
    return json.loads(listed.read_text())


def make(kept: Path) -> None:
    # Its import takes seconds, which a module that is kept does not cost.
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
    try:
        kept = cache / versions()
    except metadata.PackageNotFoundError as error:
        print(f"cached_exports: {error}", file=sys.stderr)
        sys.exit(77)
    kept.mkdir(parents=True, exist_ok=True)
    # Of several processes, one writes, and the others wait for it.
    with (kept / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for name in names or all_names(kept):
            try:
                if not (kept / name).exists():
                    make(kept / name)
            except Exception as error:
                raise SystemExit(f"cached_exports: {name}: {error}") from error
            shutil.copytree(kept / name, out, dirs_exist_ok=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
