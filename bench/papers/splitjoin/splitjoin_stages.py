"""SplitJoin: time of each stage with windows of event time (SplitJoin, figure 15).

More join cores shorten the wait for distribution, and execution in proportion. The stage that gathers results
and orders them by punctuations takes longest, because it waits for the punctuation of each core.

The first stage is the wait for what is left of the running epoch, and the CPU time of the router. Gathering
is the wait for the busiest core, and the CPU time of the task that orders (``staged_replay``).
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.rows import Row
from bench.papers.splitjoin.staged_replay import CORES, describe_run, measure_window, windows
from thetastream.models import Split

STAGES = ("dis_ms", "exe_ms", "res_ms", "ete_ms", "vis_ms")


def add_stages(row: Row) -> Row:
    """Add the stages of the paper: dis, exe and res, their sum ete, and vis, the visiting latency."""
    row["dis_ms"] = row["waiting_ms"] + row["routing_ms"]
    row["res_ms"] = row["straggling_ms"] + row["gathering_ms"]
    row["vis_ms"] = row["dis_ms"] + row["exe_ms"]
    return row


def panels(title: str, windows_shown: str) -> tuple[Panel, ...]:
    titles = ("distribution", "execution", "gathering", "end to end")
    return tuple(
        Panel(f"{title}: {words}", "cores", stage, windows_shown, log="y")
        for words, stage in zip(titles, STAGES, strict=False)
    )


def measure(run: Run) -> Verdict:
    for minutes, window in windows(run).items():
        for cores in run.some(CORES):
            found = measure_window(run, "split", Split(cores), window)
            row = {"minutes": minutes, "cores": cores, "window": window, "series": f"{minutes} min"}
            add_stages(run.add(**row, **found))
    describe_run(run)
    few, most = run.rows[0]["cores"], run.rows[-1]["cores"]
    longest = run.rows.where(window=max(windows(run).values()))
    ratio = longest.ratio("exe_ms", {"cores": few}, {"cores": most})
    shorter = longest.ratio("dis_ms", {"cores": few}, {"cores": most})
    stages = {name: longest.at(f"{name}_ms", cores=most) for name in ("dis", "exe", "res")}
    facts = {
        f"with the longest window, {most} cores shorten execution beside {few} by a factor of": ratio,
        "and distribution by": shorter,
        f"with {most} cores, the stages take (ms)": stages,
        "of gathering, the CPU time of the ordering task is (ms)": longest.at("gathering_ms", cores=most),
    }
    remark = (
        "no core waits for punctuations here: the end of an epoch is the punctuation of all cores, and the"
        " results of an epoch are sorted once; every core receives all tuples, which takes as long with more"
        " cores"
    )
    holds = ratio > 0.5 * most / few and stages["res"] == max(stages.values())
    return Verdict(holds and shorter > 1.2, ratio, facts, remark, partly=min(ratio, shorter) > 1.2)


FIGURE = Figure(
    measure,
    "execution, 4 cores / 28",
    panels("event time", "series"),
    "minutes|window (min); window; cores; dis_ms|distribution (ms); exe_ms|execution (ms);"
    " res_ms|gathering (ms); ete_ms|end to end (ms); vis_ms|visiting (ms)",
)
