"""SplitJoin: throughput of whole queries against cores and window (SplitJoin, figure 12, in Spark).

Throughput grows almost in proportion to the join cores and falls as the window grows.
"""

from bench.core.clock import Setting
from bench.core.columns import RATE
from bench.core.figure import Figure, Run, Verdict
from bench.papers import inputs
from bench.papers.splitjoin.settings import (
    EPOCHS,
    KINDS,
    TUPLES,
    WARMUP,
    describe_setting,
    panels,
    with_window,
)
from thetastream.models import Split

CORES = {"nested loop": (1, 2, 4), "index": (1, 2)}
WINDOWS = {"nested loop": (2_048, 8_192), "index": (8_192, 65_536)}


def measure(run: Run) -> Verdict:
    asked = []
    for kind in KINDS:
        whole = inputs.handshake(run.sized(TUPLES[kind]), run.seed)
        for window in map(run.sized, WINDOWS[kind]):
            query = with_window(whole, window, kind)
            for cores in CORES[kind]:
                row = describe_setting(kind, window, cores=cores)
                name = f"{row['name']}, {cores} cores"
                asked.append(Setting(name, query, Split(cores), EPOCHS, WARMUP, row))
    run.compare(asked)
    run.parameters = {
        "tuples_per_stream": ", ".join(f"{run.sized(n)} ({kind})" for kind, n in TUPLES.items()),
        "epochs": EPOCHS,
        "measured_epochs": EPOCHS - WARMUP,
    }
    short, long = map(run.sized, WINDOWS["nested loop"])
    loop, index = (run.rows.by("cores", "tuples_per_s", kind=kind, window=long) for kind in KINDS)
    most, ratio = max(loop), loop[2] / loop[1]
    longer = loop[1] / run.rows.at("tuples_per_s", kind="nested loop", window=short, cores=1)
    facts = {
        f"with the nested loop and window {long:,}, 2 join cores reach the throughput of one times": ratio,
        f"{most} join cores reach it times": loop[most] / loop[1],
        "with the index, 2 join cores reach that of one times": index[2] / index[1],
        "one join core with the index reaches that of 2 with the nested loop times": index[1] / loop[2],
        f"from window {short:,} to {long:,}, the throughput of one core changes by a factor of": longer,
    }
    remark = (
        "more than 2 join cores cannot speed up two cores; an epoch holds many short windows, and each is cut"
        " into subindexes of its own"
    )
    return Verdict(ratio > 1.5 and longer < 0.8, ratio, facts, remark, partly=ratio > 1.1 or longer < 0.8)


FIGURE = Figure(
    measure,
    "2 join cores / 1, nested loop, tuples/s",
    panels("tuples_per_s"),
    f"kind; window; cores; {RATE}",
    needs_spark=True,
)
