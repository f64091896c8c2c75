"""Ring, ATR and CTR against selectivity (PSP, section 8.2).

Response time grows with the selectivity, because more partial results look for partners. What is stored does
not depend on it, because no intermediate result is stored.
"""

from bench.core.figure import Run, Verdict
from bench.papers.psp.sweeps import compare_models, figure, grow


def verdict(run: Run) -> Verdict:
    slower, state = (grow(run, name, "model") for name in ("response_ms", "mb_held"))
    facts = {
        "from the lowest to the highest selectivity, response times grow by factors of": slower,
        "pairs looked at grow by factors of": grow(run, "candidates", "model"),
        "bytes stored grow by factors of": state,
        "MB in flight at the highest:": run.rows.by("model", "mb_in_flight", selectivity=0.5),
    }
    is_flat = max(abs(ratio - 1) for ratio in state.values()) < 0.02
    return Verdict(is_flat and min(slower.values()) > 1.2, slower["Ring"], facts, partly=is_flat)


POINTS = compare_models("selectivity", (0.05, 0.1, 0.5))
FIGURE = figure("selectivity", "model", POINTS, "ring, response at 0.5 / 0.05", verdict)
