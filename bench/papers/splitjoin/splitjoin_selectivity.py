"""SplitJoin: throughput against selectivity (SplitJoin, figure 17).

Throughput hardly depends on selectivity while comparisons are most of the work, and falls when results
become the work.
"""

from bench.core.clock import Setting
from bench.core.columns import RATE
from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers import inputs
from bench.papers.splitjoin.settings import EPOCHS, TUPLES, WARMUP, with_window
from thetastream.models import Split

WINDOW = 4_096
REACHES = {"nested loop": (10, 40, 160, 320), "index": (10, 320)}
"""Half widths of the band in both dimensions."""


def measure(run: Run) -> Verdict:
    asked, n, window = [], run.sized(TUPLES["nested loop"]), run.sized(WINDOW)
    for kind, reaches in REACHES.items():
        for reach in reaches:
            query = with_window(inputs.handshake(n, run.seed, reach), window, kind)
            selectivity = (2 * reach + 1) / 9999 * 2 * reach / 9999
            row = {"kind": kind, "reach": reach, "selectivity": selectivity}
            asked.append(Setting(f"{kind}, reach {reach}", query, Split(2), EPOCHS, WARMUP, row))
    run.compare(asked)
    run.parameters = {"window": window, "cores": 2, "tuples_per_stream": n}
    loop, index = (list(run.rows.by("reach", "tuples_per_s", kind=kind).values()) for kind in REACHES)
    selectivities = [row["selectivity"] for row in run.rows.where(kind="nested loop")]
    results = run.rows.at("results_per_tuple", kind="nested loop", reach=REACHES["nested loop"][-1])
    ratio, nearly = loop[-1] / loop[0], loop[1] / loop[0]
    facts = {
        "the share of pairs that match grows by a factor of": selectivities[-1] / selectivities[0],
        "results per tuple at the end:": results,
        "the nested loop keeps of its throughput": ratio,
        "the index keeps": index[-1] / index[0],
        f"after the first factor of {selectivities[1] / selectivities[0]:.0f}, the nested loop keeps": nearly,
    }
    return Verdict(nearly > 0.8 and ratio < 1, ratio, facts, partly=ratio < 1)


FIGURE = Figure(
    measure,
    "most / least selective, nested loop, tuples/s",
    (Panel("2 join cores", "selectivity", "tuples_per_s", "kind", log="x"),),
    f"kind; reach; selectivity; {RATE}",
    needs_spark=True,
)
