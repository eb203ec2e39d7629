"""The programs of the wheel that deploy/wheel makes: `permafrost`, the client, and `permafrostd`, the daemon.

The daemon runs on this Python's torch, with CUDA or without, which must have exactly the version that it was built for.
Torch is found and not imported: that would take seconds, and the daemon needs its libraries only.
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
    """Becomes the daemon. Prints one line and exits with 1 if torch is missing, of another version or incomplete."""
    libraries = _torch_libraries((_HERE / "torch-version").read_text().strip())
    # The programs find their own libraries before this path; in it, torch's come before the caller's.
    others = os.environ.get("LD_LIBRARY_PATH")
    _run("permafrostd", {**os.environ, "LD_LIBRARY_PATH": f"{libraries}:{others}" if others else str(libraries)})


def _run(program: str, environment: Mapping[str, str]) -> NoReturn:
    # The program replaces this process, so that signals, standard input and the exit code are its own.
    os.execve(_HERE / "bin" / program, sys.argv, environment)


def _torch_libraries(built: str) -> Path:
    """The folder of torch's libraries; `built` is the version without suffix, such as 2.13.0."""
    spec = find_spec("torch")
    # A folder of that name on the path, without an __init__.py, is found as well.
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
    """Reads what `torch.__version__` would be, without importing torch."""
    try:
        found = re.search(r"^__version__ = '([^']+)'", (torch / "version.py").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else "of unknown version"


def _refuse(why: str) -> NoReturn:
    print(f"permafrostd: {why}", file=sys.stderr)
    raise SystemExit(1)
