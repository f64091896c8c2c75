"""Panels as PNG: lines with markers, one look for every figure."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from PIL import Image

matplotlib.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.ticker import ScalarFormatter

from bench.figures.figure import Figure, Panel, Row

MARKERS = "osD^vPX*"
COLOURS = ("#1b6ca8", "#d1495b", "#2a9d5c", "#e09f3e", "#6d4c9f", "#4d4d4d", "#17a2b8", "#a0522d")
DPI = 90


def draw(figure: Figure, rows: list[Row], path: Path) -> None:
    """All panels side by side, at most two in a line."""
    columns = min(2, len(figure.panels))
    lines = -(-len(figure.panels) // columns)
    picture, axes = plt.subplots(
        lines, columns, figsize=(5.4 * columns, 3.5 * lines), squeeze=False, layout="constrained"
    )
    for axis, panel in zip(axes.flat, figure.panels, strict=False):
        _panel(axis, panel, panel.rows(rows))
    for axis in list(axes.flat)[len(figure.panels) :]:
        axis.set_visible(False)
    drawn = BytesIO()
    picture.savefig(drawn, dpi=DPI)
    plt.close(picture)
    # A palette makes the file a third; without metadata the same rows give the same file.
    Image.open(drawn).convert("RGB").quantize(64).save(path, optimize=True)


def _panel(axis: Axes, panel: Panel, rows: list[Row]) -> None:
    names = list(dict.fromkeys(row[panel.by] for row in rows))
    if rows and isinstance(rows[0][panel.x], str):
        _bars(axis, panel, rows, names)
    else:
        for number, name in enumerate(names):
            points = sorted((row[panel.x], row[panel.y]) for row in rows if row[panel.by] == name)
            axis.plot(
                *zip(*points, strict=True),
                label=str(name),
                color=COLOURS[number % len(COLOURS)],
                marker=MARKERS[number % len(MARKERS)],
                linestyle="-" if number < len(COLOURS) else "--",
                markersize=4,
                linewidth=1.4,
            )
            mine = [row for row in rows if row[panel.by] == name and row.get(panel.beside) is not None]
            if mine:
                points = sorted((row[panel.x], row[panel.beside]) for row in mine)
                colour = COLOURS[number % len(COLOURS)]
                axis.plot(*zip(*points, strict=True), color=colour, linestyle="--", linewidth=0.9)
        if "x" in panel.log:
            axis.set_xscale("log", base=2)
            axis.xaxis.set_major_formatter(ScalarFormatter())
    if "y" in panel.log:
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_title(panel.title, fontsize=10)
    axis.set_xlabel(panel.labels[0], fontsize=9)
    axis.set_ylabel(panel.labels[1], fontsize=9)
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    axis.set_axisbelow(True)
    for edge in ("top", "right"):
        axis.spines[edge].set_visible(False)
    if len(names) > 1:
        axis.legend(fontsize=8, frameon=False)


def _bars(axis: Axes, panel: Panel, rows: list[Row], names: list[Any]) -> None:
    places = list(dict.fromkeys(row[panel.x] for row in rows))
    width = 0.8 / len(names)
    for number, name in enumerate(names):
        mine = {row[panel.x]: row[panel.y] for row in rows if row[panel.by] == name}
        held = [place for place in places if place in mine]
        axis.bar(
            [places.index(place) + (number - (len(names) - 1) / 2) * width for place in held],
            [mine[place] for place in held],
            width,
            label=str(name),
            color=COLOURS[number % len(COLOURS)],
        )
    axis.set_xticks(range(len(places)), places)
