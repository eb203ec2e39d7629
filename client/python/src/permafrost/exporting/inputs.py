"""Finds the inputs of `forward` by the names of its parameters, and makes the rows that a module is exported with."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch_geometric.data import Batch, Data

from permafrost.errors import InputError, shown
from permafrost.exporting.ints import Calls
from permafrost.exporting.sizes import Sizes

# The tensors that a forward may take. Each has the dimension that counts its rows, and the kind of its rows.
TENSORS = {
    "x": (0, "nodes"),
    "edge_index": (1, "edges"),
    "edge_attr": (0, "edges"),
    "edge_weight": (0, "edges"),
    "batch": (0, "nodes"),
    "pos": (0, "nodes"),
    "y": (0, ""),  # the kind is found from the example's size
    "edge_label_index": (1, "links"),
}
# The numbers that a forward may take as parameters or infer from values, and what each counts.
NUMBERS = {
    "batch_size": "graphs",
    "num_graphs": "graphs",
    "num_nodes": "nodes",
    "max_num_nodes": "nodes of the largest graph",
}
ACCEPTED = (*TENSORS, "batch_size", "num_graphs", "num_nodes")
_LISTED = ", ".join(ACCEPTED)
# An upper bound for any data's rows, from which torch knows that sizes and their sums do not overflow.
MOST_ROWS = 2**40


@dataclass
class Signature:
    """The parameters of a forward that an export passes."""

    required: list[str] = field(default_factory=list)
    optional: list[str] = field(default_factory=list)
    # The parameter that takes a Data, or "".
    data: str = ""


def read_signature(module: Any) -> Signature:
    """Reads the signature of a module's forward. Errors: InputError, which names an unknown parameter without a
    default."""
    taken = Signature()
    for name, parameter in inspect.signature(module.forward).parameters.items():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if name == "data" or _is_data(parameter.annotation):
            taken.data = name
        elif name in ACCEPTED:
            (taken.required if parameter.default is parameter.empty else taken.optional).append(name)
        elif parameter.default is parameter.empty:
            raise InputError(f"forward: the parameter {name!r} is unknown; accepted are {_LISTED}, and data for a Data")
    if not (taken.required or taken.optional or taken.data):
        raise InputError(f"forward: it takes none of {_LISTED}, nor a Data")
    return taken


def _is_data(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.rpartition(".")[2] in ("Data", "Batch")
    return annotation in (Data, Batch)


@dataclass
class Rows:
    """The values that a module is exported with. All their sizes differ from each other and from the module's own
    sizes, because torch takes sizes that are equal in the example for one size."""

    values: dict[str, Any]
    # Maps each input to the dimension that counts its rows (0 for a number), and to the kind of its rows.
    roles: dict[str, tuple[int, str]]
    sizes: dict[str, int]
    # The inputs of the exported programs, in order.
    names: list[str] = field(default_factory=list)
    # The fewest rows of each kind that the programs take. It starts at 2, since torch treats sizes 0 and 1 as
    # constants.
    least: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("nodes", "edges", "graphs", "links"), 2))

    def raise_least(self, error: str) -> bool:
        """Raises `least` to torch's suggestions. Returns false if torch suggests nothing new."""
        found = {role: int(least) for role, least in re.findall(r"\b(\w+) = Dim\('\1', min=(\d+)", error)}
        raised = {role: n for role, n in found.items() if self.least.get(role, n) < n < self.sizes[role]}
        self.least.update(raised)
        return bool(raised)

    def shown(self) -> str:
        return ", ".join(f"{self.sizes[role]} {role}" for role in self.least)

    def arguments(self) -> tuple[Any, ...]:
        return tuple(self.values[name] for name in self.names)

    def dynamic_shapes(self) -> dict[str, Any]:
        dims = {role: torch.export.Dim(role, min=least, max=MOST_ROWS) for role, least in self.least.items()}
        return {
            name: torch.export.Dim.DYNAMIC if name in NUMBERS else {self.roles[name][0]: dims[self.roles[name][1]]}
            for name in self.names
        }


