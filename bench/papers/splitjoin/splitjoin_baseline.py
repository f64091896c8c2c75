"""SplitJoin: throughput beside handshake join (SplitJoin, figure 12).

Throughput grows with the join cores. SplitJoin reaches up to 1.6 times the throughput of low-latency
handshake join, which pays for messages between cores and for a message about each tuple that expires.

Both models of the handshake join are Thetastream's own. The chain with fast-forward is the low-latency
variant: every tuple visits all workers in one exchange, as in SplitJoin. The chain that hands on is the
original handshake join. The throughput is what the busiest core allows; the letters between the workers of a
chain count for their senders (``staged_replay``).
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers.splitjoin.staged_replay import CORES, MINUTES, describe_run, measure_window, windows
from thetastream.models import Chain, Split

SPLIT, FAST, CHAIN = "split", "handshake, fast-forward", "handshake, hands on"


def measure(run: Run) -> Verdict:
    longest = MINUTES[-1]
    for cores in run.some(CORES):
        models = {SPLIT: Split(cores), FAST: Chain(cores, fast_forward=True), CHAIN: Chain(cores)}
        for minutes, window in windows(run).items():
            for name, model in models.items():
                if name != SPLIT and minutes != longest:
                    continue
                found = measure_window(run, name, model, window)
                row = {"setting": name, "cores": cores, "minutes": minutes, "window": window}
                run.add(**row, name=f"{name}, {minutes} min", **found)
    describe_run(run)
    rows, figure = run.rows, "bound_tuples_per_s"
    few, most = rows[0]["cores"], rows[-1]["cores"]
    rate = {name: rows.by("cores", figure, setting=name, minutes=longest) for name in (SPLIT, FAST, CHAIN)}
    ratio = rate[SPLIT][most] / rate[FAST][most]
    grows = rate[SPLIT][most] / rate[SPLIT][few]
    facts = {
        f"from {few} to {most} cores, the throughput grows by a factor of": {
            name: by_cores[most] / by_cores[few] for name, by_cores in rate.items()
        },
        f"with {most} cores, SplitJoin reaches that of the low-latency handshake join times": ratio,
        "and that of the handshake join that hands on times": rate[SPLIT][most] / rate[CHAIN][most],
        f"a window of {longest} minutes costs one of {MINUTES[0]} a factor of": rows.where(
            setting=SPLIT, cores=most
        ).ratio(figure, {"minutes": MINUTES[0]}, {"minutes": longest}),
    }
    remark = (
        "fast-forward is one exchange here, without messages between cores and without messages about tuples"
        " that expire, so that SplitJoin has no margin over it"
    )
    if rate[CHAIN][most] > rate[SPLIT][most]:
        remark += (
            "; windows are so short here that receiving every tuple is much of a core's work, and a worker of"
            " the chain that hands on receives few"
        )
    return Verdict(grows > 0.5 * most / few and ratio > 1.2, ratio, facts, remark, partly=grows > 1.5)


FIGURE = Figure(
    measure,
    "split / low-latency handshake join, 28 cores, throughput that the busiest core allows",
    (
        Panel("window of 15 minutes, nested loop", "cores", "bound_tuples_per_s", "setting", {"minutes": 15}),
        Panel("SplitJoin", "cores", "bound_tuples_per_s", "name", {"setting": SPLIT}),
    ),
    "setting|model; minutes|window (min); window; cores; bound_tuples_per_s;"
    " cpu_us_per_tuple|CPU µs/tuple, all cores",
)
