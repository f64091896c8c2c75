"""Skewed keys: the load of the most loaded unit, and what it does to throughput (BiStream, section 3.2.2).

Pure hash gives all tuples of a heavy key to one unit; ContRand spreads them over a subgroup; random routing
over all units. The load of a unit is the tuples it stores, and the tuples it receives to store or to probe:

    imbalance = largest load / mean load      over the units of one side, the worse side counts
"""

import numpy as np

from bench.figures import inputs
from bench.figures.figure import Check, Column, Figure, Measured, Panel, Row, Setup, Verdict, yes_or_no
from bench.figures.replay import cpu_of_units, held, replay
from bench.figures.splitjoin import RATE, runs_of, timed_rows
from bench.figures.timing import Setting
from thetastream.models import Biclique

SIDE = 8
"""Units of each side."""
EXPONENTS = (0.0, 0.5, 0.8, 1.1, 1.4)
ZIPF = 1.1
SUBGROUPS = {"pure hash": 8, "ContRand, 4 subgroups": 4, "ContRand, 2 subgroups": 2, "random": 1}
EPOCHS, REPLAYS = 4, 3
TUPLES = 120_000
"""Of a stream."""
SPARK_TUPLES = 240_000


def imbalance(loads: list[int]) -> float:
    """Largest over mean, of the worse side.

    >>> imbalance([4, 2, 3, 3, 3, 3, 3, 3, *[1] * 8])
    1.3333333333333333
    """
    return max(float(np.max(side) / np.mean(side)) for side in (loads[:SIDE], loads[SIDE:]))