def make_rows(taken: Signature, example: Any, module: Any) -> Rows:
    """Makes rows like the example's, as many as an export needs.

    Errors: InputError, which names a required input that the example lacks, or an input that does not fit.
    """
    given = _given(example)
    counts = _counts(given)
    wanted = [*TENSORS] if taken.data else [n for n in (*taken.required, *taken.optional) if n in TENSORS]
    graphs = taken.data or "batch" in taken.required or "batch" in given
    for name in taken.required:
        if name in TENSORS and name not in given and name != "batch":
            raise InputError(f"example: {name} is missing, which forward takes")
    sizes = _sizes(module, given)
    rows = Rows({}, {}, sizes)
    for name in wanted:
        if name == "batch":
            if graphs:
                rows.values[name] = _batch(sizes)
                rows.roles[name] = TENSORS[name]
        elif name in given:
            dim, role = TENSORS[name]
            role = role or _rows_of_y(given[name], counts, bool(graphs))
            rows.roles[name] = (dim, role)
            rows.values[name] = _repeated(name, given[name], dim, role, sizes)
    if not any(rows.roles[name][1] == "nodes" for name in rows.values) and "num_nodes" not in taken.required:
        raise InputError("example: it has none of x, pos and batch that forward takes; the number of nodes is needed")
    for name, role in NUMBERS.items():
        rows.values[name], rows.roles[name] = sizes[role], (0, role)
    return rows


def _given(example: Any) -> dict[str, torch.Tensor]:
    if isinstance(example, (list, tuple)) and example and all(isinstance(one, Data) for one in example):
        example = Batch.from_data_list(list(example))
    if isinstance(example, Data):
        example = {name: value for name, value in example.to_dict().items() if name in TENSORS and value is not None}
    if not isinstance(example, Mapping):
        raise InputError(f"example: a Data, a list of Data or a dict of tensors is needed, not {shown(example)}")
    found = {}
    for name, value in example.items():
        if name in ("batch_size", "num_graphs", "num_nodes"):
            continue
        if name not in TENSORS:
            raise InputError(f"example: {name!r} is unknown; accepted are {_LISTED}")
        dim = TENSORS[name][0]
        if not isinstance(value, torch.Tensor) or value.is_sparse or value.dim() <= dim or value.size(dim) == 0:
            raise InputError(f"example: {name} is no dense tensor with rows")
        found[name] = value.detach().cpu()
    return found


