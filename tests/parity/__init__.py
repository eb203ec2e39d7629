"""Comparison with PyG, and what the benchmarks share with it."""
