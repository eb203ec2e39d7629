"""Tests every benchmark in a run of a few seconds."""
