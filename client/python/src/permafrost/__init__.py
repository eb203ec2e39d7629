"""Trains graph neural networks on a Permafrost server.

Every program begins with a `Client`, and every error is a `PermafrostError`. `permafrost.models` holds the PyG
modules that equal the server's models. It needs neither a server nor gRPC. `export` writes a module of your own as a
program, which a server trains.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from permafrost.artifacts import LinkPrediction
    from permafrost.cache import Cache
    from permafrost.client import Client
    from permafrost.datasets import Dataset, Datasets
    from permafrost.errors import (
        Aborted,
        AlreadyExists,
        Cancelled,
        DataLoss,
        DeadlineExceeded,
        FailedPrecondition,
        ImportFailed,
        InputError,
        Internal,
        InvalidArgument,
        JobFailed,
        NotFound,
        PermafrostError,
        PermissionDenied,
        ResourceExhausted,
        Unauthenticated,
        Unavailable,
        Unimplemented,
        Violation,
    )
    from permafrost.exporting import export
    from permafrost.job import Job
    from permafrost.jobs import Jobs
    from permafrost.programs import Program, Programs
    from permafrost.servers import Servers
    from permafrost.uploads import Upload, Uploads

# Maps each public name to its module. The module is imported on first use, so that `permafrost.models` needs no gRPC.
_HOMES = {
    "Cache": "cache",
    "Client": "client",
    "Dataset": "datasets",
    "Datasets": "datasets",
    "Job": "job",
    "Jobs": "jobs",
    "LinkPrediction": "artifacts",
    "Program": "programs",
    "Programs": "programs",
    "Servers": "servers",
    "Upload": "uploads",
    "Uploads": "uploads",
    "export": "exporting",
    **dict.fromkeys(
        (
            "Aborted",
            "AlreadyExists",
            "Cancelled",
            "DataLoss",
            "DeadlineExceeded",
            "FailedPrecondition",
            "ImportFailed",
            "InputError",
            "Internal",
            "InvalidArgument",
            "JobFailed",
            "NotFound",
            "PermafrostError",
            "PermissionDenied",
            "ResourceExhausted",
            "Unauthenticated",
            "Unavailable",
            "Unimplemented",
            "Violation",
        ),
        "errors",
    ),
}

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Cache",
    "Cancelled",
    "Client",
    "DataLoss",
    "Dataset",
    "Datasets",
    "DeadlineExceeded",
    "FailedPrecondition",
    "ImportFailed",
    "InputError",
    "Internal",
    "InvalidArgument",
    "Job",
    "JobFailed",
    "Jobs",
    "LinkPrediction",
    "NotFound",
    "PermafrostError",
    "PermissionDenied",
    "Program",
    "Programs",
    "ResourceExhausted",
    "Servers",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Upload",
    "Uploads",
    "Violation",
    "export",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'permafrost' has no attribute {name!r}")
    return getattr(import_module(f"permafrost.{_HOMES[name]}"), name)
