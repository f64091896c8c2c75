"""SplitJoin: what cores of their own would allow (SplitJoin, figure 12, also with an index).

Throughput grows almost in proportion to the join cores and falls as the window grows.
"""

from bench.core.figure import Figure, Run, Verdict
from bench.core.replay import bound, replay, total, tuples_in
from bench.papers import inputs
from bench.papers.splitjoin.settings import KINDS, describe_setting, panels, with_window
from thetastream.models import Split

CORES = (1, 2, 4, 8)
WINDOWS = (1_024, 4_096, 16_384)
"""Numbers of tuples of a stream in the window."""
TUPLES = {"nested loop": 32_768, "index": 131_072}
"""Number of tuples of a stream."""
EPOCHS, WARMUP = 8, 4


def measure(run: Run) -> Verdict:
    for kind in KINDS:
        whole = inputs.handshake(run.sized(TUPLES[kind]), run.seed)
        for window in WINDOWS:
            size = run.sized(window)
            query = with_window(whole, size, kind)
            for cores in CORES:
                steps = run.replay(query, Split(cores), EPOCHS, f"{kind}, window {size:,}, {cores} cores")
                measured = range(WARMUP, EPOCHS)
                candidates = total(steps[WARMUP:], "candidates") / tuples_in(steps, measured)
                found = bound([steps, list(replay(query, Split(cores), EPOCHS))], measured)
                run.add(**describe_setting(kind, size, cores=cores), **found, candidates_per_tuple=candidates)
    rows, figure = run.rows, "bound_tuples_per_s"
    for row in rows:
        row["speed_up"] = row[figure] / rows.at(figure, kind=row["kind"], window=row["window"], cores=1)
    run.parameters = {
        "tuples_per_stream": ", ".join(f"{run.sized(n)} ({kind})" for kind, n in TUPLES.items()),
        "epochs": EPOCHS,
    }
    short, long, most = run.sized(WINDOWS[0]), run.sized(WINDOWS[-1]), CORES[-1]
    loop, index = (rows.at("speed_up", kind=kind, window=long, cores=most) for kind in KINDS)
    slower, slower_index = (
        rows.where(kind=kind, cores=1).ratio(figure, {"window": short}, {"window": long}) for kind in KINDS
    )
    one_index, all_loop = {"kind": "index", "cores": 1}, {"kind": "nested loop", "cores": most}
    gain = rows.where(window=long).ratio(figure, one_index, all_loop)
    facts = {
        f"with the nested loop and the longest window, {most} cores allow the throughput of one times": loop,
        f"a window {long // short} times as long costs a factor of": slower,
        f"with the index, {most} cores allow the throughput of one times": index,
        "and the longer window costs a factor of": slower_index,
        f"one core with the index allows the throughput of {most} cores with the nested loop times": gain,
    }
    remark = "with the index every core still probes with every tuple"
    if loop > most:
        remark += ", and a smaller part of the window suits the processor's cache better"
    return Verdict(loop > 0.6 * most, loop, facts, remark, partly=loop > 2)


FIGURE = Figure(
    measure,
    "8 cores / 1, nested loop",
    panels("bound_tuples_per_s", "xy"),
    "kind; window; cores; bound_tuples_per_s; speed_up; cpu_us_per_tuple|CPU µs/tuple, all cores;"
    " candidates_per_tuple",
)