def _counts(given: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Returns how many rows of each kind the example has. Refuses tensors that disagree on it."""
    counts: dict[str, int] = {"graphs": int(given["batch"].max()) + 1 if "batch" in given else 1}
    for name, value in given.items():
        dim, role = TENSORS[name]
        if role and counts.setdefault(role, value.size(dim)) != value.size(dim):
            raise InputError(f"example: {name} has {value.size(dim)} {role}, others have {counts[role]}")
    return counts


def _rows_of_y(y: torch.Tensor, counts: Mapping[str, int], graphs: bool) -> str:
    order = ("graphs", "nodes", "links", "edges") if graphs else ("nodes", "links", "edges", "graphs")
    for role in order:
        if counts.get(role) == y.size(0):
            return role
    raise InputError(
        f"example: y has {y.size(0)} rows; accepted are " + ", ".join(f"{n} ({role})" for role, n in counts.items())
    )


def _sizes(module: Any, given: Mapping[str, torch.Tensor]) -> dict[str, int]:
    taken = {size for value in (*module.parameters(), *module.buffers()) for size in value.shape}
    for name, value in given.items():
        # Leaves out the number of rows, so that examples with the same columns give equal programs.
        taken.update(size for dim, size in enumerate(value.shape) if dim != TENSORS[name][0])

    def next_free(least: int, times: int = 1) -> int:
        prime = least
        while any(prime % n == 0 for n in range(2, prime)) or times * prime in taken:
            prime += 1
        taken.add(times * prime)
        return times * prime

    graphs = next_free(5)
    largest = next_free(graphs + 1)
    nodes = next_free(largest + graphs)
    # An even number, for modules that take edges in pairs.
    edges = next_free(nodes + 1, 2)
    return {
        "graphs": graphs,
        "nodes of the largest graph": largest,
        "nodes": nodes,
        "edges": edges,
        "links": next_free(edges + 1),
    }


def _batch(sizes: Mapping[str, int]) -> torch.Tensor:
    """Returns the graph of each node. The first graph is the largest, and the others share the remaining nodes."""
    others, largest = sizes["graphs"] - 1, sizes["nodes of the largest graph"]
    left = torch.arange(sizes["nodes"] - largest) % others + 1
    return torch.cat([torch.zeros(largest, dtype=torch.long), left.sort()[0]])


def _repeated(name: str, value: torch.Tensor, dim: int, role: str, sizes: Mapping[str, int]) -> torch.Tensor:
    """Repeats the example's rows until there are enough. Makes new indices."""
    count = sizes[role]
    if name in ("edge_index", "edge_label_index"):
        batch, at = _batch(sizes), torch.arange(count)
        source = at % sizes["nodes"]
        # The target is the next node of the same graph; the last node of a graph is its own target.
        target = torch.minimum(source + 1, torch.searchsorted(batch, batch[source], right=True) - 1)
        return torch.stack([source, target]).to(value.dtype)
    return value.index_select(dim, torch.arange(count) % value.size(dim)).contiguous()


class _Given(Data):  # type: ignore[misc]
    """A Data whose number of graphs is a size of the program instead of a constant."""

    @property
    def num_graphs(self) -> Any:
        return self.__dict__["_sizes"].value("graphs")

    @property
    def batch_size(self) -> Any:
        return self.num_graphs


def call(forward: Any, taken: Signature, values: Mapping[str, Any], sizes: Sizes) -> Any:
    """Calls a module's original forward with the values that it takes."""
    arguments = {name: values[name] for name in (*taken.required, *taken.optional) if name in values}
    if taken.data:
        data = _Given(**{name: values[name] for name in TENSORS if name in values})
        data.__dict__["_sizes"] = sizes
        arguments[taken.data] = data
    with sizes:
        return forward(**arguments)


def find_needed(module: Any, taken: Signature, rows: Rows, calls: Calls) -> torch.Size:
    """Runs the module once. Adds what it takes, reads or infers to the program's inputs. Returns the prediction's
    shape."""
    tensors = {name: value for name, value in rows.values.items() if name in TENSORS}
    direct = [n for n in (*taken.required, *taken.optional) if n in rows.values]
    if "batch" not in tensors:
        direct = [n for n in direct if n in taken.required or n not in ("batch_size", "num_graphs")]
    sizes = Sizes(tensors, rows.sizes, calls)
    values = {**tensors, **{name: rows.values[name] for name in direct}}
    result = call(module.forward, taken, values, sizes)
    _check_outputs(result, taken)
    needed = {*direct, *(sizes.read if taken.data else ())}
    for role, name in (("graphs", "num_graphs"), ("nodes of the largest graph", "max_num_nodes")):
        if role in sizes.inferred and not (role == "graphs" and {"batch_size", "num_graphs"} & needed):
            needed.add(name)
    rows.names = [name for name in (*TENSORS, *NUMBERS) if name in needed or name in rows.names]
    return (result[0] if isinstance(result, tuple) else result).shape


def _check_outputs(result: Any, taken: Signature) -> None:
    parts = result if isinstance(result, tuple) else (result,)
    if not parts or not all(isinstance(part, torch.Tensor) for part in parts) or len(parts) > 2:
        raise InputError(
            f"forward: it returns {shown(type(result).__name__)}; accepted are a prediction, and (prediction, loss)"
        )
    if not parts[0].is_floating_point() or parts[0].dim() == 0:
        raise InputError(f"forward: its prediction is {_kind(parts[0])}; floats with rows are accepted")
    if len(parts) == 2 and (parts[1].dim() != 0 or not parts[1].is_floating_point()):
        raise InputError(f"forward: its loss is {_kind(parts[1])}; one float is accepted")
    if len(parts) == 2 and not (taken.data or "y" in (*taken.required, *taken.optional)):
        raise InputError("forward: it returns a loss, but takes no y")


def _kind(value: Any) -> str:
    return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"


def wrap(module: Any, taken: Signature, rows: Rows, calls: Calls) -> Any:
    """Replaces the module's class by one whose forward takes the program's inputs one by one. The names of weights
    stay."""
    own = type(module).forward
    names = list(rows.names)

    def forward(self: Any, *arguments: Any) -> Any:
        values = dict(zip(names, arguments, strict=True))
        known = {NUMBERS[name]: value for name, value in values.items() if name in NUMBERS}
        tensors = {name: value for name, value in values.items() if name in TENSORS}
        for name, value in tensors.items():
            if rows.roles[name][1] == "nodes":
                known.setdefault("nodes", value.shape[0])
        return call(own.__get__(self), taken, values, Sizes(tensors, known, calls))

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind) for name in ("self", *names)]
    forward.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    cls = type(module)
    module.__class__ = type(cls.__name__, (cls,), {"forward": forward, "__module__": cls.__module__})
    return module
