"""Draws a model as a small picture: its units as circles, and the ways of tuples between units as lines.

A model says where its units are (``Model.draw``). A notebook shows the picture in the description of a plan.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

MOST_UNITS = 40
"""Units beyond this number are not drawn."""
_STEP, _RADIUS, _MARGIN = 44, 13, 20


@dataclass(frozen=True)
class Drawing:
    """The units of a model as points on a grid; one step of the grid is the distance of two units."""

    units: tuple[tuple[float, float, str], ...]
    """For each unit its column, its row, and the name of its role. The picture shows the first letter of the
    name."""
    lines: tuple[tuple[int, int], ...] = ()
    """Pairs of units that exchange tuples."""

    def to_svg(self) -> str:
        """Return the picture as SVG.

        >>> row([""] * 3).to_svg().count("<circle")
        3
        """
        shown = self.units[:MOST_UNITS]
        points = [(_MARGIN + x * _STEP, _MARGIN + y * _STEP) for x, y, _ in shown]
        width = max(x for x, _ in points) + _MARGIN
        height = max(y for _, y in points) + _MARGIN
        parts = [
            f'<line x1="{points[i][0]:.0f}" y1="{points[i][1]:.0f}" x2="{points[j][0]:.0f}" '
            f'y2="{points[j][1]:.0f}" stroke="currentColor" stroke-opacity="0.35"/>'
            for i, j in self.lines
            if i < len(shown) and j < len(shown)
        ]
        for (x, y), (*_, role) in zip(points, shown, strict=True):
            parts.append(
                f'<circle cx="{x:.0f}" cy="{y:.0f}" r="{_RADIUS}" fill="#dbe7f5" stroke="#3465a4"/>'
                f'<text x="{x:.0f}" y="{y + 4:.0f}" font-size="11" text-anchor="middle" fill="#204a87">'
                f"{escape(role[:1])}<title>{escape(role)}</title></text>"
            )
        hidden = len(self.units) - len(shown)
        if hidden:
            height += 20
            parts.append(f'<text x="4" y="{height - 6:.0f}" font-size="11">and {hidden} more units</text>')
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}">'
            + "".join(parts)
            + "</svg>"
        )


def row(roles: Sequence[str], is_linked: bool = False) -> Drawing:
    """Draw units side by side. If they are linked, each exchanges tuples with its neighbours."""
    units = tuple((float(n), 0.0, role) for n, role in enumerate(roles))
    return Drawing(units, tuple((n, n + 1) for n in range(len(roles) - 1)) if is_linked else ())


def columns(left: Sequence[str], right: Sequence[str]) -> Drawing:
    """Draw two columns of units. Each unit exchanges tuples with all units of the other column."""
    tallest = max(len(left), len(right))
    units = [(0.0, (tallest - len(left)) / 2 + n, role) for n, role in enumerate(left)]
    units += [(3.0, (tallest - len(right)) / 2 + n, role) for n, role in enumerate(right)]
    lines = tuple((i, len(left) + j) for i in range(len(left)) for j in range(len(right)))
    return Drawing(tuple(units), lines)


def grid(n_rows: int, n_columns: int, role: str) -> Drawing:
    """Draw units in rows and columns."""
    return Drawing(tuple((float(x), float(y), role) for y in range(n_rows) for x in range(n_columns)))


def circle(roles: Sequence[str]) -> Drawing:
    """Draw units on a circle. Each unit exchanges tuples with its neighbours."""
    n = len(roles)
    radius = max(0.7, n / (2 * math.pi))
    angles = [2 * math.pi * k / n - math.pi / 2 for k in range(n)]
    units = tuple(
        (radius * (1 + math.cos(angle)), radius * (1 + math.sin(angle)), role)
        for angle, role in zip(angles, roles, strict=True)
    )
    return Drawing(units, tuple((k, (k + 1) % n) for k in range(n)) if n > 1 else ())
