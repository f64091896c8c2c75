"""SplitJoin: throughput against ordering precision (SplitJoin, figure 19).

Order costs throughput, the more the more precise it is: relaxed punctuation lies between unordered and
strictly ordered output.
"""

from bench.core.clock import Setting
from bench.core.columns import RATE
from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers import inputs
from bench.papers.splitjoin.settings import EPOCHS, TUPLES, WARMUP, with_window
from thetastream.models import Split

WINDOW, REACH = 16_384, 40
ORDERS = (None, 1000, 100, 10, "outer", "strict")


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
    relaxed = [share[str(n)] for n in (1000, 100, 10)]
    ratio = share["outer"]
    facts = {
        "the share of the unordered throughput is": share,
        "outer order keeps": ratio,
        "the interval of relaxed orders makes a difference of a factor of": max(relaxed) / min(relaxed),
    }
    remark = "an epoch is gathered and sorted once, whatever the interval is"
    falls = share["1000"] >= share["outer"] >= share["strict"]
    return Verdict(ratio < 1 and falls, ratio, facts, remark, partly=ratio < 1)


FIGURE = Figure(
    measure,
    "outer order / unordered, tuples/s",
    tuple(Panel("2 join cores", "order", name, "series") for name in ("tuples_per_s", "cpu_us_per_tuple")),
    f"order; {RATE}; of_unordered",
    needs_spark=True,
)
