"""Tests the Python package, installed from its wheel, against the real daemon: `python -m pytest tests/python
--bin-dir build/bin`."""
