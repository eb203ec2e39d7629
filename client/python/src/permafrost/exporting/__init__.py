"""Exports the user's own modules as programs, which are files that a server trains: `export`. Needs PyTorch and PyG,
but no server."""

from permafrost.exporting.export import export

__all__ = ["export"]
