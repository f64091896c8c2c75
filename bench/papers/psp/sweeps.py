"""Varies settings of the workload and of the models, and measures response times and state at each point."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.replay import total
from bench.core.rows import Row
from bench.papers.psp.images import Workload
from bench.papers.psp.replay import models, replay, warm_up
from thetastream.models import Multiway

NODES = (4, 9, 14, 19)
"""The lengths of the paper's rings."""
FEW = NODES[0]
TRUTH = "a nested loop's in NumPy"
BASE = Workload()
SHOWN = (
    "response_epochs; response_ms|response (ms of busiest nodes); busy_ms; probed; candidates; results; "
    "copies; tuples_held; tuples_largest; mb_held; mb_largest; in_flight; mb_in_flight"
)
"""The columns of the tables, behind the varied settings."""


class Point(NamedTuple):
    """A workload on a model, and the settings by which the row is found."""

    work: Workload
    model: Multiway
    settings: Row


def figure(
    x: str,
    by: str,
    list_points: Callable[[Run, Workload], Iterator[Point]],
    ratio_of: str,
    verdict: Callable[[Run], Verdict],
    base: Workload = BASE,
) -> Figure:
    """Make a figure of response time and state over ``x``, with a line for each value of ``by``."""

    def measure(run: Run) -> Verdict:
        work = replace(base, seed=run.seed).scaled(run.scale)
        for point in list_points(run, work):
            add(run, point)
        run.parameters = given(work)
        return verdict(run)

    panels = (
        Panel("response time", x, "response_ms", by),
        Panel("state", x, "tuples_held", by),
    )
    return Figure(measure, ratio_of, panels, f"{x}; {by}; {SHOWN}", truth=TRUTH)


def compare_models(field: str, values: tuple[Any, ...]) -> Callable[[Run, Workload], Iterator[Point]]:
    """Vary a field of the workload under Ring, ATR and CTR."""

    def list_points(run: Run, work: Workload) -> Iterator[Point]:
        for value in run.some(values):
            varied = replace(work, **{field: value})
            for label, model in models(varied, FEW).items():
                yield Point(varied, model, {field: value, "model": label})

    return list_points


def add(run: Run, point: Point) -> Row:
    """Run a workload on a model; add its row, and check its number of results."""
    what = ", ".join(f"{name} {value}" for name, value in point.settings.items())
    run.announce(what)
    warm_up()
    found = replay(point.work, point.model)
    held, size = found.held(), found.held_bytes()
    full = int(np.argmax(held.sum(axis=1)))
    run.check(what, found.expected, len(found.found))
    return run.add(
        **point.settings,
        setting=repr(point.model),
        response_epochs=found.response_epochs,
        response_ms=found.response_ms,
        busy_ms=found.busy_ms,
        tuples_held=int(held[full].sum()),
        tuples_largest=int(held.max()),
        mb_held=float(size.sum(axis=1).max()) / 1e6,
        mb_largest=float(size.max()) / 1e6,
        copies=total(found.epochs, "stored") / (point.work.streams * point.work.tuples),
        in_flight=max(epoch.in_flight for epoch in found.epochs),
        mb_in_flight=max(epoch.in_flight_bytes for epoch in found.epochs) / 1e6,
        probed=total(found.epochs, "probed"),
        candidates=total(found.epochs, "candidates"),
        results=len(found.found),
    )


def grow(run: Run, figure: str, by: str) -> dict[Any, float]:
    """Divide a figure of the last row by that of the first, for each value of ``by``."""
    found: dict[Any, list[float]] = {}
    for row in run.rows:
        found.setdefault(row[by], []).append(row[figure])
    return {name: values[-1] / values[0] for name, values in found.items()}


def given(work: Workload) -> dict[str, Any]:
    return {
        "streams": work.streams,
        "tuples_per_stream": work.tuples,
        "tuples_per_window": work.per_window,
        "pixels": work.pixels,
        "selectivity": work.selectivity,
    }
