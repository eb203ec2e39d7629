"""Supplies numbers that modules infer from values, such as `int(batch.max()) + 1`, from the inputs of the program."""

from __future__ import annotations

import inspect
import operator
import sys
import threading
from collections.abc import Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.utils import to_dense_batch

from permafrost.exporting.ints import Calls

# Functions whose result holds exactly the values of their first argument.
# fmt: off
_SAME_VALUES = frozenset((
    "view", "view_as", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "expand_as", "clone", "contiguous",
    "long", "detach", "t", "transpose", "permute",
))
# fmt: on
_ADDITIONS = frozenset(("add", "__add__", "__radd__", "add_", "__iadd__"))
# Maps functions that make new tensors to the values that they fill them with.
_FILLED = {name: value for value in ("ones", "zeros") for name in (f"new_{value}", value, f"{value}_like")}
# An export may replace the code of these functions while it runs.
_DENSE_BATCH = inspect.unwrap(to_dense_batch)
_CHECK_OF_ORDER = inspect.unwrap(Aggregation.assert_sorted_index)
_active = threading.local()


class Sizes(TorchFunctionMode):  # type: ignore[misc]
    """Follows indices of graphs and nodes through a forward, and knows their largest values.

    `batch` is sorted, and the last graph may be empty. Threads: a mode applies only to its own thread.
    """

    def __init__(self, inputs: Mapping[str, Any], known: Mapping[str, Any], calls: Calls) -> None:
        super().__init__()
        self._calls = calls
        # The names of inputs that were read, and of numbers that were inferred.
        self.read: set[str] = set()
        self.inferred: set[str] = set()
        self._known = known
        self._names = {id(value): name for name, value in inputs.items()}
        # Three tables by the id of a tensor. Each keeps the tensor alive, so that its id stays valid. The first says
        # what a tensor's values index or are filled with, the second which known number the tensor holds, and the
        # third which nodes a dense batch's mask selects.
        self._indexes: dict[int, tuple[Any, str]] = {}
        self._numbers: dict[int, tuple[Any, str, int]] = {}
        self._masks: dict[int, tuple[Any, Any]] = {}
        for name, role in (("batch", "graphs"), ("edge_index", "nodes"), ("edge_label_index", "nodes")):
            if name in inputs and role in known:
                self._indexes[id(inputs[name])] = (inputs[name], role)

    def __enter__(self) -> Any:
        self._outer = getattr(_active, "sizes", None)
        _active.sizes = self
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        _active.sizes = self._outer
        super().__exit__(*error)

    def value(self, role: str) -> Any:
        self.inferred.add(role)
        return self._known[role]

    def number(self, tensor: Any) -> Any:
        """Returns the number that a tensor holds if it is known without reading the tensor, or None."""
        found = self._numbers.get(id(tensor))
        if found is None:
            return None
        value = self.value(found[1])
        # If nothing is added, returns the very object, by which `_follow_mask` recognises it.
        return value + found[2] if found[2] else value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        for value in (*args, *kwargs.values()):
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if id(one) in self._names:
                    self.read.add(self._names[id(one)])
        first: Any = args[0] if args else None
        if name in ("item", "__int__") and (number := self.number(first)) is not None:
            # Python's `int` around `.item()` would turn the size into a constant, so the caller is remembered.
            self._calls.found(sys._getframe(1))
            if name == "item" or isinstance(number, int):
                return number
        if name == "__bool__" and self._is_check_of_order(sys._getframe(1)):
            return True
        if name == "__getitem__" and isinstance(args[1], torch.Tensor) and id(args[1]) in self._masks:
            mask, nodes = self._masks[id(args[1])]
            return first.flatten(0, mask.dim() - 1).index_select(0, nodes)
        result = _call(func, args, kwargs)
        if isinstance(first, torch.Tensor) or name in _FILLED:
            self._follow(name, first, args, kwargs, result)
            self._follow_mask(name, first, args, result, sys._getframe(1))
        return result

    def _follow(self, name: str, first: Any, args: Any, kwargs: Any, result: Any) -> None:
        values = self._values(first)
        number = self._numbers.get(id(first))
        if _changes_first(name):
            self._indexes.pop(id(first), None)
            self._numbers.pop(id(first), None)
        if name in _FILLED:
            self._indexes[id(result)] = (result, _FILLED[name])
        elif name in ("scatter_add", "scatter_add_") and len(args) == 4:
            if (values, self._values(args[2]), self._values(args[3])) == ("zeros", "graphs", "ones"):
                self._indexes[id(result)] = (result, "counts")
        elif name in ("max", "amax") and len(args) == 1 and not kwargs:
            if values == "counts" and name == "max" and "nodes of the largest graph" in self._known:
                self._numbers[id(result)] = (result, "nodes of the largest graph", 0)
            elif values in ("graphs", "nodes"):
                self._numbers[id(result)] = (result, values, -1)
        elif values == "graphs" and name == "__getitem__" and type(args[1]) is int and args[1] == -1:
            self._numbers[id(result)] = (result, "graphs", -1)
        elif values and _keeps_all_values(name, first, args, result):
            self._indexes[id(result)] = (result, values)
        elif number and name in _ADDITIONS and type(args[1]) is int and not kwargs:
            self._numbers[id(result)] = (result, number[1], number[2] + args[1])

    def _values(self, tensor: Any) -> str:
        return self._indexes.get(id(tensor), (None, ""))[1]

    def _follow_mask(self, name: str, first: Any, args: Any, result: Any, caller: Any) -> None:
        """Remembers a dense batch's mask. It selects exactly the batch's nodes, in order, if its width is the size of
        the largest graph."""
        if name == "__setitem__" and caller.f_code is _DENSE_BATCH.__code__ and first.dtype is torch.bool:
            width = caller.f_locals.get("max_num_nodes")
            if width is not None and width is self._known.get("nodes of the largest graph"):
                self._masks[id(first)] = (first, args[1])
        elif id(first) in self._masks and name in ("__getitem__", "view"):
            self._masks[id(result)] = (result, self._masks[id(first)][1])

    def _is_check_of_order(self, caller: Any) -> bool:
        if caller.f_code is not _CHECK_OF_ORDER.__code__:
            return False
        return self._values(caller.f_locals.get("index")) == "graphs"


