"""Starts the programs of the wheel that deploy/wheel makes: `permafrost`, the client, and `permafrostd`, the daemon.

The daemon runs on this Python's torch, with or without CUDA. Its version must be exactly the one that the daemon was
built for. Torch is located but not imported, because importing takes seconds and the daemon needs only its libraries.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

_HERE = Path(__file__).resolve().parent


def run_client() -> NoReturn:
    _run("permafrost", os.environ)


def run_daemon() -> NoReturn:
    """Replaces this process by the daemon. Prints one line and exits with 1 if torch is missing, incomplete, or of
    another version."""
    libraries = _torch_libraries((_HERE / "torch-version").read_text().strip())
    # The programs search their own libraries before this path. In it, torch's libraries come before the caller's.
    others = os.environ.get("LD_LIBRARY_PATH")
    _run("permafrostd", {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{others}" if others else str(libraries)})


def _run(program: str, environment: Mapping[str, str]) -> NoReturn:
    # The program replaces this process, and so receives its signals and standard input, and gives its exit code.
    os.execve(_HERE / "bin" / program, sys.argv, environment)


def _torch_libraries(built: str) -> Path:
    """Returns the folder of torch's libraries. `built` is the version without a suffix, such as 2.13.0."""
    spec = find_spec("torch")
    # find_spec also finds a folder of that name without an __init__.py.
    if spec is None or spec.origin is None:
        _refuse(f"{sys.executable} has no torch, and the daemon needs torch {built}: pip install torch=={built}")
    torch = Path(spec.origin).parent
    found = _version(torch)
    if found.split("+")[0] != built:
        _refuse(f"torch {found} is in {torch}, and this daemon was built for torch {built}: "
                f"pip install torch=={built}, or install a wheel of Permafrost that was built for that torch")
    libraries = torch / "lib"
    if not (libraries / "libtorch_cpu.so").exists():
        _refuse(f"torch {found} in {torch} has no lib/libtorch_cpu.so: pip install --force-reinstall torch=={built}")
    return libraries


def _version(torch: Path) -> str:
    """Returns the value of `torch.__version__` without importing torch."""
    try:
        found = re.search(r"^__version__ = '([^']+)'", (torch / "version.py").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "of unknown version"


def _refuse(why: str) -> NoReturn:
    print(f"permafrostd: {why}", file=sys.stderr)
    raise SystemExit(1)
