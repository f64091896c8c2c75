"""Shows a plan in a notebook: pictures of its models, and the sections of its explanation as tables."""

from collections.abc import Sequence
from html import escape

from thetastream.lowering.report import Fact, Section
from thetastream.models.base import Model

_TABLE = 'style="table-layout:fixed;width:100%;max-width:80em"'
_WIDTHS = '<colgroup><col style="width:22%"/><col style="width:44%"/><col style="width:34%"/></colgroup>'
"""The same for all tables, so that their columns line up."""
_CELL = 'style="text-align:left;vertical-align:top;white-space:pre-wrap;font-family:monospace"'


def render_html(title: str, models: Sequence[Model], explanation: Sequence[Section]) -> str:
    """Return HTML for the explanation of a plan.

    Parameters
    ----------
    title : str
        The headline.
    models : sequence of Model
        The models to draw, in the order of their steps.
    explanation : sequence of Section
        The explanation, as ``Plan.explain`` prints it.
    """
    pictures = "".join(
        f'<div style="display:inline-block;margin-right:2em">{model.draw().to_svg()}'
        f"<div>{escape(model.describe())}</div></div>"
        for model in models
    )
    stages = "".join(_render_section(section, is_open=not n) for n, section in enumerate(explanation))
    return f"<div><b>{escape(title)}</b><div>{pictures}</div>{stages}</div>"


def _render_section(section: Section, is_open: bool = True) -> str:
    """Return a section that can be opened and closed. The sections inside it are open with it."""
    title = escape(section.title)
    if not (section.facts or section.sections):
        return f"<div>{title}</div>"
    rows = "".join(map(_render_fact, section.facts))
    inner = (f"<table {_TABLE}>{_WIDTHS}{rows}</table>" if rows else "") + "".join(
        map(_render_section, section.sections)
    )
    return f"<details{' open=' + repr('open') if is_open else ''}><summary>{title}</summary>{inner}</details>"


def _render_fact(fact: Fact) -> str:
    """Return a table row with what the fact is about, its value, and the reason."""
    cells = (fact.what, fact.value, fact.why)
    return "<tr>" + "".join(f"<td {_CELL}>{escape(cell)}</td>" for cell in cells) + "</tr>"
