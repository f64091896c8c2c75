"""Latency of the chain and of models with one exchange, in Spark
(ESJ and SplitJoin, latency of handshake join).

On the handshake chain a pair waits until its tuples pass each other; tuples that visit all workers at once,
fast-forwarded or by SplitJoin, find their partners at once.

The handshake chain finds a pair when its tuples pass each other, an epoch a worker, or when one expires or
silence falls: half a window, not half an epoch. Fast-forwarded, every tuple visits all workers at once.

Every tuple carries the number of its file, and ``observe`` counts the pairs of an epoch by the file of their
later tuple: nothing is replayed. A tuple comes at any moment of the epoch before its own, so a pair that is
found in epoch f, its last tuple read in epoch e, has waited for what is left of epoch e - 1, and for the
epochs e to f.
"""

from dataclasses import dataclass, replace
from statistics import median

import numpy as np
import pyarrow as pa
from pyspark.sql import functions as F

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model, Side
from bench.core.query import Query
from bench.core.rows import Row
from bench.papers.esj.inputs import keyed
from thetastream.models import Biclique, Chain, Split

UNITS = 4
PER_EPOCH, WINDOW_EPOCHS = 4_000, 2
"""Number of tuples of a stream in an epoch, and of epochs in a window."""
MODELS: dict[str, Model] = {
    "chain": Chain(UNITS),
    "chain, fast-forward": Chain(UNITS, fast_forward=True),
    "split": Split(UNITS),
    "biclique": Biclique(UNITS // 2),
}
FILE = "e"
"""The column with the number of the file of a tuple."""
MOMENTS = np.linspace(0, 1, 21)
"""Moments of the epoch before, as shares of it, at which tuples arrive."""


@dataclass(frozen=True)
class Plan:
    """The number of epochs with input, and the files whose pairs are judged."""

    epochs: int
    first: int
    last: int
    """The file after the judged ones, whose pairs have all met or expired before the input ends."""


PLAN, WARM = Plan(epochs=12, first=4, last=8), Plan(epochs=4, first=1, last=2)


def filed(query: Query, epochs: int) -> Query:
    """Return the query with the number of its file in each tuple."""
    tables = []
    for side, table in zip(Side, query.tables, strict=True):
        starts = [start for start, _ in query.bounds(side, epochs)]
        numbers = np.searchsorted(starts, np.arange(table.num_rows), side="right") - 1
        tables.append(table.append_column(FILE, pa.array(numbers)))
    return replace(query, tables=(tables[0], tables[1]))


def run_once(run: Run, query: Query, model: Model, plan: Plan) -> Row:
    """Run one query from its first epoch until no message is in flight."""
    later = F.greatest(*(F.col(f"{alias}.{FILE}") for alias in query.aliases))
    ran = run.clock.run(
        run.clock.files_of(query, plan.epochs),
        query.aliases,
        lambda streams, mailbox: query.join(streams, model, mailbox=mailbox),
        [F.count_if(later == number).alias(f"f{number}") for number in range(plan.epochs)],
    )
    names = [f"f{number}" for number in range(plan.epochs)]
    found = np.array(
        [[epoch.observed[n] if epoch.observed is not None else 0 for n in names] for epoch in ran.epochs]
    )
    run.check(f"Spark: {model!r}", query.expected, int(found.sum()))
    ms = ran.ms[plan.first : plan.epochs]
    tuples = query.volume / plan.epochs * (plan.epochs - plan.first)
    return {
        **response(np.array(ran.ms), found[:, plan.first : plan.last], plan.first),
        "epoch_ms": float(np.median(ms)),
        "tuples_per_s": 1e3 * tuples / sum(ms),
        "epochs": len(ran.ms),
        "load_before": ran.load_before,
    }


def response(ms: np.ndarray, pairs: np.ndarray, first: int) -> Row:
    """Compute the milliseconds and epochs from arrival to pair.

    ``pairs[f, n]`` pairs were found in epoch f, and their last tuple is of file first + n.

    >>> found = response(np.array([100.0, 10.0, 10.0]), np.array([[0], [3], [1]]), 1)
    >>> found["response_ms"], found["response_epochs"], found["at_once"]
    (62.5, 1.25, 0.75)
    """
    until = np.concatenate([[0.0], np.cumsum(ms)])
    epochs, files = np.nonzero(pairs)
    weights = pairs[epochs, files]
    came = files + first
    begun = until[came - 1] + np.multiply.outer(MOMENTS, ms[came - 1])
    waits = until[epochs + 1] - begun
    order = np.argsort(waits, axis=None)
    share = np.cumsum(np.broadcast_to(weights, waits.shape).ravel()[order])
    half, most = (waits.ravel()[order][np.searchsorted(share, share[-1] * part)] for part in (0.5, 0.99))
    return {
        "response_ms": float(np.average(waits.mean(axis=0), weights=weights)),
        "response_ms_p50": float(half),
        "response_ms_p99": float(most),
        "response_epochs": float(np.average(epochs - came + 1, weights=weights)),
        "at_once": float(weights[epochs == came].sum() / weights.sum()),
    }


def measure(run: Run) -> Verdict:
    per_epoch = run.sized(PER_EPOCH)
    query, short = (
        filed(keyed(per_epoch * n, WINDOW_EPOCHS * per_epoch, run.seed), n)
        for n in (PLAN.epochs, WARM.epochs)
    )
    run.announce("warming up Spark")
    for name in ("split", "chain"):
        run_once(run, short, MODELS[name], WARM)
    runs: dict[str, list[Row]] = {name: [] for name in MODELS}
    for turn in range(run.repeat):
        for name in list(MODELS)[:: -1 if turn % 2 else 1]:
            row = run_once(run, query, MODELS[name], PLAN)
            run.announce(
                f"{turn + 1}/{run.repeat} {name}: response {row['response_ms']:.0f} ms, epoch"
                f" {row['epoch_ms']:.0f} ms, {row['tuples_per_s']:,.0f} tuples/s"
            )
            runs[name].append(row)
    for name, found in runs.items():
        medians = {key: median(row[key] for row in found) for key in found[0]}
        run.add(model=name, series="4 units", setting=repr(MODELS[name]), **medians)
    run.runs += [{"model": name, **row} for name, found in runs.items() for row in found]
    run.parameters = {
        "units": UNITS,
        "tuples_of_a_stream_and_epoch": per_epoch,
        "window (epochs)": WINDOW_EPOCHS,
        "epochs with input": PLAN.epochs,
        "judged": f"pairs whose last tuple is of files {PLAN.first + 1} to {PLAN.last}",
    }
    chain, fast, split, biclique = run.rows
    ratio = chain["response_ms"] / split["response_ms"]
    rates = ", ".join(f"{row['model']} {row['tuples_per_s']:,.0f}" for row in run.rows)
    text = (
        f"on two cores a pair comes {chain['response_ms']:,.0f} ms after its last tuple on the chain, in its"
        f" {chain['response_epochs']:.1f}th epoch on average ({chain['at_once']:.0%} of the pairs in the"
        f" first), {ratio:.2f} times SplitJoin's {split['response_ms']:,.0f} ms;"
        f" {fast['response_ms']:,.0f} ms fast-forwarded and {biclique['response_ms']:,.0f} ms on the"
        f" biclique, in one epoch; tuples/s are {rates}"
    )
    holds = ratio > 2 and fast["response_ms"] < 1.5 * split["response_ms"]
    return Verdict(holds, ratio, text, partly=ratio > 1)


FIGURE = Figure(
    __doc__,
    measure,
    "chain / split, mean response",
    (
        Panel("response time", "model", "response_ms", "series"),
        Panel("throughput", "model", "tuples_per_s", "series"),
    ),
    "model; setting|setting|`{}`; response_ms|response, mean (ms); response_ms_p50|median|{:,.0f};"
    " response_ms_p99|99 %|{:,.0f}; response_epochs|epochs|{:.2f}; at_once; epoch_ms; tuples_per_s",
    needs_spark=True,
)
