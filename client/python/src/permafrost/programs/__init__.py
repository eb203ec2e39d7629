"""Modules of the user's own as files that a server runs: `permafrost.export`. Needs PyTorch and PyG, but no server."""

from permafrost.programs.exporting import export

__all__ = ["export"]
