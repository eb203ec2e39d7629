"""Modules of the user's own as files: `export`. Needs PyTorch and PyG, but no server; no server reads the files yet."""

from permafrost.exporting.export import export

__all__ = ["export"]
