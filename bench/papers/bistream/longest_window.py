"""Longest window, with the same memory for each unit (BiStream, table 4).

With the same memory the biclique supports a several times longer window than the matrix.
"""

from itertools import islice

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.replay import replay, until
from bench.papers import inputs
from bench.papers.bistream.capacity_by_units import BUDGET, largest
from bench.papers.bistream.models import UNITS, by_size

EPOCHS = 120
HALVINGS = 7


def measure(run: Run) -> Verdict:
    budget = BUDGET * run.scale
    whole = inputs.handshake(run.sized(150_000), run.seed)
    for setting, model in by_size(UNITS).items():
        low, high, most = 0.0, 0.5, 0
        for halving in range(HALVINGS):
            share = (low + high) / 2
            run.announce(f"{setting}, {share:.3f} of the stream")
            query = whole.within(share)
            # The window is full after a little more than one and a half windows.
            epochs = islice(replay(query, model, EPOCHS), int(1.5 * share * EPOCHS + 3) + 1)
            steps = until(epochs, lambda seen: largest(seen[-1]) > budget)
            if largest(steps[-1]) > budget:
                high = share
            else:
                low, most = share, max(largest(step) for step in steps)
            if halving in (0, HALVINGS - 1):
                expected = query.first(len(steps), EPOCHS).expected
                run.check(f"{setting}, {share:.3f}", expected, sum(step.results for step in steps))
        row = {"setting": setting, "model": repr(model), "series": f"{UNITS} units"}
        run.add(**row, window=round(low * whole.volume), mb_of_largest=most / 1e6)
    run.parameters = {"budget_of_a_unit": f"{budget:,.0f} bytes", "units": UNITS, "query": whole.on}
    jm, jb = (row["window"] for row in run.rows)
    ratio = jb / jm
    facts = {
        f"with {UNITS} units of the same memory, the longest window (tuples) of the biclique is": jb,
        "that of the square matrix is": jm,
        "the first is the second times": ratio,
    }
    return Verdict(ratio > 2, ratio, facts, partly=ratio > 1.2)


FIGURE = Figure(
    measure,
    "biclique / square matrix, window",
    (Panel("handshake, tuples of both streams", "setting", "window", "series"),),
    "setting; model; window|window (tuples of both streams); mb_of_largest|MB of the largest unit",
)
