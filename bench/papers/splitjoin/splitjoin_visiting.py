"""SplitJoin: visiting latency beside handshake join (SplitJoin, figure 13).

The latency from a pair's later tuple to the pair grows with the logarithm of the join cores in SplitJoin, and
in proportion to them in low-latency handshake join: about equal with 4 cores, 3.3 times as long with 28.

A tuple arrives at any moment of the epoch before its own, and its pair is ready when the epoch ends in which
it is found. Epochs follow each other without a pause, as at the highest rate (``staged_replay``).
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers.splitjoin.splitjoin_baseline import CHAIN, FAST, SPLIT
from bench.papers.splitjoin.staged_replay import CORES, MINUTES, describe_run, measure_window, windows
from thetastream.models import Chain, Split


def measure(run: Run) -> Verdict:
    longest = MINUTES[-1]
    for cores in run.some(CORES):
        for minutes, window in windows(run).items():
            models = {SPLIT: Split(cores)}
            if minutes == longest:
                models |= {FAST: Chain(cores, fast_forward=True), CHAIN: Chain(cores)}
            for name, model in models.items():
                found = measure_window(run, name, model, window)
                row = {"setting": name, "cores": cores, "minutes": minutes, "window": window}
                run.add(**row, name=f"{name}, {minutes} min", **found)
    describe_run(run)
    rows, figure = run.rows.where(minutes=longest), "response_ms"
    few, most = rows[0]["cores"], rows[-1]["cores"]
    ms = {name: rows.by("cores", figure, setting=name) for name in (SPLIT, FAST, CHAIN)}
    times = {name: {n: ms[name][n] / ms[SPLIT][n] for n in (few, most)} for name in (FAST, CHAIN)}
    ratio = times[FAST][most]
    facts = {
        f"mean latencies of a window of {longest} minutes with {most} cores (ms):": {
            name: by_cores[most] for name, by_cores in ms.items()
        },
        "with fast-forward, a pair waits as long as in SplitJoin times, by cores": times[FAST],
        f"with {most} cores that is": ratio,
        "on the chain that hands on, a pair waits as long as in SplitJoin times": times[CHAIN],
        "epochs until the pair on that chain, by cores:": rows.by("cores", "response_epochs", setting=CHAIN),
        f"from {few} to {most} cores, SplitJoin's latency changes by a factor of": ms[SPLIT][most]
        / ms[SPLIT][few],
    }
    remark = (
        "a tuple that is fast-forwarded does not pass from core to core here: one exchange takes it to all"
        " cores, as in SplitJoin, so that both have the same latency; only tuples that are handed on pay for"
        " the length of the chain"
    )
    grows = times[CHAIN][most] > times[CHAIN][few]
    return Verdict(ratio > 2, ratio, facts, remark, partly=grows and times[CHAIN][most] > 2)


FIGURE = Figure(
    measure,
    "low-latency handshake join / split, 28 cores, mean visiting latency",
    (
        Panel("window of 15 minutes", "cores", "response_ms", "setting", {"minutes": 15}, log="y"),
        Panel("SplitJoin", "cores", "response_ms", "name", {"setting": SPLIT}),
    ),
    "setting|model; minutes|window (min); window; cores; response_ms|latency, mean (ms);"
    " response_ms_p99|99 %; response_epochs|epochs; at_once",
)
