"""Exports the modules of tests/python/nets.py by `permafrost.export`, with results that PyTorch computes with them,
for tests/program/client_exports_test.cc.

usage: export_nets.py OUT [NAME...]   (all modules that a server runs if none is named)

Writes the files of export_modules.py. For a module that returns a loss it also writes `loss`, whose gradients it then
writes.
"""

import copy
import sys
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "client" / "python" / "src")]

try:
    import torch
    from export_modules import save

    from permafrost import export
    from tests.python.net_data import another, call, example_for
    from tests.python.nets import NETS
except ModuleNotFoundError as error:  # torch, PyG or gRPC is absent
    print(f"export_nets: {error}", file=sys.stderr)
    sys.exit(77)



def write(name: str, out: Path) -> None:
    torch.manual_seed(7)
    module = NETS[name]()
    export(module, example_for(name), out / f"{name}.pt2")
    batch, values = another(name)
    record = {f"in.{key}": torch.as_tensor(value) for key, value in values.items()}
    record["eval"] = first(call(name, copy.deepcopy(module).eval(), batch, values))
    torch.manual_seed(11)
    output = call(name, module.train(), batch, values)
    record["train"] = first(output)
    if isinstance(output, tuple):
        record["loss"] = output[1]
    record.get("loss", record["train"].square().sum()).backward()
    record |= {f"grad.{key}": value.grad for key, value in module.named_parameters() if value.grad is not None}
    record |= {f"buffer.{key}": value for key, value in module.named_buffers()}
    save(record, out / name)


def first(output: torch.Tensor | tuple[torch.Tensor, ...]) -> torch.Tensor:
    return output[0] if isinstance(output, tuple) else output


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for name in arguments[1:] or sorted(NETS):
        try:
            write(name, Path(arguments[0]))
        except Exception as error:
            raise SystemExit(f"export_nets: {name}: {error}") from error


if __name__ == "__main__":
    main(sys.argv[1:])
