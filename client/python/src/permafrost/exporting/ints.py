"""Makes an export follow calls of `int`, because Python's `int` cannot return a symbolic size."""

from __future__ import annotations
import __future__

import ast
import contextlib
import gc
import linecache
import threading
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, FunctionType
from typing import Any

# A followed call uses this name in place of `int`, in the globals of its function.
_NAME = "__permafrost_int__"
_FUTURES = sum(getattr(__future__, name).compiler_flag for name in __future__.all_feature_names)
_EXPORTS = threading.Lock()


class Calls:
    """Collects the functions that called `int(batch.max())`. follow() makes them call `convert` instead.

    Only calls `int(VALUE)` are replaced, in these functions alone: the name `int` stays Python's type everywhere.
    """

    def __init__(self, convert: Callable[[Any], Any]) -> None:
        self._convert = convert
        # Code objects by id, because equal code may occur in two files.
        self._found: dict[int, CodeType] = {}
        self._tried: set[int] = set()
        self._changed: list[tuple[FunctionType, CodeType]] = []

    def found(self, caller: FrameType) -> None:
        """Remembers the function of a frame that called `int` for a size."""
        self._found[id(caller.f_code)] = caller.f_code

    def follow(self) -> bool:
        """Replaces the calls in functions that were found since the last call. Returns false if there are none.

        A function whose source cannot be read, or has changed, stays as it is.
        """
        new = [code for key, code in self._found.items() if key not in self._tried]
        self._tried.update(self._found)
        followed = False
        for code in new:
            for function in _functions_with(code):
                own = function.__code__
                if "int" not in function.__globals__ and (replaced := _with_calls_replaced(own)) is not None:
                    function.__globals__[_NAME] = self._convert
                    function.__code__ = replaced
                    self._changed.append((function, own))
                    followed = True
        return followed

    def restore(self) -> None:
        for function, own in self._changed:
            function.__code__ = own
            function.__globals__.pop(_NAME, None)
        self._changed.clear()


@contextlib.contextmanager
def followed(convert: Callable[[Any], Any]) -> Iterator[Calls]:
    """Follows the calls of `int` during one export, and restores the code of all functions afterwards. Exports run
    one after another."""
    with _EXPORTS:
        calls = Calls(convert)
        try:
            yield calls
        finally:
            calls.restore()


def _functions_with(code: CodeType) -> list[FunctionType]:
    """Returns the functions that have this code, or a nested function or comprehension with it."""
    return [one for one in gc.get_objects() if type(one) is FunctionType and _holds(one.__code__, code)]


def _holds(outer: CodeType, code: CodeType) -> bool:
    if outer is code:
        return True
    return outer.co_filename == code.co_filename and any(_holds(inner, code) for inner in _inner(outer))


def _inner(code: CodeType) -> list[CodeType]:
    return [value for value in code.co_consts if isinstance(value, CodeType)]


class _Replacer(ast.NodeTransformer):
    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        called = node.func
        if isinstance(called, ast.Name) and called.id == "int" and len(node.args) == 1 and not node.keywords:
            node.func = ast.copy_location(ast.Name(_NAME, ast.Load()), called)
        return node


def _with_calls_replaced(code: CodeType) -> CodeType | None:
    """Compiles the code's source with calls of `int` replaced. Returns None if the source cannot be read, does not
    belong to this code, or has nothing to replace."""
    if _has_own_int(code) or not _names_int(code):
        return None
    source = "".join(linecache.getlines(code.co_filename))
    try:
        tree = ast.parse(source, code.co_filename)
        flags = code.co_flags & _FUTURES
        own = compile(tree, code.co_filename, "exec", flags, dont_inherit=True)
        replaced = compile(_Replacer().visit(tree), code.co_filename, "exec", flags, dont_inherit=True)
    except (SyntaxError, ValueError):
        return None
    return _partner(own, replaced, code)


def _has_own_int(code: CodeType) -> bool:
    named = "int" in (*code.co_varnames, *code.co_cellvars, *code.co_freevars)
    return named or any(_has_own_int(inner) for inner in _inner(code))


def _names_int(code: CodeType) -> bool:
    return "int" in code.co_names or any(_names_int(inner) for inner in _inner(code))


def _partner(own: CodeType, replaced: CodeType, code: CodeType) -> CodeType | None:
    """Finds `code` in the tree of `own`, and returns the code at the same place in the tree of `replaced`."""
    if own == code:
        return replaced
    for one, other in zip(_inner(own), _inner(replaced), strict=True):
        if (found := _partner(one, other, code)) is not None:
            return found
    return None
