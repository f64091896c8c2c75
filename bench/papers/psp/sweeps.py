"""Varies one setting of the workload, and compares response times and state of Ring, ATR and CTR."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.replay import total
from bench.core.rows import Row
from bench.papers.psp.images import Workload
from bench.papers.psp.replay import models, replay, warm_up
from thetastream.models import Multiway

NODES = 4
TRUTH = "a nested loop's in NumPy"
STATE = "copies; tuples_held; tuples_largest; mb_held; mb_largest"
BASE, MANY = Workload(), Workload(per_window=24, selectivity=0.05)
"""Sweeps over streams have fewer results, because results grow fast with the streams."""


SWEEPS = {
    "nodes": (1, 2, 3, 4),
    "selectivity": (0.05, 0.1, 0.5),
    "streams": (3, 5, 7),
    "pixels": (5_000, 10_000, 20_000),
}
"""The values of the varied setting: ``nodes``, or a field of the workload."""
KINDS = {
    "response": (
        "response_epochs; response_ms|response (ms of busiest nodes); busy_ms; probed; candidates; results",
        {"response time": "response_ms", "epochs to a result": "response_epochs"},
    ),
    "state": (f"{STATE}; in_flight; mb_in_flight", {"state": "mb_held", "the largest node": "mb_largest"}),
}
"""The columns of the table and the figures of the panels, for each kind of measurement."""


@dataclass(frozen=True)
class Swept:
    """The rows of a sweep, which are read by model."""

    run: Run
    by: str
    values: tuple[Any, ...]

    def at(self, figure: str, value: Any) -> dict[str, float]:
        """Return a figure at one value, for each model."""
        return self.run.rows.by("model", figure, **{self.by: value})

    def last(self, figure: str) -> dict[str, float]:
        """Return a figure at the last value, for each model."""
        return self.at(figure, self.values[-1])

    def grown(self, figure: str) -> dict[str, float]:
        """Divide a figure at the last value by that at the first, for each model."""
        first = self.at(figure, self.values[0])
        return {name: value / first[name] for name, value in self.last(figure).items()}


def figure(kind: str, by: str, ratio_of: str, verdict: Callable[[Swept], Verdict]) -> Figure:
    def measure(run: Run) -> Verdict:
        values = tuple(run.some(SWEEPS[by]))
        base = replace(MANY if by == "streams" else BASE, seed=run.seed).scaled(run.scale)
        for value in values:
            work, nodes = (base, value) if by == "nodes" else (replace(base, **{by: value}), NODES)
            for label, model in models(work, nodes).items():
                add(run, label, model, work, **{by: value})
        run.parameters = given(base)
        return verdict(Swept(run, by, values))

    columns, panels = KINDS[kind]
    drawn = tuple(Panel(title, by, name, "model") for title, name in panels.items())
    return Figure(measure, ratio_of, drawn, f"{by}; model; {columns}", truth=TRUTH)


def add(run: Run, label: str, model: Multiway, work: Workload, **setting: Any) -> Row:
    """Run a workload on a model; add its row, and check its number of results."""
    what = ", ".join(f"{key} {value}" for key, value in setting.items())
    run.announce(f"{label}, {what}")
    warm_up()
    found = replay(work, model)
    held, size = found.held(), found.held_bytes()
    full = int(np.argmax(held.sum(axis=1)))
    run.check(f"{label}, {what}", found.expected, len(found.found))
    return run.add(
        model=label,
        setting=repr(model),
        **setting,
        response_epochs=found.response_epochs,
        response_ms=found.response_ms,
        busy_ms=found.busy_ms,
        tuples_held=int(held[full].sum()),
        tuples_largest=int(held.max()),
        mb_held=float(size.sum(axis=1).max()) / 1e6,
        mb_largest=float(size.max()) / 1e6,
        copies=total(found.epochs, "stored") / (work.streams * work.tuples),
        in_flight=max(epoch.in_flight for epoch in found.epochs),
        mb_in_flight=max(epoch.in_flight_bytes for epoch in found.epochs) / 1e6,
        probed=total(found.epochs, "probed"),
        candidates=total(found.epochs, "candidates"),
        results=len(found.found),
    )


def given(work: Workload) -> dict[str, Any]:
    return {
        "streams": work.streams,
        "tuples_per_stream": work.tuples,
        "tuples_per_window": work.per_window,
        "pixels": work.pixels,
        "selectivity": work.selectivity,
    }
