"""SplitJoin: throughput with count windows (SplitJoin, figure 16).

Throughput grows with the join cores, and a window of twice as many tuples lowers it. Count windows give about
1.2 times the throughput of windows of event time that hold as many tuples, because nobody reads a clock.

The throughput is what the busiest core allows. The windows hold a 256th of the tuples of the paper's largest
one, 2^21, and half and a quarter of them (``staged_replay``).
"""

from itertools import pairwise

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers.splitjoin.staged_replay import CORES, MINUTES, describe_run, measure_window, windows
from thetastream.models import Split

PARTS = (4, 2, 1)
"""The windows are a quarter, half and all of the longest one."""


def list_windows(run: Run) -> list[int]:
    return [windows(run)[MINUTES[-1]] // part for part in PARTS]


def measure(run: Run) -> Verdict:
    sizes = list_windows(run)
    for window in sizes:
        for cores in run.some(CORES):
            found = measure_window(run, "split", Split(cores), window, is_counted=True)
            run.add(of="count", window=window, cores=cores, series=f"count, {window:,}", **found)
    longest = sizes[-1]
    for cores in run.some(CORES):
        found = measure_window(run, "split", Split(cores), longest)
        run.add(of="event time", window=longest, cores=cores, series=f"event time, {longest:,}", **found)
    describe_run(run)
    figure, few, most = "bound_tuples_per_s", run.rows[0]["cores"], run.rows[-1]["cores"]
    by_count = run.rows.where(of="count", window=longest)
    grows = by_count.ratio(figure, {"cores": most}, {"cores": few})
    ratio = by_count.at(figure, cores=most) / run.rows.at(figure, of="event time", cores=most)
    doubled = {
        f"{short:,} to {long:,}": run.rows.where(of="count", cores=most).ratio(
            figure, {"window": short}, {"window": long}
        )
        for short, long in pairwise(sizes)
    }
    facts = {
        f"with the longest window, {most} cores allow the throughput of {few} times": grows,
        f"with {most} cores, twice the window costs a factor of": doubled,
        f"with {most} cores, count windows allow the throughput of windows of event time times": ratio,
    }
    remark = "event times are columns of the data here, so that windows of event time read no clock either"
    scales = grows > 0.5 * most / few and min(doubled.values()) > 1.1
    return Verdict(scales and ratio > 1.1, ratio, facts, remark, partly=grows > 1.5)


FIGURE = Figure(
    measure,
    "count / event time, 28 cores, throughput that the busiest core allows",
    (Panel("nested loop", "cores", "bound_tuples_per_s", "series", log="y"),),
    "of|window of; window; cores; bound_tuples_per_s; cpu_us_per_tuple|CPU µs/tuple, all cores",
)
