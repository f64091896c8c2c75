"""Latency of the chain and of models with one exchange, in Spark
(ESJ and SplitJoin, latency of handshake join).

On the handshake chain a pair waits until its tuples pass each other; tuples that visit all workers at once,
fast-forwarded or by SplitJoin, find their partners at once.

The handshake chain finds a pair when its tuples pass each other, an epoch a worker, or when one expires or
silence falls: half a window, not half an epoch. Fast-forwarded, every tuple visits all workers at once.

A tuple arrives at any moment of the epoch before its own. So a pair that is found in epoch f, and whose later
tuple is read in epoch e, has waited for the rest of epoch e - 1 and for the epochs e to f
(``bench.core.response``).
"""

from dataclasses import dataclass

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model
from bench.core.query import Query
from bench.core.response import count_by_file, respond
from bench.core.rows import Row, find_medians, measure_in_turn
from bench.papers.esj.inputs import make_join
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


def run_once(run: Run, query: Query, model: Model, plan: Plan) -> Row:
    """Run one query from its first epoch until no message is in flight."""
    ran, counts = count_by_file(
        run.clock,
        ("latency", plan, query.volume),
        query.files(plan.epochs),
        lambda streams, mailbox: query.join(streams, model, mailbox=mailbox),
    )
    run.check(f"Spark: {model!r}", query.expected, int(counts.sum()))
    ms = ran.ms[plan.first : plan.epochs]
    tuples = query.volume / plan.epochs * (plan.epochs - plan.first)
    return {
        **respond(ran.ms, counts[:, plan.first : plan.last], plan.first, MOMENTS),
        "epoch_ms": float(np.median(ms)),
        "tuples_per_s": 1e3 * tuples / sum(ms),
        "epochs": len(ran.ms),
        "load_before": ran.load_before,
    }


def measure(run: Run) -> Verdict:
    per_epoch = run.sized(PER_EPOCH)
    query, short = (
        make_join(per_epoch * plan.epochs, WINDOW_EPOCHS * per_epoch, run.seed) for plan in (PLAN, WARM)
    )
    run.announce("warming up Spark")
    for name in ("split", "chain"):
        run_once(run, short, MODELS[name], WARM)

    def measure_model(name: str, turn: str) -> Row:
        row = run_once(run, query, MODELS[name], PLAN)
        run.announce(
            f"{turn}: response {row['response_ms']:.0f} ms, epoch {row['epoch_ms']:.0f} ms,"
            f" {row['tuples_per_s']:,.0f} tuples/s"
        )
        return row

    runs = measure_in_turn(MODELS, run.repeat, measure_model)
    for name, found in runs.items():
        run.add(model=name, series="4 units", setting=repr(MODELS[name]), **find_medians(found))
    run.runs += [{"model": name, **row} for name, found in runs.items() for row in found]
    run.parameters = {
        "units": UNITS,
        "tuples_of_a_stream_and_epoch": per_epoch,
        "window (epochs)": WINDOW_EPOCHS,
        "epochs with input": PLAN.epochs,
        "judged": f"pairs whose last tuple is of files {PLAN.first + 1} to {PLAN.last}",
    }
    chain, fast, split, _ = run.rows
    ratio = chain["response_ms"] / split["response_ms"]
    facts = {
        "on two cores, ms from a pair's later tuple to the pair:": run.rows.by("model", "response_ms"),
        "the chain takes the time of SplitJoin times": ratio,
        "epochs to a pair:": run.rows.by("model", "response_epochs"),
        "the share of pairs in the first epoch:": run.rows.by("model", "at_once"),
        "tuples/s:": run.rows.by("model", "tuples_per_s"),
    }
    holds = ratio > 2 and fast["response_ms"] < 1.5 * split["response_ms"]
    return Verdict(holds, ratio, facts, partly=ratio > 1)


FIGURE = Figure(
    measure,
    "chain / split, mean response",
    (
        Panel("response time", "model", "response_ms", "series"),
        Panel("throughput", "model", "tuples_per_s", "series"),
    ),
    "model; setting; response_ms|response, mean (ms); response_ms_p50|median;"
    " response_ms_p99|99 %; response_epochs|epochs; at_once; epoch_ms; tuples_per_s",
    needs_spark=True,
)
