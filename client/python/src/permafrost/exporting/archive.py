"""The file that a program is: a PT2 archive of two forms over the same weights, and a description of both."""

from __future__ import annotations

import io
import json
import pathlib
from collections.abc import Mapping
from typing import Any

import torch
import torch_geometric
from torch.export.pt2_archive import _package

from permafrost.errors import InputError
from permafrost.exporting.inputs import NUMBERS, Rows

# The version of what extra/permafrost.json holds.
FORMAT = 1
_CONFIG = "data/weights/{}_weights_config.json"


def write(path: pathlib.Path, module: Any, programs: Mapping[str, Any], rows: Rows) -> None:
    described = json.dumps(_describe(module, programs["train"], rows), indent=1)
    packed = io.BytesIO()
    _package.package_pt2(packed, exported_programs=dict(programs), extra_files={"permafrost.json": described})
    packed.seek(0)
    with (
        _package.PT2ArchiveReader(packed) as reader,
        open(path, "wb") as out,
        _package.PT2ArchiveWriter(out) as writer,
    ):
        _share_weights(reader, writer)


def _share_weights(reader: Any, writer: Any) -> None:
    """Copies an archive, in which every form has weights of its own, with the first form's weights for both."""
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


def _describe(module: Any, program: Any, rows: Rows) -> dict[str, Any]:
    placeholders = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    inputs = dict(zip(rows.names, (placeholders[name] for name in program.graph_signature.user_inputs), strict=True))
    roles, least = {}, {}
    for name, value in inputs.items():
        size, role = value if name in NUMBERS else value.shape[rows.roles[name][0]], rows.roles[name][1]
        roles[str(size)] = role
        least[role] = int(program.range_constraints[size.node.expr].lower)
    return {
        "format": FORMAT,
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "module": f"{type(module).__module__}.{type(module).__qualname__}",
        "inputs": [
            {"name": name, **({"number": rows.roles[name][1]} if name in NUMBERS else _tensor(value, roles))}
            for name, value in inputs.items()
        ],
        # The fewest rows that a batch may have; padding is for batches with fewer.
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
    """Names of the same parameter, the first name first."""
    names: dict[int, list[str]] = {}
    for name, value in module.named_parameters(remove_duplicate=False):
        names.setdefault(id(value), []).append(name)
    return [of_one for of_one in names.values() if len(of_one) > 1]
