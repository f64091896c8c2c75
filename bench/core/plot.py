"""Draws panels as PNG files: lines with markers, in one style for all figures."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

from bench.core.columns import columns
from bench.core.figure import Figure, Panel
from bench.core.rows import Row

MARKERS = "osD^vPX*"
COLOURS = ("#1b6ca8", "#d1495b", "#2a9d5c", "#e09f3e", "#6d4c9f", "#4d4d4d", "#17a2b8", "#a0522d")
DPI = 90
plt.rcParams.update(
    {
        "font.size": 8,
        "axes.titlesize": 10,
        "axes.labelsize": 9,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "grid.alpha": 0.25,
        "legend.frameon": False,
    }
)


def draw(figure: Figure, rows: list[Row], path: Path) -> None:
    across = min(2, len(figure.panels))
    lines = -(-len(figure.panels) // across)
    size = (5.4 * across, 3.5 * lines)
    picture, axes = plt.subplots(lines, across, figsize=size, squeeze=False, layout="constrained")
    for axis, panel in zip(axes.flat, figure.panels, strict=False):
        _panel(axis, panel, panel.rows(rows))
    for axis in list(axes.flat)[len(figure.panels) :]:
        axis.set_visible(False)
    drawn = BytesIO()
    picture.savefig(drawn, dpi=DPI)
    plt.close(picture)
    # A palette reduces the file to a third. Without metadata, the same rows give the same file.
    Image.open(drawn).convert("RGB").quantize(64).save(path, optimize=True)


def _panel(axis: Axes, panel: Panel, rows: list[Row]) -> None:
    names = list(dict.fromkeys(row[panel.by] for row in rows))
    if rows and isinstance(rows[0][panel.x], str):
        _bars(axis, panel, rows, names)
    else:
        for number, name in enumerate(names):
            mine, colour = [row for row in rows if row[panel.by] == name], COLOURS[number % len(COLOURS)]
            style: dict[str, Any] = {
                "color": colour,
                "marker": MARKERS[number % len(MARKERS)],
                "markersize": 4,
            }
            axis.plot(*_points(mine, panel.x, panel.y), label=str(name), linewidth=1.4, **style)
            axis.plot(*_points(mine, panel.x, panel.beside), color=colour, linestyle="--", linewidth=0.9)
        if "x" in panel.log:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(ScalarFormatter())
    if "y" in panel.log:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_title(panel.title)
    axis.set_xlabel(columns(panel.x)[0].title)
    axis.set_ylabel(columns(panel.y)[0].title)
    if len(names) > 1:
        axis.legend()


def _points(rows: list[Row], x: str, y: str) -> list[list[Any]]:
    points = sorted((row[x], row[y]) for row in rows if row.get(y) is not None)
    return [[point[place] for point in points] for place in (0, 1)]


def _bars(axis: Axes, panel: Panel, rows: list[Row], names: list[Any]) -> None:
    places = list(dict.fromkeys(row[panel.x] for row in rows))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        mine = {row[panel.x]: row[panel.y] for row in rows if row[panel.by] == name}
        at = [places.index(place) + (number - (len(names) - 1) / 2) * width for place in mine]
        axis.bar(at, list(mine.values()), width, label=str(name), color=COLOURS[number % len(COLOURS)])
    axis.set_xticks(range(len(places)), places)
