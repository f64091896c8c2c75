"""Replays a join in one process, and measures exact counters and the CPU time of every unit.

The CPU time of the busiest unit bounds what units on cores of their own could do:

    tuples/s <= tuples / max over units of its CPU seconds

This is a bound and not a throughput, because there is no exchange, no state store and no Spark. It does not
depend on the number of cores of this machine.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from bench.core.internals import Counters, Inbox, LocalJoin, LocalRun, Model
from bench.core.query import Query

Batches = Sequence[pa.RecordBatch | None]
"""The new tuples of each stream."""


@dataclass
class Step:
    """The results of an epoch, and the counters and CPU seconds of each unit."""

    volume: int
    """Number of tuples of all streams so far."""
    results: int = 0
    units: list[Counters] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)

    def run(self, local: LocalRun, batches: Batches, watermark: int | None) -> list[list[pa.Array]]:
        """Run the epoch, and return the columns of its results, piece by piece."""
        return self.run_units(local, local.deliver(batches, watermark))

    def run_units(self, local: LocalRun, inboxes: list[Inbox]) -> list[list[pa.Array]]:
        """Run the units of an epoch whose inboxes are filled."""
        found = []
        for number, inbox in enumerate(inboxes):
            began = time.process_time()
            pieces = list(local.run(number, inbox))
            self.cpu_s.append(time.process_time() - began)
            found += pieces
        self.results = sum(len(columns[0]) for columns in found)
        self.units = list(local.counters)
        return found

    def total(self, counter: str) -> int:
        return sum(getattr(unit, counter) for unit in self.units)


def total(steps: Iterable[Step], counter: str) -> int:
    return sum(step.total(counter) for step in steps)


def run_epochs(run: LocalRun, query: Query, epochs: int) -> Iterator[tuple[Step, list[list[pa.Array]]]]:
    """Run a query in equal epochs; yield the counters of each, and the columns that left its units."""
    volume = 0
    for left, right, watermark in query.epochs(epochs):
        volume += left.num_rows + right.num_rows
        step = Step(volume)
        yield step, step.run(run, [left, right], watermark)


def replay(query: Query, model: Model, epochs: int) -> Iterator[Step]:
    for step, _ in run_epochs(LocalJoin(query.unit_spec(), model), query, epochs):
        yield step


def find_latest(found: list[list[pa.Array]], query: Query) -> list[int]:
    """For each result of a query, find the event time of its later tuple, in microseconds."""
    latest: list[int] = []
    for columns in found:
        mine = query.tables[0].schema.get_field_index("ts")
        # The columns of right tuples end the row, with their place if the results are ordered.
        names = len(query.tables[1].schema.names)
        is_ordered = len(columns) > len(query.tables[0].schema.names) + names
        other = len(columns) - names - is_ordered + query.tables[1].schema.get_field_index("ts")
        latest += np.maximum(*(columns[at].cast(pa.int64()).to_numpy() for at in (mine, other))).tolist()
    return latest


def until(steps: Iterable[Step], is_over: Callable[[list[Step]], bool]) -> list[Step]:
    """Return the steps up to the first one that ends a run."""
    found: list[Step] = []
    for step in steps:
        found.append(step)
        if is_over(found):
            break
    return found


def cpu_of_units(replays: list[list[Step]], epochs: range) -> list[float]:
    """Add the CPU seconds of each unit in some epochs. The least of several replays counts, because
    disturbances only add time."""
    least = np.min([[steps[epoch].cpu_s for epoch in epochs] for steps in replays], axis=0)
    return [float(seconds) for seconds in least.sum(axis=0)]


def tuples_in(steps: list[Step], epochs: range) -> int:
    return steps[epochs[-1]].volume - steps[epochs[0] - 1].volume


def bound(replays: list[list[Step]], epochs: range) -> dict[str, float]:
    """Compute the throughput that the busiest unit allows, and the CPU time of all units."""
    cpu_s, tuples = cpu_of_units(replays, epochs), tuples_in(replays[0], epochs)
    return {"bound_tuples_per_s": tuples / max(cpu_s), "cpu_us_per_tuple": 1e6 * sum(cpu_s) / tuples}


def held(steps: list[Step]) -> list[int]:
    """Return the number of tuples that each unit holds after the steps."""
    stored = np.array([[unit.stored - unit.expired for unit in step.units] for step in steps])
    return [int(n) for n in stored.sum(axis=0)]


def bytes_held(step: Step) -> list[int]:
    return [unit.mlv_bytes for unit in step.units]
