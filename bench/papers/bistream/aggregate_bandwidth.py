"""Bandwidth of aggregation: updates for every tuple and in batches (BiStream, figure 14).

Units that send the updates of their views in batches need far less bandwidth to the merger than units that
send an update for every tuple.

The bytes are those of the views that leave the units in one second of event time; full history comes before
it. An update for every tuple is a view after every epoch of a single tuple, and a batch is one longer epoch.
"""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import LocalRun, Side
from bench.core.query import Query
from bench.papers.bistream.aggregates import Aggregated, Merger, make_queries
from bench.papers.bistream.models import UNITS
from thetastream.models import Biclique

RATES = {"Q5": 4_500, "Q7": 2_700, "Band": 9_000}
"""Tuples of both streams in the measured second: the paper's rate of Band, a hundredth of it otherwise."""
PAIRS = "pairs"
BATCHES = {"every tuple": 0, "10 ms": 100, "100 ms": 10, "1 s": 1}
"""For each strategy, the number of updates in the second; 0 is one for each tuple."""
MODEL = Biclique(UNITS // 2, subgroups=4)


def cut(query: Query, rate: int, parts: int) -> Iterator[list[pa.RecordBatch]]:
    """Yield all tuples before the last ``rate`` ones, and then those in equal parts by event time."""
    wholes = [next(query.cut(side, 1)) for side in Side]
    times = [batch.column("ts").view(pa.int64()).to_numpy() for batch in wholes]
    in_order = np.argsort(np.concatenate(times), kind="stable")
    is_left = in_order < len(times[Side.LEFT])
    ends = np.linspace(query.volume - rate, query.volume, (parts or rate) + 1).astype(int)
    begun = [0, 0]
    for end in ends:
        left = int(is_left[:end].sum())
        until = [left, int(end) - left]
        yield [batch.slice(a, b - a) for batch, a, b in zip(wholes, begun, until, strict=True)]
        begun = until


def run_parts(run: LocalRun, batches: list[pa.RecordBatch]) -> list[list[pa.Array]]:
    """Run an epoch in the units that get tuples in it."""
    inboxes = run.deliver([batch if batch.num_rows else None for batch in batches])
    return [
        columns
        for slot, inbox in enumerate(inboxes)
        if not inbox.is_quiet
        for columns in run.run(slot, inbox)
    ]


def count_pairs(asked: Aggregated, rate: int) -> tuple[int, int]:
    """Count the pairs of the last second, which leave units that do not aggregate, and their bytes."""
    run = asked.plain_run(MODEL)
    _, found = (run_parts(run, batches) for batches in cut(asked.query, rate, 1))
    return sum(len(columns[0]) for columns in found), sum(c.nbytes for columns in found for c in columns)


def measure(run: Run) -> Verdict:
    for name, asked in make_queries(run.scale).items():
        rate = min(run.sized(RATES[name]), asked.query.volume // 2)
        pairs, nbytes = count_pairs(asked, rate)
        run.add(query=name, update=PAIRS, rate=rate, rows=pairs, kb_per_s=nbytes / 1e3, series=name)
        expected = asked.expected
        for update, parts in BATCHES.items():
            what = f"{name}, an update for {update}"
            run.announce(what)
            units, merger, before = asked.run(MODEL), Merger(asked), (0, 0)
            for number, batches in enumerate(cut(asked.query, rate, parts)):
                merger.merge(run_parts(units, batches))
                if number == 0:  # The history is not of the measured second.
                    before = merger.rows, merger.nbytes
            run.check(what, expected, asked.count(merger.view))
            row = {"rows": merger.rows - before[0], "kb_per_s": (merger.nbytes - before[1]) / 1e3}
            run.add(query=name, update=update, rate=rate, **row, series=name)
    run.parameters = {"model": repr(MODEL), "scale_factor": 0.1 * run.scale}
    each, *_, last = BATCHES
    sent = {name: run.rows.by("update", "kb_per_s", query=name) for name in RATES}
    saved = {name: kb[each] / kb[last] for name, kb in sent.items() if kb[last]}
    by_pairs = {name: kb[PAIRS] / kb[last] for name, kb in sent.items() if kb[last]}
    ratio = min(saved.values())
    facts = {
        f"updates for every tuple need the bytes of batches of {last} times": saved,
        "the least is": ratio,
        "pairs that are not aggregated need the bytes of these batches times": by_pairs,
    }
    return Verdict(ratio > 2, ratio, facts, partly=max(saved.values()) > 2)


FIGURE = Figure(
    measure,
    "every tuple / batches of 1 s, bytes, the query with the least",
    (Panel("JB16-CR4", "update", "kb_per_s", "series", log="y"),),
    "query; rate; update|update for; rows|rows sent; kb_per_s|kB/s to the merger",
)
