"""Throughput by setting and volume (BiStream, figures 7 and 8, in Spark, while memory is not full).

The biclique sustains more throughput than the matrix, most of all with ContRand routing where the query has
an equality.
"""

import numpy as np

from bench.core.clock import Setting
from bench.core.columns import RATE
from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model
from bench.core.query import Query
from bench.papers import inputs
from bench.papers.bistream.models import UNITS, in_spark
from thetastream.models import Biclique

EPOCHS, WARMUP = 6, 2
SCALES = {"Q5": 1, "Q7": 3, "Band": 3}
"""Multiples of the scale factor, which give streams of half a million tuples each."""


def list_models(query: Query) -> dict[str, Model]:
    """List the settings of the paper: also half of the units, and as many subgroups as units on a side."""
    found = in_spark(query) | {"JB8 (random)": Biclique(UNITS // 4)}
    return found | ({"JB-CR8": Biclique(UNITS // 2, subgroups=8)} if query.equalities else {})


def measure(run: Run) -> Verdict:
    """Measure the medians of queries, and of their epochs by the volume processed before them."""
    asked = []
    for name, times in SCALES.items():
        query = inputs.TPCH[name](run.scale * times)
        for setting, model in list_models(query).items():
            row = {"query": name, "setting": setting, "model": repr(model)}
            asked.append(Setting(f"{name}, {setting}", query, model, EPOCHS, WARMUP, row))
    timed = run.compare(asked, "received_per_tuple")
    rates = {name: run.rows.by("setting", "tuples_per_s", query=name) for name in SCALES}
    for one in asked:
        share = one.query.volume / EPOCHS
        epochs = [single["ms_by_epoch"][WARMUP - EPOCHS :] for single in timed[one.name].runs]
        for number, ms in enumerate(np.median(epochs, axis=0), WARMUP):
            run.add(**one.row, volume=round(share * number), epoch_tuples_per_s=float(1000 * share / ms))
    factors = [round(inputs.SCALE_FACTOR * run.scale * times, 4) for times in SCALES.values()]
    run.parameters = {"units": UNITS, "epochs": EPOCHS, "scale_factors": factors}
    ours = ("JB (random)", "JB-CR4", "JB-CR8")
    best = {name: max(rate[one] for one in ours if one in rate) for name, rate in rates.items()}
    over = {name: best[name] / rate["JM, square"] for name, rate in rates.items()}
    random = {name: rate["JB (random)"] / rate["JM, square"] for name, rate in rates.items()}
    half = {name: rate["JB8 (random)"] / rate["JM, square"] for name, rate in rates.items()}
    fits = {name: best[name] / rate["JM, best shape"] for name, rate in rates.items()}
    ratio = float(np.median(list(over.values())))
    facts = {
        "the best biclique reaches the throughput of the square matrix times": over,
        "the median is": ratio,
        "it reaches that of the matrix of the best shape for sizes known beforehand times": fits,
        "random routing alone reaches that of the square matrix times": random,
        "random routing with half of the units reaches it times": half,
    }
    return Verdict(min(over.values()) > 1, ratio, facts, partly=max(over.values()) > 1)


FULL, BY_EPOCH = "16 units, full history", "epoch_tuples_per_s"
FIGURE = Figure(
    measure,
    "best biclique / square matrix, tuples/s, median of the queries",
    (
        Panel(FULL, "query", "tuples_per_s", "setting"),
        Panel(FULL, "query", "cpu_us_per_tuple", "setting"),
        Panel("Q5, epoch by epoch", "volume", BY_EPOCH, "setting", {"query": "Q5"}),
        Panel("Band, epoch by epoch", "volume", BY_EPOCH, "setting", {"query": "Band"}),
    ),
    f"query; setting; model; {RATE}; received_per_tuple",
    needs_spark=True,
    is_in_table=lambda row: "tuples_per_s" in row,
)
