"""SplitJoin: throughput against ordering precision (SplitJoin, figure 19).

The inner precision goes from one punctuation for each tuple to one after every comparison. Coarse precision
costs nothing, and throughput falls when punctuations are about as many as comparisons.
"""

from bench.core.clock import Setting
from bench.core.columns import RATE
from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers import inputs
from bench.papers.splitjoin.settings import EPOCHS, TUPLES, WARMUP, with_window
from thetastream.models import Split

WINDOW, REACH = 16_384, 40
ORDERS = (None, "outer", "inner 4096", "inner 512", "inner 64", "inner 8", "strict")
"""Unordered; outer order; then fewer and fewer arrivals in a step of the inner order. Strict is inner 1."""
COARSE, LOSS = ("inner 4096", "inner 512"), 0.9
"""The precisions that should cost nothing: they keep this share of the throughput of outer order."""


def measure(run: Run) -> Verdict:
    whole = inputs.handshake(run.sized(TUPLES["index"]), run.seed, REACH)
    query = with_window(whole, run.sized(WINDOW), "index")
    asked = []
    for order in ORDERS:
        name = "none" if order is None else str(order)
        row = {"order": name, "series": "index, 2 cores"}
        asked.append(Setting(f"order {name}", query, Split(2), EPOCHS, WARMUP, row, order))
    run.compare(asked)
    run.parameters = {"window": run.sized(WINDOW), "cores": 2, "reach": REACH}
    for row in run.rows:
        row["of_unordered"] = row["tuples_per_s"] / run.rows[0]["tuples_per_s"]
    share = run.rows.by("order", "of_unordered")
    coarse = min(share[name] for name in COARSE) / share["outer"]
    ratio = share["strict"] / share["outer"]
    facts = {
        "the share of the unordered throughput is": share,
        "coarse precision keeps this share of outer order": coarse,
        "strict order keeps": ratio,
    }
    remark = (
        "an epoch is gathered and sorted once, and no stars travel, so precision is one more key of the sort"
    )
    return Verdict(coarse >= LOSS > ratio, ratio, facts, remark, partly=coarse >= LOSS)


FIGURE = Figure(
    measure,
    "strict / outer order, tuples/s",
    tuple(Panel("2 join cores", "order", name, "series") for name in ("tuples_per_s", "cpu_us_per_tuple")),
    f"order; {RATE}; of_unordered",
    needs_spark=True,
)
