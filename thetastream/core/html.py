"""Writes the HTML with which notebooks show values: tables of facts and tables of rows."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from thetastream.core.arguments import is_number

_LEFT = 'style="text-align:left;vertical-align:top"'
_RIGHT = 'style="text-align:right;vertical-align:top"'


def render_rows(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Write a table with a head. Numbers stand on the right.

    >>> render_rows(["n"], [[1]]).count("<td")
    1
    """
    head = "".join(f"<th {_LEFT}>{escape(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(map(_render_cell, row)) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def render_facts(title: str, facts: Mapping[str, object]) -> str:
    """Write a headline, and a table with a line for each fact.

    >>> "&lt;x&gt;" in render_facts("store", {"path": "<x>"})
    True
    """
    lines = "".join(
        f"<tr><th {_LEFT}>{escape(name)}</th>{_render_cell(value)}</tr>" for name, value in facts.items()
    )
    return f"<div><b>{escape(title)}</b><table><tbody>{lines}</tbody></table></div>"


def _render_cell(value: object) -> str:
    text, place = (f"{value:,}", _RIGHT) if is_number(value) else (str(value), _LEFT)
    return f"<td {place}>{escape(text)}</td>"
