"""Tests in Python, run as modules from the repository's root: `python -m tests.parity.parity_test`."""
