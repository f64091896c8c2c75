"""SplitJoin: latency against cores and window (SplitJoin, figure 18, in Spark, by event time).

Latency grows with the window and falls with the join cores.
"""

from bench.core.clock import Setting
from bench.core.columns import RATE
from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers import inputs
from bench.papers.splitjoin.settings import describe_setting, with_window
from thetastream.models import Split

PER_EPOCH, EPOCHS, WARMUP = 1_024, 17, 10
"""Tuples of a stream in an epoch, number of epochs, and of those that are not measured."""
WINDOWS = {"nested loop": (1_024, 8_192), "index": (8_192,)}


def measure(run: Run) -> Verdict:
    whole = inputs.handshake(PER_EPOCH * EPOCHS, run.seed)
    asked = []
    for kind, windows in WINDOWS.items():
        for window in windows:
            query = with_window(whole, window, kind)
            for cores in (1, 4):
                row = describe_setting(kind, window, cores=cores)
                name = f"{row['name']}, {cores} cores, short epochs"
                asked.append(Setting(name, query, Split(cores), EPOCHS, WARMUP, row))
    timed = run.compare(asked)
    for row, one in zip(run.rows, timed.values(), strict=True):
        row["latency_ms_p50"] = one.latency_ms(50)
    run.parameters = {"tuples_per_stream_and_epoch": PER_EPOCH, "measured_epochs": EPOCHS - WARMUP}
    loop, (least, most) = run.rows.where(kind="nested loop"), WINDOWS["nested loop"]
    longer = loop.where(cores=1).ratio("latency_ms_p50", {"window": most}, {"window": least})
    more = loop.where(window=most).ratio("latency_ms_p50", {"cores": 4}, {"cores": 1})
    facts = {
        "median latencies (ms):": sorted(row["latency_ms_p50"] for row in run.rows),
        "with the nested loop and one core, the longer window takes the time of the shorter times": longer,
        "4 join cores take the time of one times": more,
    }
    remark = "latencies are the floor of a micro-batch here, and those of single tuples in the paper"
    return Verdict(longer > 2 and more < 0.8, longer, facts, remark, partly=more < 0.95 and longer > 1.1)


FIGURE = Figure(
    measure,
    "window of 8,192 / 1,024, nested loop, median latency",
    (Panel("epochs of 1,024 tuples a stream", "cores", "latency_ms_p50", "name"),),
    f"kind; window; cores; latency_ms_p50; {RATE}",
    needs_spark=True,
)
