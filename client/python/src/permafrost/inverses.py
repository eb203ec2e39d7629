"""The option that decides whether an import stores each edge with its inverse."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from permafrost.errors import InputError

ACCEPTED = ("auto", "add", "keep")


def take_inverses(options: MutableMapping[str, Any]) -> str | None:
    """Removes `inverse_edges` and the older `no_inverse_edges` from the options. Returns the value of ACCEPTED that
    they ask for, or None if neither is given. Errors: InputError if both are given, and for any other value."""
    kept, asked = options.pop("no_inverse_edges", None), options.pop("inverse_edges", None)
    if kept is not None and asked is not None:
        raise InputError("import: no_inverse_edges: stands beside inverse_edges; one of them is accepted")
    if asked is None:
        return None if kept is None else "keep" if kept else "add"
    name = str(asked).lower()
    if name not in ACCEPTED:
        raise InputError(f"import: inverse_edges: {asked!r} is none of {', '.join(ACCEPTED)}")
    return name


def inverse_options(asked: str) -> dict[str, Any]:
    """Returns the ImportOptions for this choice. Older servers know "keep" only as no_inverse_edges."""
    return {"no_inverse_edges": True} if asked == "keep" else {"inverse_edges": asked}
