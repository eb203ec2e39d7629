"""Explains why a module cannot be exported: the line of the user's code that prevents it, and what to write instead."""

from __future__ import annotations

import itertools
import linecache
import logging
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

from permafrost.errors import InputError

_OF_LIBRARIES = frozenset(("torch", "torch_geometric", "permafrost", *sys.stdlib_module_names)) - {"__main__"}
_EDGE_BUILDERS = re.compile(r"\b(knn|knn_graph|radius|radius_graph|RadiusInteractionGraph|fps|approx_knn_graph)\b")
_BUILDS_EDGES = "edges are built in forward; build them in the dataset, by a transform, and take edge_index"
# One frame of a node's stack_trace: its file, its line number, and the text of that line.
_FRAME = re.compile(r'File "([^"]+)", line (\d+), in .*\n\s*(.*)')
_Place = tuple[str, int]


def refused(error: BaseException, module: Any, sizes: str, again: Callable[[], Any]) -> InputError:
    """Returns an error of one line for an exception of an export: where it happened, what prevents the export, and
    what to do.

    sizes: how many rows the module was run with.
    again: repeats the call that raised, to find the line that makes a size constant.
    """
    text = " ".join(str(error).split())
    frames = [_frame(frame, number) for frame, number in traceback.walk_tb(error.__traceback__)]
    if "Constraints violated" in text:
        reason = _constant(text)
        place = _line_of_guard(again)
    else:
        place = _innermost(frames)
        reason = _reason(error, text, place, frames, sizes)
    return InputError(f"{_shown(place) or type(module).__name__}: {reason}")


def _frame(frame: FrameType, number: int) -> tuple[str, _Place]:
    return frame.f_globals.get("__name__", ""), (frame.f_code.co_filename, number)


def _innermost(frames: Iterable[tuple[str, _Place]]) -> _Place | None:
    """Returns the innermost line of the user's code, or else of PyG's code."""
    users, pyg = None, None
    for name, place in frames:
        root = name.partition(".")[0]
        if root not in _OF_LIBRARIES:
            users = place
        elif root == "torch_geometric":
            pyg = place
    return users or pyg


def _line(place: _Place) -> str:
    return linecache.getline(*place).strip()


def _shown(place: _Place | None) -> str:
    return f"{os.path.basename(place[0])}:{place[1]}: `{_line(place)}`" if place else ""


def _reason(error: BaseException, text: str, place: _Place | None, frames: Any, sizes: str) -> str:
    kind = type(error).__name__
    line = _line(place) if place else ""
    if any(_EDGE_BUILDERS.search(_line(of_one)) for name, of_one in frames if name.partition(".")[0] != "torch"):
        return _BUILDS_EDGES
    if "DataDependent" in kind or "data-dependent" in text:
        if re.match(r"(if|elif|while|assert)\b", line) or " if " in line:
            return "Python branches on the values of a tensor; use torch.where, or branch on sizes"
        return (
            "a size or a number depends on the values of a tensor (.item(), int(), a mask); "
            "compute with tensors, or take batch_size"
        )
    if isinstance(error, AttributeError) and "Storage' object" in text:
        return (
            f"the Data has no {text.rpartition(' ')[2]}; it has what the example has of x, edge_index, edge_attr, "
            "edge_weight, batch, pos, y and edge_label_index, and num_graphs"
        )
    return f"{kind}: {text[:300]} (with the example's rows repeated to {sizes})"


def _constant(text: str) -> str:
    if "num_graphs" in text or "batch_size" in text:
        what = "graphs"
    else:
        named = re.search(r"\b(nodes|edges|graphs|links)\b", text)
        what = named[1] if named else "rows"
    return f"the number of {what} becomes a constant or must have a divisor; do not loop over it, nor fix a size"


class _Guards(logging.Handler):
    """Keeps the last line of the user's code at which torch added a guard that fixes or divides a size."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.place: _Place | None = None

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if "[guard added]" in message and ("Eq(" in message or "Mod(" in message):
            frames = [_frame(frame, number) for frame, number in traceback.walk_stack(sys._getframe(1))]
            # Only the frames inside the module's forward.
            inside = itertools.takewhile(lambda frame: frame[0] != "permafrost.exporting.inputs", frames)
            self.place = _innermost(reversed(list(inside))) or self.place


def _line_of_guard(again: Callable[[], Any]) -> _Place | None:
    log, guards = logging.getLogger("torch.fx.experimental.symbolic_shapes"), _Guards()
    handlers, level, propagates = log.handlers, log.level, log.propagate
    log.setLevel(logging.INFO)
    log.propagate = False
    log.handlers = [guards]
    try:
        again()
    except Exception:
        # The same exception as before, which the caller has caught already.
        return guards.place
    finally:
        log.handlers, log.propagate = handlers, propagates
        log.setLevel(level)
    return None


def check(program: Any, rows: Any) -> None:
    """Refuses a program in which a number of rows became a constant, or which uses operators from outside PyTorch."""
    values = {node.name: node.meta["val"] for node in program.graph.nodes if node.op == "placeholder"}
    for name, placeholder in zip(rows.names, program.graph_signature.user_inputs, strict=True):
        value: Any = values.get(placeholder)
        size = value.shape[rows.roles[name][0]] if hasattr(value, "shape") else value
        if size is None or isinstance(size, int):
            raise InputError(f"forward: the number of {rows.roles[name][1]} of {name} became the constant {size}")
    for node in program.graph.nodes:
        space = getattr(node.target, "namespace", "aten")
        if node.op == "call_function" and space not in ("aten", "prims", "higher_order"):
            name = node.target.name()
            frames = _FRAME.findall(node.meta.get("stack_trace", ""))
            lines = [f"{os.path.basename(file)}:{at}: `{code}`" for file, at, code in frames if "/torch" not in file]
            reason = _BUILDS_EDGES if _EDGE_BUILDERS.search(name.replace("::", " ")) else "use PyTorch's own"
            raise InputError(f"{lines[-1] if lines else node.name}: the operator {name} is an extension's; {reason}")
