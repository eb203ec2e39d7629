"""Writes the file of a program: a PT2 archive of two forms over the same weights, and a description of both forms."""

from __future__ import annotations

import io
import json
import pathlib
import re
import secrets
from collections.abc import Mapping
from typing import Any

import torch
import torch_geometric
from torch.export.pt2_archive import _package
from torch.utils import _pytree

from permafrost.errors import InputError
from permafrost.exporting.inputs import NUMBERS, Rows

# The version of extra/permafrost.json's layout.
FORMAT = 1
_CONFIG = "data/weights/{}_weights_config.json"


def write(path: pathlib.Path, module: Any, programs: Mapping[str, Any], rows: Rows) -> None:
    described = json.dumps(_describe(module, programs, rows), indent=1)
    for program in programs.values():
        # The file keeps only the example's types and columns. Its values would make equal programs differ.
        program._example_inputs = _pytree.tree_map_only(torch.Tensor, torch.zeros_like, program.example_inputs)
    packed = io.BytesIO()
    _package.package_pt2(packed, exported_programs=dict(programs), extra_files={"permafrost.json": described})
    packed.seek(0)
    # Keeps an existing file until the new one is complete.
    half = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with (
            _package.PT2ArchiveReader(packed) as reader,
            open(half, "xb") as out,
            _package.PT2ArchiveWriter(out) as writer,
        ):
            _share_weights(reader, writer)
        half.replace(path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise


def _share_weights(reader: Any, writer: Any) -> None:
    """Copies an archive in which each form has its own weights, so that both forms use the weights of the first."""
    train, evaluated = (json.loads(reader.read_string(_CONFIG.format(form))) for form in ("train", "eval"))
    dropped = set()
    for name, weight in evaluated["config"].items():
        dropped.add("data/weights/" + weight["path_name"])
        weight["path_name"] = train["config"][name]["path_name"]
    for name in reader.get_file_names():
        if name == _CONFIG.format("eval"):
            writer.write_string(name, json.dumps(evaluated))
        elif name not in dropped:
            writer.write_bytes(name, reader.read_bytes(name))


def _inputs(program: Any) -> list[Any]:
    """Returns the example values of a form's inputs, in order."""
    placeholders = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    return [placeholders[name] for name in program.graph_signature.user_inputs]


def _describe(module: Any, programs: Mapping[str, Any], rows: Rows) -> dict[str, Any]:
    program = programs["train"]
    inputs = dict(zip(rows.names, _inputs(program), strict=True))
    roles, least = {}, {}
    for name, value in inputs.items():
        size, role = value if name in NUMBERS else value.shape[rows.roles[name][0]], rows.roles[name][1]
        roles[str(size)] = role
        least[role] = rows.least.get(role, 0)
        for form in programs.values():
            # The forms may name a size differently, so the place of the input identifies it.
            value = _inputs(form)[rows.names.index(name)]
            own = value if name in NUMBERS else value.shape[rows.roles[name][0]]
            least[role] = max(least[role], int(form.range_constraints[own.node.expr].lower))
    return {
        "format": FORMAT,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "module": f"{type(module).__module__}.{type(module).__qualname__}",
        "inputs": [
            {"name": name, **({"number": rows.roles[name][1]} if name in NUMBERS else _tensor(value, roles))}
            for name, value in inputs.items()
        ],
        # The fewest rows that both forms take.
        "least": least,
        "outputs": _outputs(program, roles),
        "parameters": [
            {"name": name, "shape": list(value.shape), "dtype": _dtype(value), "trained": value.requires_grad}
            for name, value in module.named_parameters(remove_duplicate=False)
        ],
        "buffers": [
            {"name": name, "shape": list(value.shape), "dtype": _dtype(value)}
            for name, value in module.named_buffers(remove_duplicate=False)
            if name in module.state_dict()
        ],
        "tied": _tied(module),
    }


def _outputs(program: Any, roles: Mapping[str, str]) -> list[dict[str, Any]]:
    nodes = {node.name: node.meta["val"] for node in program.graph.nodes if "val" in node.meta}
    values = [nodes[name] for name in program.graph_signature.user_outputs]
    names = ("prediction", "loss")[: len(values)]
    outputs = [{"name": name, **_tensor(value, roles)} for name, value in zip(names, values, strict=True)]
    if re.search(r"\bu\d", str(outputs[0]["shape"][0])):
        raise InputError(
            "forward: the number of rows of its prediction depends on the values of a tensor; take batch_size"
        )
    if outputs[0]["shape"][0] not in roles.values():
        raise InputError(
            f"forward: its prediction has {outputs[0]['shape'][0]} rows; accepted is one for each of "
            + ", ".join(sorted({role for role in roles.values() if "largest" not in role}))
        )
    return outputs


def _tensor(value: Any, roles: Mapping[str, str]) -> dict[str, Any]:
    shape = [size if isinstance(size, int) else roles.get(str(size), str(size)) for size in value.shape]
    return {"dtype": _dtype(value), "shape": shape}


def _dtype(value: Any) -> str:
    return str(value.dtype).removeprefix("torch.")


def _tied(module: Any) -> list[list[str]]:
    """Returns the names of each parameter that has several, in the module's order."""
    names: dict[int, list[str]] = {}
    for name, value in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(value), []).append(name)
    return [of_one for of_one in names.values() if len(of_one) > 1]
