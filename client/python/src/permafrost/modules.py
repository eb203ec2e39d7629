"""Sends the user's own modules to a server as programs, and loads the weights of their jobs into them."""

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

# The server's names have 63 characters at most, and "-" and 8 digits follow the class.
_MOST_OF_CLASS = 54


def is_module(value: Any) -> bool:
    """Returns whether the value is a module. Does not import PyTorch: a caller who has a module has imported it."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def send(
    connection: Connection, dataset: Dataset | str, module: Any, example: Any, loss: Any = None, links: bool = False
) -> Program:
    """Exports a module and imports the program. The program's name holds the module's class and the file's checksum,
    so that equal modules share one program.

    example: an example for `permafrost.export`. If it is None, the dataset gives the columns, and the job's loss the
    type of labels.
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
    """Returns the class's name as a part of a program's name: "my-net" for MyNet."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "-", cls.__name__).lower()
    name = re.sub(r"[^a-z0-9]+", "-", words).lstrip("-0123456789")[:_MOST_OF_CLASS].rstrip("-")
    return name or "module"


def named_program(model: Any) -> Any:
    """Converts a `Program`, or a dict that names one, to the server's fields. Returns other models unchanged."""
    if isinstance(model, Program):
        return {"program": program_name(model)}
    if isinstance(model, Mapping) and model.get("program"):
        return {**model, "program": program_name(model["program"])}
    return model


def load(module: torch.nn.Module, path: pathlib.Path) -> None:
    """Copies weights into a module, all or none. Errors: InputError for a name or a shape that differs."""
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
