"""Load of the most loaded unit under skew (an experiment of ours on BiStream, section 3.2.2).

Under skew, hash routing overloads single units; ContRand spreads the heavy keys over a subgroup, and random
routing over all units at the price of more copies.

The load of a unit is the number of tuples that it stores, or that it receives to store or to probe:

    imbalance = largest load / mean load      over the units of one side; the worse side counts
"""

import numpy as np

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.replay import bound, held, replay
from bench.papers import inputs
from thetastream.models import Biclique

SIDE = 8
"""Number of units of each side."""
EXPONENTS = (0.0, 0.5, 0.8, 1.1, 1.4)
ZIPF = 1.1
SUBGROUPS = {"pure hash": 8, "ContRand, 4 subgroups": 4, "ContRand, 2 subgroups": 2, "random": 1}
EPOCHS, REPLAYS = 4, 3
TUPLES = 120_000
"""Number of tuples of a stream."""


def imbalance(loads: list[int]) -> float:
    """Divide the largest load by the mean, for the worse side.

    >>> imbalance([4, 2, 3, 3, 3, 3, 3, 3, *[1] * 8])
    1.3333333333333333
    """
    return max(float(np.max(side) / np.mean(side)) for side in (loads[:SIDE], loads[SIDE:]))


def measure(run: Run) -> Verdict:
    for exponent in EXPONENTS:
        query = inputs.zipf(run.sized(TUPLES), exponent, run.seed)
        for setting, subgroups in SUBGROUPS.items():
            model = Biclique(SIDE, subgroups=subgroups)
            steps = run.replay(query, model, EPOCHS, f"Zipf {exponent}, {setting}")
            replays = [steps, *(list(replay(query, model, EPOCHS)) for _ in range(REPLAYS - 1))]
            received = [sum(step.units[unit].received for step in steps) for unit in range(2 * SIDE)]
            run.add(
                exponent=exponent,
                setting=setting,
                model=repr(model),
                stored_imbalance=imbalance(held(steps)),
                received_imbalance=imbalance(received),
                received_per_tuple=sum(received) / query.volume,
                received_by_largest=max(received) / query.volume,
                **bound(replays, range(EPOCHS // 2, EPOCHS)),
            )
    run.parameters = {"units_a_side": SIDE, "tuples_per_stream": run.sized(TUPLES), "keys": 10_000}
    by = {name: run.rows.by("setting", name, exponent=ZIPF) for name in run.rows[0]}
    hashed, _, two, random = by["stored_imbalance"].values()
    allowed = by["bound_tuples_per_s"]
    ratio = hashed / two
    facts = {
        f"at Zipf {ZIPF} and {SIDE} units a side, the most loaded unit stores the mean times": by[
            "stored_imbalance"
        ],
        "pure hash loads it as much as ContRand with 2 subgroups times": ratio,
        "copies received of a tuple:": by["received_per_tuple"],
        "the busiest unit receives the share of all tuples": by["received_by_largest"],
        "by the CPU time of the busiest unit, the throughput of pure hash could be multiplied by": {
            name: bound / allowed["pure hash"] for name, bound in allowed.items()
        },
    }
    return Verdict(hashed > two > random, ratio, facts)


FIGURE = Figure(
    measure,
    "pure hash / ContRand, load of the most loaded unit",
    (
        Panel("8 units a side", "exponent", "stored_imbalance", "setting"),
        Panel("8 units a side", "exponent", "received_by_largest", "setting"),
    ),
    "exponent; setting|routing; stored_imbalance; received_imbalance; received_per_tuple;"
    " received_by_largest; cpu_us_per_tuple|CPU µs/tuple, all units;"
    " bound_tuples_per_s|bound by the busiest (tuples/s)",
    is_in_table=lambda row: row["exponent"] in (0.0, ZIPF),
)
