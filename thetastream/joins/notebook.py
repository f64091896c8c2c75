"""Shows a plan in a notebook: pictures of its models, and the stages of its explanation as tables."""

import re
from collections.abc import Iterator, Sequence
from html import escape

from thetastream.models.base import Model

_LINE = re.compile(r"(?P<what>\S+(?: \d+)?:?)(?: {1,}(?P<value>.*?))?(?: {3}\((?P<why>.*)\))?")
_CELL = 'style="text-align:left;vertical-align:top;white-space:pre-wrap;font-family:monospace"'


def render_html(title: str, models: Sequence[Model], explanation: str) -> str:
    """Return HTML for the explanation of a plan.

    Parameters
    ----------
    title : str
        The headline.
    models : sequence of Model
        The models to draw, in the order of their steps.
    explanation : str
        The text of ``Plan.explain``: stages under headings ``== Stage ==``, with one fact per line.
    """
    pictures = "".join(
        f'<div style="display:inline-block;margin-right:2em">{model.draw().to_svg()}'
        f"<div>{escape(model.describe())}</div></div>"
        for model in models
    )
    stages = "".join(_render_stages(explanation))
    return f"<div><b>{escape(title)}</b><div>{pictures}</div>{stages}</div>"


def _render_stages(explanation: str) -> Iterator[str]:
    for stage in re.split(r"^== ", explanation, flags=re.MULTILINE):
        heading, _, body = stage.partition(" ==\n")
        lines = [line for line in body.split("\n") if line.strip()]
        if lines:
            rows = "".join(map(_render_line, lines))
            yield f"<details open='open'><summary>{escape(heading)}</summary><table>{rows}</table></details>"
        elif heading.strip():
            yield f"<div>{escape(heading.strip(' =').strip())}</div>"


def _render_line(line: str) -> str:
    """Return a table row with what the line is about, its value, and the reason."""
    found = _LINE.fullmatch(line)
    cells = (found["what"], found["value"], found["why"]) if found else ("", line, None)
    return "<tr>" + "".join(f"<td {_CELL}>{escape(cell or '')}</td>" for cell in cells) + "</tr>"
