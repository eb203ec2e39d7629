"""Compares the server with PyG, and holds what the benchmarks share with these tests."""
