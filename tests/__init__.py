"""Tests in Python, run as modules from the repository's root: `python -m tests.parity.parity_test`."""

import pathlib
import sys

# The server's models are compared with the PyG modules of the Python package.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "client" / "python" / "src"))