def load(setup: Setup) -> Measured:
    """Loads counted in one process."""
    rows: list[Row] = []
    checks = []
    for exponent in EXPONENTS:
        query = inputs.zipf(setup.sized(TUPLES), exponent, setup.seed)
        expected = query.expected()
        for setting, subgroups in SUBGROUPS.items():
            setup.announce(f"skew: Zipf {exponent}, {setting}")
            model = Biclique(SIDE, subgroups=subgroups)
            replays = [list(replay(query, model, EPOCHS)) for _ in range(REPLAYS)]
            steps = replays[0]
            received = [sum(step.units[unit].received for step in steps) for unit in range(2 * SIDE)]
            measured = range(EPOCHS // 2, EPOCHS)
            cpu_s = cpu_of_units(replays, measured)
            tuples = steps[-1].volume - steps[measured[0] - 1].volume
            rows.append(
                {
                    "exponent": exponent,
                    "setting": setting,
                    "model": repr(model),
                    "stored_imbalance": imbalance(held(steps)),
                    "received_imbalance": imbalance(received),
                    "received_per_tuple": sum(received) / query.volume,
                    "received_by_largest": max(received) / query.volume,
                    "bound_tuples_per_s": tuples / max(cpu_s),
                    "cpu_us_per_tuple": 1e6 * sum(cpu_s) / tuples,
                }
            )
            checks.append(Check(f"Zipf {exponent}, {setting}", expected, sum(step.results for step in steps)))
    at = {row["setting"]: row for row in rows if row["exponent"] == ZIPF}
    hashed, spread, random = (at[name] for name in ("pure hash", "ContRand, 2 subgroups", "random"))
    ratio = hashed["stored_imbalance"] / spread["stored_imbalance"]
    text = (
        f"at Zipf {ZIPF} and {SIDE} units a side the most loaded unit stores"
        f" {hashed['stored_imbalance']:.2f} times the mean with pure hash,"
        f" {at['ContRand, 4 subgroups']['stored_imbalance']:.2f} with 4 subgroups,"
        f" {spread['stored_imbalance']:.2f} with 2 and {random['stored_imbalance']:.2f} with random routing;"
        f" that is {ratio:.2f} times less for 2 subgroups than for pure hash, but a tuple is then received"
        f" {spread['received_per_tuple']:.0f} times instead of {hashed['received_per_tuple']:.0f}, and the"
        f" busiest unit receives {spread['received_by_largest']:.2f} of all tuples instead of"
        f" {hashed['received_by_largest']:.2f}; by the CPU time of the busiest unit 4 and 2 subgroups would"
        f" allow {at['ContRand, 4 subgroups']['bound_tuples_per_s'] / hashed['bound_tuples_per_s']:.2f} and"
        f" {spread['bound_tuples_per_s'] / hashed['bound_tuples_per_s']:.2f} times the throughput of pure"
        " hash"
    )
    holds = hashed["stored_imbalance"] > spread["stored_imbalance"] > random["stored_imbalance"]
    parameters = {"units_a_side": SIDE, "tuples_per_stream": setup.sized(TUPLES), "keys": 10_000}
    return Measured(rows, Verdict(yes_or_no(holds), ratio, text), checks, parameters)


def throughput(setup: Setup) -> Measured:
    """Whole queries in Spark with such keys."""
    query = inputs.zipf(setup.sized(SPARK_TUPLES), ZIPF, setup.seed).within(1 / 4)
    settings = [
        Setting(name, query, Biclique(SIDE, subgroups=subgroups), 7, 4)
        for name, subgroups in SUBGROUPS.items()
    ]
    timed = setup.clock.compare(settings, setup.repeat, setup.announce)
    rows = timed_rows(timed, {name: {"setting": name, "series": "8 units a side"} for name in SUBGROUPS})
    rate = {row["setting"]: row["tuples_per_s"] for row in rows}
    best = max(("ContRand, 4 subgroups", "ContRand, 2 subgroups"), key=lambda name: rate[name])
    ratio = rate[best] / rate["pure hash"]
    text = (
        f"on two cores ContRand ({best.partition(', ')[2]}) reaches {ratio:.2f} and random routing"
        f" {rate['random'] / rate['pure hash']:.2f} times the throughput of pure hash; {2 * SIDE} units"
        " share two tasks here, which evens out the load of single units, while every copy still costs its"
        " CPU"
    )
    return Measured(
        rows,
        Verdict(yes_or_no(ratio > 1.25, ratio > 1.0), ratio, text),
        [one.check for one in timed.values()],
        {
            "units_a_side": SIDE,
            "zipf": ZIPF,
            "tuples_per_stream": setup.sized(SPARK_TUPLES),
            "window": "a quarter",
        },
        runs_of(timed),
    )


FIGURES = (
    Figure(
        name="skew-load",
        ratio_of="pure hash / ContRand, load of the most loaded unit",
        title="Load of the most loaded unit under skew",
        source="BiStream, section 3.2.2 and its experiments with skew",
        claim="Under skew, hash routing overloads single units; ContRand spreads the heavy keys over a"
        " subgroup, and random routing over all units at the price of more copies.",
        panels=(
            Panel(
                f"{SIDE} units a side",
                "exponent",
                "stored_imbalance",
                "setting",
                ("Zipf exponent", "stored: largest / mean"),
            ),
            Panel(
                f"{SIDE} units a side",
                "exponent",
                "received_by_largest",
                "setting",
                ("Zipf exponent", "received by the busiest unit / all tuples"),
            ),
        ),
        columns=(
            Column("Zipf", "exponent"),
            Column("routing", "setting"),
            Column("stored: largest / mean", "stored_imbalance", "{:.2f}"),
            Column("received: largest / mean", "received_imbalance", "{:.2f}"),
            Column("copies received per tuple", "received_per_tuple", "{:.2f}"),
            Column("received by the busiest / all tuples", "received_by_largest", "{:.2f}"),
            Column("CPU µs/tuple, all units", "cpu_us_per_tuple", "{:.2f}"),
            Column("bound by the busiest (tuples/s)", "bound_tuples_per_s", "{:,.0f}"),
        ),
        measure=load,
        is_in_table=lambda row: row["exponent"] in (0.0, ZIPF),
    ),
    Figure(
        name="skew-throughput",
        ratio_of="ContRand / pure hash, tuples/s",
        title="Throughput under skew",
        source="BiStream, section 3.2.2 and its experiments with skew",
        claim="With skewed keys ContRand routing sustains more throughput than pure hash.",
        panels=(
            Panel(f"Zipf {ZIPF}", "setting", "tuples_per_s", "series", ("", "tuples/s")),
            Panel(f"Zipf {ZIPF}", "setting", "cpu_us_per_tuple", "series", ("", "CPU µs/tuple")),
        ),
        columns=(Column("routing", "setting"), *RATE),
        measure=throughput,
        needs_spark=True,
    ),
)
