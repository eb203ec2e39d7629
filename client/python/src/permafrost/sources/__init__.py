"""Writes Python's data as files in formats that the server reads. Each kind has a module, imported on first use."""
