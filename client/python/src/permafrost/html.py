"""Tables for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def table(title: str, rows: Iterable[Sequence[object]], header: Sequence[str] = ()) -> str:
    """Returns an HTML table with all of its text escaped."""
    head = "".join(f"<th>{escape(cell)}</th>" for cell in header)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    top = f"<thead><tr>{head}</tr></thead>" if header else ""
    return f"<div><b>{escape(title)}</b><table>{top}<tbody>{body}</tbody></table></div>"
