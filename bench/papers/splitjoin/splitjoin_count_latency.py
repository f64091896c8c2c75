"""SplitJoin: time of each stage with count windows (SplitJoin, figure 18).

More join cores shorten all stages. With 28 cores, windows of event time have 2.5 times the visiting latency
of count windows, and low-latency handshake join has 8.3 times as much.

The stages are those of figure 15 (``splitjoin_stages``).
"""

from bench.core.figure import Figure, Run, Verdict
from bench.papers.splitjoin.splitjoin_count_throughput import list_windows
from bench.papers.splitjoin.splitjoin_stages import add_stages, panels
from bench.papers.splitjoin.staged_replay import CORES, describe_run, measure_window
from thetastream.models import Chain, Split


def measure(run: Run) -> Verdict:
    sizes = list_windows(run)
    for window in sizes:
        for cores in run.some(CORES):
            found = measure_window(run, "split", Split(cores), window, is_counted=True)
            row = {"setting": "split, count", "cores": cores, "window": window}
            add_stages(run.add(**row, series=f"{window:,}", **found))
    longest, most = sizes[-1], run.rows[-1]["cores"]
    others = {"split, event time": Split(most), "handshake, fast-forward": Chain(most, fast_forward=True)}
    for name, model in others.items():
        found = measure_window(run, name, model, longest)
        add_stages(run.add(setting=name, cores=most, window=longest, series=name, **found))
    describe_run(run)
    by_count, few = run.rows.where(setting="split, count", window=longest), run.rows[0]["cores"]
    visiting = by_count.at("vis_ms", cores=most)
    shorter = {
        name: by_count.ratio(f"{name}_ms", {"cores": few}, {"cores": most})
        for name in ("dis", "exe", "res", "vis")
    }
    over = {name: run.rows.at("vis_ms", setting=name) / visiting for name in others}
    ratio = over["split, event time"]
    facts = {
        f"with the longest window, {most} cores shorten the stages beside {few} by a factor of": shorter,
        f"with {most} cores, the visiting latency of others is that of count windows times": over,
        "for windows of event time that is": ratio,
    }
    remark = (
        "both kinds of windows hold as many tuples here, and no clock is read, so that windows of event time"
        " are not slower; fast-forward is one exchange, as in SplitJoin"
    )
    holds = min(shorter.values()) > 1 and ratio > 1.5
    return Verdict(holds, ratio, facts, remark, partly=min(shorter["exe"], shorter["vis"]) > 1.2)


FIGURE = Figure(
    measure,
    "event time / count, 28 cores, visiting latency",
    panels("count", "series"),
    "setting|model and window; window; cores; dis_ms|distribution (ms); exe_ms|execution (ms);"
    " res_ms|gathering (ms); ete_ms|end to end (ms); vis_ms|visiting (ms)",
)
