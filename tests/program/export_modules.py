"""Exports PyG modules as `.pt2` archives, with results that PyTorch computes with them, for cached_exports.py.

OUT/NAME.pt2 holds the forms train and eval. OUT/NAME.json has the place, type and sizes of each tensor in NAME.bin,
by name. The tensors are for a batch of another shape than the export's. They are the inputs (`in.NAME`), and the
output of the eval form before the step (`eval`). Of one step of the train form, they are the output (`train`), the
gradients of the sum of its squares (`grad.PARAMETER`) and the buffers (`buffer.NAME`).

OUT/NAME.N-E-G.json and .bin hold the same for a small batch of N nodes, E edges and G graphs, computed by the module
as it was exported. They have no `train` if PyTorch refuses the step.
"""

import copy
import inspect
import json
from pathlib import Path
from typing import Any

import torch
from modules import MODULES, Batch, batch, specification
from torch.export import export
from torch.export.pt2_archive._package import package_pt2


def inputs_of(module: torch.nn.Module, values: Batch) -> Batch:
    return {name: values[name] for name in inspect.signature(module.forward).parameters}


def exported(module: torch.nn.Module) -> torch.export.ExportedProgram:
    example = inputs_of(module, batch(40, 90, 5, seed=1))
    return export(module, (), kwargs=example, dynamic_shapes=specification(example), strict=False)


def save(tensors: dict[str, torch.Tensor], path: Path) -> None:
    index: dict[str, dict[str, Any]] = {}
    with Path(f"{path}.bin").open("wb") as file:
        for key, tensor in tensors.items():
            value = tensor.detach().contiguous()
            index[key] = {
                "place": file.tell(),
                "dtype": str(value.dtype).removeprefix("torch."),
                "sizes": list(value.shape),
            }
            file.write(value.view(-1).view(torch.uint8).numpy().tobytes())
    Path(f"{path}.json").write_text(json.dumps(index))


# Smaller than the minimum that torch.export gives a program: one node without an edge, one graph, one edge.
SMALL = [(1, 0, 1), (5, 7, 1), (6, 1, 3)]


def computed(module: torch.nn.Module, values: Batch) -> dict[str, torch.Tensor]:
    record = {f"in.{key}": torch.tensor(value) for key, value in values.items() if isinstance(value, int)}
    record |= {f"in.{key}": value for key, value in values.items() if isinstance(value, torch.Tensor)}
    record["eval"] = module.eval()(**values)
    torch.manual_seed(11)
    try:
        record["train"] = module.train()(**values)
    except ValueError:  # batch statistics of one row
        return record
    record["train"].square().sum().backward()
    record |= {f"grad.{key}": value.grad for key, value in module.named_parameters() if value.grad is not None}
    return record | {f"buffer.{key}": value for key, value in module.named_buffers()}


def write(name: str, out: Path) -> None:
    torch.manual_seed(7)
    module = MODULES[name]()
    forms = {"train": exported(module.train()), "eval": exported(module.eval())}
    package_pt2(str(out / f"{name}.pt2"), exported_programs=forms)
    for nodes, edges, graphs in SMALL:
        values = inputs_of(module, batch(nodes, edges, graphs, seed=3))
        save(computed(copy.deepcopy(module), values), out / f"{name}.{nodes}-{edges}-{graphs}")
    save(computed(module, inputs_of(module, batch(53, 131, 7, seed=2))), out / name)
