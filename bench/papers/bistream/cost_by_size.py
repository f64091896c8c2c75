"""CPU time of a tuple against units and window (an experiment of ours on BiStream, section 4).

More units and a larger window do not change what a tuple costs, as long as it probes as many units and has as
many results.

The condition is a band in two dimensions, whose width follows the window, so that a tuple has ``RESULTS``
results in each row. Routers and units run in one process, without Spark and its state store, and the time of
all of them counts. Random routing sends a tuple to all units of the other side. Routing by ranges has one
subgroup for each unit, and sends a tuple to the units in whose ranges its partners can be.
"""

import time
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import LocalJoin, Side
from bench.core.query import Query, band, keys, stamp
from bench.core.replay import Step
from thetastream.models import Biclique

UNITS = (1, 2, 4, 8)
"""Units of a side."""
WINDOW, PER_EPOCH = 1 << 17, 1 << 17
"""Number of tuples of a stream."""
WINDOWS = tuple(1 << power for power in range(17, 23))
SIDE = 1
"""Units of a side in the rows of larger windows."""
MEASURED, REPLAYS = 6, 3
"""Epochs that are measured when the window is full, and replays, of which the fastest counts."""
RESULTS = 0.5
VALUES = 1 << 30
RANDOM, RANGES = "random", "ranges"
FLAT = 1.15
"""The target: the most that a tuple may cost with more units, divided by the least."""


@lru_cache(maxsize=1)
def make_band(n: int, window: int, seed: int) -> Query:
    """Make a band in two dimensions of ``n`` tuples of each stream, with RESULTS results of a tuple."""
    reach = round(VALUES * (RESULTS / window / 2) ** 0.5 / 2)
    tables = []
    for side in Side:
        random = np.random.default_rng([seed, side])
        values = {name: pa.array(random.integers(0, VALUES, n)) for name in "xy"}
        tables.append(stamp(pa.table({**values, "id": pa.array(np.arange(n))})))
    left, right = tables
    on = f"abs(r.x - s.x) <= {reach} AND abs(r.y - s.y) <= {reach}"
    dimensions = (band(0, reach), band(1, reach))
    query = Query("band", ("r", "s"), (left, right), on, keys("x", "y"), dimensions=dimensions, seed=seed)
    return query.within(window / n)


def replay_with_routers(query: Query, model: Biclique, epochs: int) -> Iterator[tuple[Step, float]]:
    """Run a query in equal epochs; yield each step, and the CPU seconds of its routers and units."""
    local, volume = LocalJoin(query.unit_spec(), model), 0
    for left, right, watermark in query.epochs(epochs):
        volume += left.num_rows + right.num_rows
        step, began = Step(volume), time.process_time()
        step.run(local, [left, right], watermark)
        yield step, time.process_time() - began


def measure_size(run: Run, panel: str, window: int, units: int, routing: str) -> None:
    """Measure one size, and add its row."""
    per_epoch = min(window, run.sized(PER_EPOCH, 1 << 10))
    epochs = window // per_epoch + 1 + MEASURED
    query = make_band(epochs * per_epoch, window, run.seed)
    model = Biclique(units, subgroups=units if routing == RANGES else 1)
    what = f"{routing} routing, {units} units a side, window {window:,}"
    run.announce(what)
    replays = [list(replay_with_routers(query, model, epochs)) for _ in range(REPLAYS)]
    steps = [step for step, _ in replays[0]]
    run.check(what, query.expected, sum(step.results for step in steps))
    # Disturbances only add time.
    cpu_s = np.min([[cpu for _, cpu in each[-MEASURED:]] for each in replays], axis=0).sum()
    tuples = steps[-1].volume - steps[-MEASURED - 1].volume
    received = sum(step.total("received") for step in steps[-MEASURED:])
    run.add(
        panel=panel,
        setting=routing,
        units=units,
        window=window,
        cpu_us_per_tuple=1e6 * float(cpu_s) / tuples,
        received_per_tuple=received / tuples,
        results_per_tuple=sum(step.results for step in steps[-MEASURED:]) / tuples,
    )


def cost_by(run: Run, panel: str, routing: str) -> dict[int, float]:
    """Return the CPU time of a tuple by units or by window. With one unit a side, all routing is the same."""
    rows = run.rows.where(panel=panel)
    return {
        row[panel]: row["cpu_us_per_tuple"] for row in rows if routing == row["setting"] or row["units"] == 1
    }


def measure(run: Run) -> Verdict:
    window = run.sized(WINDOW, 1 << 12)
    for units in run.some(UNITS):
        for routing in (RANDOM, RANGES) if units > 1 else (RANDOM,):
            measure_size(run, "units", window, units, routing)
    for larger in run.some(WINDOWS):
        measure_size(run, "window", run.sized(larger, 1 << 12), SIDE, RANDOM)
    run.parameters = {"tuples_of_a_stream_and_epoch": run.sized(PER_EPOCH, 1 << 10), "results": RESULTS}
    cost = {routing: cost_by(run, "units", routing) for routing in (RANDOM, RANGES)}
    windows = cost_by(run, "window", RANDOM)
    ratios = {routing: max(found.values()) / min(found.values()) for routing, found in cost.items()}
    grown = max(windows.values()) / windows[min(windows)]
    facts = {
        f"the dearest number of units, {min(UNITS)} to {max(UNITS)} a side, divided by the cheapest:": ratios,
        f"the dearest window up to {max(windows):,}, divided by that of {min(windows):,}:": grown,
        "CPU µs of a tuple by units, random routing:": cost[RANDOM],
        "by ranges:": cost[RANGES],
        "by window:": windows,
    }
    best = min(ratios.values())
    return Verdict(max(ratios.values()) < FLAT and grown < FLAT, best, facts, partly=best < FLAT)


FIGURE = Figure(
    measure,
    "the dearest / the cheapest number of units, CPU time of a tuple",
    (
        Panel(
            "window of 131,072 tuples", "units", "cpu_us_per_tuple", "setting", {"panel": "units"}, log="x"
        ),
        Panel("one unit a side", "window", "cpu_us_per_tuple", "setting", {"panel": "window"}, log="x"),
    ),
    "panel; setting; units; window; cpu_us_per_tuple; received_per_tuple; results_per_tuple",
)
