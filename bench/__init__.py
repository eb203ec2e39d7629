"""Benchmarks of Permafrost; `bench/run list` names them."""
