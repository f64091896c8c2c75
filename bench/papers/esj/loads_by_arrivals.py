"""Loads of the workers against the arrivals of an epoch (ESJ, load balancing by MP-2PF).

Loads of neighbours stay within the threshold and a block of each other, whatever the input does.

Both streams flow steadily. A worker counts what is under way as its neighbour's load, also what the neighbour
passes on in the same epoch. In ESJ a message takes microseconds, and little is under way. Here it takes an
epoch, so what is under way follows from the arrivals of an epoch.
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers.esj.load_over_time import BLOCK, WINDOW_EPOCHS, WORKERS, Phase, script, summarise
from bench.papers.esj.replay import replay
from thetastream.models import Chain

ARRIVALS = (16, 32, 64, 128, 256, 512)
"""Tuples of a stream in an epoch."""
PHASES = (Phase("filling", WINDOW_EPOCHS, 1, 1), Phase("steady", 24, 1, 1))
EVEN = 0.8
"""The share of epochs within the bound from which on loads count as even."""


def measure(run: Run) -> Verdict:
    for arrivals in run.some(ARRIVALS):
        run.announce(f"{arrivals} tuples an epoch")
        query, epochs = script(run, PHASES, arrivals)
        steps = list(replay(query, Chain(WORKERS, BLOCK), epochs))
        run.check(f"{arrivals} tuples an epoch", query.expected, sum(step.results for step in steps))
        steady = steps[WINDOW_EPOCHS : len(epochs)]
        run.add(arrivals=arrivals, series="steady", bound=2 * BLOCK, **summarise(steady, BLOCK))
    run.parameters = {
        "workers": WORKERS,
        "block": BLOCK,
        "threshold": BLOCK,
        "window (epochs)": WINDOW_EPOCHS,
    }
    within = run.rows.by("arrivals", "within")
    apart = run.rows.by("arrivals", "apart_mean")
    even = [arrivals for arrivals, share in within.items() if share >= EVEN]
    # All arrivals but a part for each worker pass the first link of the chain.
    flow = {arrivals: arrivals * (WORKERS - 1) / WORKERS for arrivals in apart}
    most = max(within)
    ratio = apart[most] / flow[most]
    facts = {
        "by arrivals of an epoch, the share of epochs in which all neighbours are within the bound:": within,
        "loads are even up to tuples an epoch:": max(even, default=0),
        "their mean difference:": apart,
        f"at {most:,}, the mean difference is what passes the first link in an epoch times": ratio,
    }
    remark = (
        "what is under way decides: loads are even if an epoch brings at most half a block, so a block of two"
        " epochs' arrivals keeps them even"
    )
    return Verdict(len(even) == len(within), ratio, facts, remark, partly=bool(even))


FIGURE = Figure(
    measure,
    "mean difference of neighbours / what passes the first link in an epoch, at most arrivals",
    (
        Panel("dashed: threshold + block", "arrivals", "apart_mean", "series", log="x", beside="bound"),
        Panel("epochs within the bound (share)", "arrivals", "within", "series", log="x"),
    ),
    "arrivals|tuples of a stream and epoch; mean_load; apart_mean; apart_most; within; moved",
)
