"""Ring, ATR and CTR against the number of streams (PSP, section 8.2).

Response time grows with the number of streams, because each is one hop more. What is stored grows in
proportion to the streams.
"""

from bench.core.figure import Run, Verdict
from bench.papers.psp.images import Workload
from bench.papers.psp.sweeps import compare_models, figure, grow

STREAMS = (3, 5, 7, 9)


def verdict(run: Run) -> Verdict:
    few, many = run.some(STREAMS)[0], run.some(STREAMS)[-1]
    slower, state = (grow(run, name, "model") for name in ("response_ms", "tuples_held"))
    facts = {
        f"from {few} to {many} streams, response times grow by factors of": slower,
        "tuples held grow by factors of": state,
        "epochs to a result with the most streams:": run.rows.by("model", "response_epochs", streams=many),
    }
    remark = (
        "a hop is an epoch here, and what partial results under way may still ask for is kept that long,"
        " which ATR is spared"
    )
    in_proportion = abs(state["Ring"] / (many / few) - 1) < 0.1
    holds = in_proportion and min(slower.values()) > 1
    return Verdict(holds, slower["Ring"], facts, remark, partly=min(slower.values()) > 1)


FIGURE = figure(
    "streams",
    "model",
    compare_models("streams", STREAMS),
    "ring, response of nine streams / three",
    verdict,
    # Results grow fast with the streams.
    Workload(per_window=24, selectivity=0.05),
)
