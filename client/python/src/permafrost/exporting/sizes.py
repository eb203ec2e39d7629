"""Numbers that modules infer from values, such as `int(batch.max()) + 1`: an export gives them from its inputs."""

from __future__ import annotations

import builtins
import contextlib
import inspect
import operator
import sys
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch_geometric.nn.aggr import Aggregation
from torch_geometric.utils import to_dense_batch

# Functions whose result holds no values but their first argument's.
# fmt: off
_SAME_VALUES = frozenset((
    "view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "expand_as", "clone", "contiguous", "to", "long",
    "detach", "index_select", "__getitem__", "select", "narrow", "unbind", "repeat", "repeat_interleave",
    "masked_select",
))
# fmt: on
_ADDITIONS = frozenset(("add", "__add__", "__radd__"))
_DENSE_BATCH = inspect.unwrap(to_dense_batch).__code__
_CHECK_OF_ORDER = inspect.unwrap(Aggregation.assert_sorted_index).__code__
_EXPORTS = threading.Lock()
_active = threading.local()


class Sizes(TorchFunctionMode):  # type: ignore[misc]
    """Follows indices of graphs and nodes through a forward, and knows their largest values.

    `batch` is sorted, and the last graph may be empty. Threads: a mode is its thread's own.
    """

    def __init__(self, inputs: Mapping[str, Any], known: Mapping[str, Any]) -> None:
        super().__init__()
        # Names of inputs that were read, and numbers that were inferred.
        self.read: set[str] = set()
        self.inferred: set[str] = set()
        self._known = known
        self._names = {id(value): name for name, value in inputs.items()}
        # By id, with the tensor, which must live for as long as its id counts: what its values index, its one value,
        # and the nodes that a mask of a dense batch lets through.
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
        """The value of a tensor that is known without its values, or None."""
        found = self._numbers.get(id(tensor))
        if found is None:
            return None
        value = self.value(found[1])
        # The object itself where nothing is added, by which `_follow_mask` knows it.
        return value + found[2] if found[2] else value

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        for value in (*args, *kwargs.values()):
            for one in value if isinstance(value, (list, tuple)) else (value,):
                if id(one) in self._names:
                    self.read.add(self._names[id(one)])
        first: Any = args[0] if args else None
        if name == "item" and (number := self.number(first)) is not None:
            return number
        if name == "__bool__" and self._is_check_of_order(sys._getframe(1)):
            return True
        if name == "__getitem__" and isinstance(args[1], torch.Tensor) and id(args[1]) in self._masks:
            mask, nodes = self._masks[id(args[1])]
            return first.flatten(0, mask.dim() - 1).index_select(0, nodes)
        result = func(*args, **kwargs)
        if isinstance(first, torch.Tensor) or name in ("ones", "ones_like"):
            self._follow(name, first, args, kwargs, result)
            self._follow_mask(name, first, args, result, sys._getframe(1))
        return result

    def _follow(self, name: str, first: Any, args: Any, kwargs: Any, result: Any) -> None:
        index = self._indexes.get(id(first))
        number = self._numbers.get(id(first))
        if name in ("new_ones", "ones", "ones_like"):
            self._indexes[id(result)] = (result, "ones")
        elif name in ("scatter_add", "scatter_add_") and len(args) == 4:
            of = self._indexes.get(id(args[2]), (None, ""))[1]
            if of == "graphs" and self._indexes.get(id(args[3]), (None, ""))[1] == "ones":
                self._indexes[id(result)] = (result, "counts")
        elif index and index[1] == "counts":
            if name == "max" and len(args) == 1 and not kwargs and "nodes of the largest graph" in self._known:
                self._numbers[id(result)] = (result, "nodes of the largest graph", 0)
        elif index and name in ("max", "amax") and len(args) == 1 and not kwargs and index[1] != "ones":
            self._numbers[id(result)] = (result, index[1], -1)
        elif index and index[1] == "graphs" and name == "__getitem__" and type(args[1]) is int and args[1] == -1:
            self._numbers[id(result)] = (result, "graphs", -1)
        elif index and name in _SAME_VALUES:
            for one in result if isinstance(result, (list, tuple)) else (result,):
                self._indexes[id(one)] = (one, index[1])
        elif number and name in _ADDITIONS and type(args[1]) is int:
            self._numbers[id(result)] = (result, number[1], number[2] + args[1])

    def _follow_mask(self, name: str, first: Any, args: Any, result: Any, caller: Any) -> None:
        """A dense batch's mask lets exactly its nodes through, in their order, if the largest graph gave its width."""
        if name == "__setitem__" and caller.f_code is _DENSE_BATCH and first.dtype is torch.bool:
            width = caller.f_locals.get("max_num_nodes")
            if width is not None and width is self._known.get("nodes of the largest graph"):
                self._masks[id(first)] = (first, args[1])
        elif id(first) in self._masks and name in ("__getitem__", "view"):
            self._masks[id(result)] = (result, self._masks[id(first)][1])

    def _is_check_of_order(self, caller: Any) -> bool:
        if caller.f_code is not _CHECK_OF_ORDER:
            return False
        return self._indexes.get(id(caller.f_locals.get("index")), (None, ""))[1] == "graphs"


class _IntType(type):
    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, builtins.int)

    def __subclasscheck__(cls, other: Any) -> bool:
        return issubclass(other, builtins.int)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        sizes = getattr(_active, "sizes", None)
        if sizes is not None and len(args) == 1 and (number := sizes.number(args[0])) is not None:
            return number
        return builtins.int(*args, **kwargs)


class _Int(metaclass=_IntType):
    """Python's `int`, but for tensors whose number is a size: Python's own can return no symbolic size."""


@contextlib.contextmanager
def inferred_sizes(module: Any) -> Iterator[None]:
    """While this is entered, `int(batch.max())` is a size of the program where `Sizes` are entered too."""
    names = {cls.__module__ for part in module.modules() for cls in type(part).__mro__}
    roots = ("torch_geometric", *(name for name in names if name.partition(".")[0] not in ("torch", "builtins")))
    with _EXPORTS:
        changed = []
        try:
            for name, loaded in list(sys.modules.items()):
                if loaded is not None and (name in roots or name.startswith("torch_geometric.")):
                    space = vars(loaded)
                    if "int" not in space:
                        space["int"] = _Int
                        changed.append(space)
            yield
        finally:
            for space in changed:
                del space["int"]


def erase_unused(program: Any) -> None:
    """Erases the largest values that nothing reads, for sizes took their place."""
    targets = (torch.ops.aten.max.default, torch.ops.aten.amax.default, torch.ops.aten.add.Tensor, operator.add)
    for node in reversed(list(program.graph.nodes)):
        if node.target in targets and not node.users:
            program.graph.erase_node(node)
    program.graph_module.recompile()