def _call(func: Any, args: Any, kwargs: Any) -> Any:
    """Copies a result to `out`, because programs have no operators that write to `out`."""
    out = kwargs.get("out")
    if not isinstance(out, torch.Tensor):
        return func(*args, **kwargs)
    result = func(*args, **{name: value for name, value in kwargs.items() if name != "out"})
    if not isinstance(result, torch.Tensor) or (result.shape, result.dtype) != (out.shape, out.dtype):
        return func(*args, **kwargs)
    return out.copy_(result)


def _changes_first(name: str) -> bool:
    if name.startswith("__"):
        return name == "__setitem__" or (name.startswith("__i") and name not in ("__index__", "__int__", "__invert__"))
    return name.endswith("_")


def _keeps_all_values(name: str, first: Any, args: Any, result: Any) -> bool:
    """Returns whether the result holds all values of its first argument. A part of an index may lack the largest
    value."""
    if name == "__getitem__":
        parts = args[1] if isinstance(args[1], tuple) else (args[1],)
        return all(part is None or part is Ellipsis or part == slice(None) for part in parts)
    if name == "to":
        return isinstance(result, torch.Tensor) and result.dtype in (first.dtype, torch.int64)
    return name in _SAME_VALUES


def as_int(value: Any) -> Any:
    """Works as Python's `int`, except that sizes, and tensors that hold a size, give a symbolic size."""
    sizes: Sizes | None = getattr(_active, "sizes", None)
    if sizes is not None:
        if isinstance(value, torch.SymInt):
            return value
        if (number := sizes.number(value)) is not None:
            return number
    return int(value)


def erase_unused(program: Any) -> None:
    """Erases unused maxima and additions to them, which sizes have replaced."""
    targets = (torch.ops.aten.max.default, torch.ops.aten.amax.default, torch.ops.aten.add.Tensor, operator.add)
    for node in reversed(list(program.graph.nodes)):
        if node.target in targets and not node.users:
            program.graph.erase_node(node)
    program.graph_module.recompile()
