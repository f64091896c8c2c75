"""Distribution of latency (BiStream, figure 9).

All models have about the same latency, within 10 ms of each other. Random routing is slightly slower than the
matrix, and content-sensitive subgroups are faster than it.
"""

from bench.core.clock import Setting
from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers import inputs
from bench.papers.bistream.models import UNITS, in_spark

EPOCHS, WARMUP, PER_EPOCH = 20, 6, 4_000
"""Number of epochs, of those that are not measured, and of the tuples of both streams in an epoch."""
SLIGHTLY = 1.25
"""A latency that is more than this times another one is not slightly longer."""
PERCENTILES = (10, 25, 50, 75, 90, 99)


def measure(run: Run) -> Verdict:
    query = inputs.q5(run.scale)
    query = query.part(min(1.0, PER_EPOCH * EPOCHS / query.volume))
    models = {name: model for name, model in in_spark(query).items() if name != "JM, best shape"}
    timed = run.compare([Setting(name, query, model, EPOCHS, WARMUP, {}) for name, model in models.items()])
    run.rows.clear()
    for name, one in timed.items():
        for percent in PERCENTILES:
            run.add(setting=name, percentile=percent, latency_ms=one.latency_ms(percent), **one.median)
    per_epoch = round(query.volume / EPOCHS)
    run.parameters = {"query": query.name, "units": UNITS, "tuples_per_epoch": per_epoch}
    half, most = (run.rows.by("setting", "latency_ms", percentile=n) for n in (50, 99))
    random, ratio = (half[name] / half["JM, square"] for name in ("JB (random)", "JB-CR4"))
    facts = {
        "the median (ms) is": half,
        "the median of random routing is that of the square matrix times": random,
        "the median of JB-CR4 is that of the square matrix times": ratio,
        "99 % of the latencies (ms) are below": most,
    }
    remark = "most of it is the floor of a micro-batch, and all settings pay it"
    is_slightly_slower = 1.0 <= random < SLIGHTLY
    return Verdict(is_slightly_slower and ratio < 1.0, ratio, facts, remark, partly=ratio < 1.0)


FIGURE = Figure(
    measure,
    "JB-CR4 / square matrix, median latency",
    (Panel("Q5, 16 units", "latency_ms", "percentile", "setting"),),
    "setting; percentile; latency_ms; cpu_us_per_tuple",
    needs_spark=True,
    is_in_table=lambda row: row["percentile"] in (50, 90, 99),
)
