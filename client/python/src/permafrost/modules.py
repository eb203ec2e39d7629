"""Modules of the user's own on a server: sent as programs, and given the weights of their jobs."""

from __future__ import annotations

import pathlib
import re
import sys
import tempfile
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import xxhash

from permafrost.connection import Connection
from permafrost.datasets import Dataset, Datasets
from permafrost.errors import InputError, needs
from permafrost.names import program_name
from permafrost.programs import Program, Programs

if TYPE_CHECKING:
    import torch

# The server's names have 63 characters at most: "-" and 8 digits follow.
_MOST_OF_CLASS = 54


def is_module(value: Any) -> bool:
    """Without an import of PyTorch: who has a module has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def send(
    connection: Connection, dataset: Dataset | str, module: Any, example: Any, loss: Any = None, links: bool = False
) -> Program:
    """Exports a module and imports the program, whose name tells its class and checksum: equal modules share one.

    example: as `permafrost.export` takes it; None: the dataset tells its columns, and the job's loss what labels are.
    """
    from permafrost.exporting.export import export, export_for

    with tempfile.TemporaryDirectory(prefix="permafrost-") as folder:
        path = pathlib.Path(folder) / "module.pt2"
        if example is None:
            proto = (dataset if isinstance(dataset, Dataset) else Datasets(connection).get(dataset)).proto
            if not (proto.HasField("graph_set") or proto.HasField("graph")):
                raise InputError(f"submit: {proto.name} is not ready, so that its columns are unknown; give example=")
            export_for(module, proto, path, loss, links)
        else:
            export(module, example, path)
        name = f"{_name_of(type(module))}-{xxhash.xxh3_64_hexdigest(path.read_bytes())[:8]}"
        return Programs(connection).import_file(name, path, progress=False)


def _name_of(cls: type) -> str:
    """ "my-net" of MyNet."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", cls.__name__).lower()
    name = re.sub(r"[^a-z0-9]+", "-", words).lstrip("-0123456789")[:_MOST_OF_CLASS].rstrip("-")
    return name or "module"


def named_program(model: Any) -> Any:
    """Turns a `Program`, or a dict that names one, into the server's fields; returns other models unchanged."""
    if isinstance(model, Program):
        return {"program": program_name(model)}
    if isinstance(model, Mapping) and model.get("program"):
        return {**model, "program": program_name(model["program"])}
    return model


def load(module: torch.nn.Module, path: pathlib.Path) -> None:
    """Copies weights into a module, all or none. Errors: InputError for a name or a shape that only one of both has."""
    try:
        import torch
        from safetensors.torch import load_file
    except ImportError as error:
        raise needs("job.load_into()", "pyg", error) from None
    weights = load_file(path)
    own = {
        **dict(module.named_parameters(remove_duplicate=False)),
        **dict(module.named_buffers(remove_duplicate=False)),
    }
    # A tensor with several names is saved under one of them. A buffer outside the state_dict is saved only if steps
    # write to it.
    saved = {id(own[name]) for name in weights if name in own}
    missing = [name for name in module.state_dict() if name in own and id(own[name]) not in saved]
    unknown = [name for name in weights if name not in own]
    other = [
        f"{name} is {list(own[name].shape)}, its weights {list(value.shape)}"
        for name, value in weights.items()
        if name in own and own[name].shape != value.shape
    ]
    wrong = [f"{name} has no weights" for name in missing] + [f"there is no {name}" for name in unknown] + other
    if wrong:
        more = f", and {len(wrong) - 3} more" if len(wrong) > 3 else ""
        raise InputError(f"load_into: {type(module).__name__}: {'; '.join(wrong[:3])}{more}")
    with torch.no_grad():
        for name, value in weights.items():
            own[name].copy_(value)
