"""Keeps the promise of public classes that every error is one of `permafrost.errors`, with a message of one line."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, TypeVar

from permafrost.errors import InputError, PermafrostError

_Class = TypeVar("_Class", bound=type)
# Bad input makes Python, numpy, torch and pandas raise these. Others, such as KeyboardInterrupt or MemoryError, pass
# through.
_OF_INPUT = (OSError, TypeError, ValueError, AttributeError, LookupError, RuntimeError, ArithmeticError, ImportError)
_MOST = 400


def own_errors(cls: _Class) -> _Class:
    """Makes the public methods of a class raise only errors of this package. The original exception is the new one's
    `__cause__`."""
    for name, method in list(vars(cls).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            what = cls.__name__ if name == "__init__" else name
            setattr(cls, name, _with_own_errors(method, what))
    return cls


def _with_own_errors(method: Callable[..., Any], what: str) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            result = method(*args, **kwargs)
        except _OF_INPUT as error:
            _raise_own(error, what)
        return _iterate(result, what) if inspect.isgenerator(result) else result

    return call


def _iterate(results: Iterator[Any], what: str) -> Iterator[Any]:
    try:
        yield from results
    except _OF_INPUT as error:
        _raise_own(error, what)


def _raise_own(error: BaseException, what: str) -> NoReturn:
    own = _own(error, what)
    # Passes an error of this package on as it is, since `from` would make it its own cause.
    if own is error:
        raise error
    raise own from error


def _own(error: BaseException, what: str) -> BaseException:
    trace = error.__traceback__
    # Leaves arguments that the method does not have to Python's own error.
    misses_signature = isinstance(error, TypeError) and trace is not None and trace.tb_next is None
    if isinstance(error, PermafrostError) or misses_signature:
        return error
    if isinstance(error, OSError) and error.strerror:
        text = f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror
    elif isinstance(error, KeyError):
        text = f"{error.args[0]!r} is missing" if error.args else "a key is missing"
    else:
        text = str(error) or type(error).__name__
    text = " ".join(text.split())
    return InputError(f"{what}: {text if len(text) <= _MOST else text[: _MOST - 3] + '...'}")
