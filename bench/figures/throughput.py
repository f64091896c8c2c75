"""Throughput by setting and by volume, and the distribution of latency (BiStream, figures 7, 8 and 9).

Full history, 16 units: JM as a square and in the best shape for the sizes of the streams, JB with random
routing, JB-CRy where the query has an equality.
"""

import numpy as np

from bench.figures import inputs
from bench.figures.figure import Column, Figure, Measured, Panel, Row, Setup, Verdict, yes_or_no
from bench.figures.memory import UNITS, best_matrix
from bench.figures.query import Query
from bench.figures.splitjoin import RATE, runs_of, timed_rows
from bench.figures.timing import Setting, Timed
from thetastream.models import Biclique, Matrix
from thetastream.models.base import Model

EPOCHS, WARMUP = 6, 2
SCALES = {"Q5": 1, "Q7": 3, "Band": 3}
"""Times the scale factor: streams of half a million tuples each."""
SHORT_EPOCHS, SHORT = 20, 4_000
"""Epochs whose latency is measured, and their tuples of both streams."""
PERCENTILES = (10, 25, 50, 75, 90, 99)


def settings(query: Query) -> dict[str, Model]:
    """The models that can run a query."""
    found: dict[str, Model] = {
        "JM, square": Matrix(4, 4),
        "JM, best shape": best_matrix(query, UNITS),
        "JB (random)": Biclique(UNITS // 2),
    }
    if query.equalities:
        found["JB-CR4"] = Biclique(UNITS // 2, subgroups=4)
    return found


def by_setting(setup: Setup) -> Measured:
    """Figures 7 and 8."""
    asked, described = [], {}
    for make, times in zip(inputs.TPCH, SCALES.values(), strict=True):
        query = make(setup.scale * times)
        for setting, model in settings(query).items():
            name = f"{query.name}, {setting}"
            asked.append(Setting(name, query, model, EPOCHS, WARMUP))
            described[name] = {"query": query.name, "setting": setting, "model": repr(model)}
    timed = setup.clock.compare(asked, setup.repeat, setup.announce)
    rows = timed_rows(timed, described)
    for row, one in zip(rows, timed.values(), strict=True):
        row["received_per_tuple"] = one.runs[0]["received_per_tuple"]
    volumes = _by_volume(asked, described, timed)
    rate = {(row["query"], row["setting"]): row["tuples_per_s"] for row in rows}
    best = {
        query: max(rate[query, name] for name in ("JB (random)", "JB-CR4") if (query, name) in rate)
        for query in SCALES
    }
    over = {query: best[query] / rate[query, "JM, square"] for query in best}
    random = {query: rate[query, "JB (random)"] / rate[query, "JM, square"] for query in best}
    fits = {query: best[query] / rate[query, "JM, best shape"] for query in best}
    ratio = float(np.median(list(over.values())))
    text = (
        f"the best biclique reaches {_list(over)} times the throughput of the square matrix, random routing"
        f" alone {_list(random)} times; against the matrix of the best shape for sizes known beforehand the"
        f" best biclique reaches {_list(fits)} times"
    )
    return Measured(
        [*rows, *volumes],
        Verdict(yes_or_no(min(over.values()) > 1, max(over.values()) > 1), ratio, text),
        [one.check for one in timed.values()],
        {
            "units": UNITS,
            "epochs": EPOCHS,
            "scale_factors": [round(inputs.SCALE_FACTOR * setup.scale * n, 4) for n in SCALES.values()],
        },
        runs_of(timed),
    )


def _list(ratios: dict[str, float]) -> str:
    return ", ".join(f"{value:.2f} ({name})" for name, value in ratios.items())


def _by_volume(asked: list[Setting], described: dict[str, Row], timed: dict[str, Timed]) -> list[Row]:
    """Throughput of each measured epoch, by the volume processed before it; medians over the runs."""
    found = []
    for setting in asked:
        share = setting.query.volume / setting.epochs
        times = np.median(
            [run["ms_by_epoch"][-(EPOCHS - WARMUP) :] for run in timed[setting.name].runs], axis=0
        )
        found += [
            {
                **described[setting.name],
                "volume": round(share * (WARMUP + number)),
                "epoch_tuples_per_s": float(1000 * share / ms),
            }
            for number, ms in enumerate(times)
        ]
    return found


def latency(setup: Setup) -> Measured:
    """Figure 9."""
    query = inputs.q5(setup.scale)
    query = query.part(min(1.0, SHORT * SHORT_EPOCHS / query.volume))
    asked = {name: model for name, model in settings(query).items() if name != "JM, best shape"}
    timed = setup.clock.compare(
        [Setting(name, query, model, SHORT_EPOCHS, 6) for name, model in asked.items()],
        setup.repeat,
        setup.announce,
    )
    rows = []
    for name, one in timed.items():
        for percentile in PERCENTILES:
            rows.append(
                {
                    "setting": name,
                    "percentile": percentile,
                    "latency_ms": one.latency_ms(percentile),
                    **one.median,
                }
            )
    at = {(row["setting"], row["percentile"]): row["latency_ms"] for row in rows}
    ratio = at["JB-CR4", 50] / at["JM, square", 50]
    text = (
        f"the median is {at['JM, square', 50]:,.0f} ms for the square matrix, {at['JB (random)', 50]:,.0f}"
        f" ms for random routing and {at['JB-CR4', 50]:,.0f} ms for JB-CR4, {ratio:.2f} times the matrix's;"
        f" 99 % are below {at['JM, square', 99]:,.0f}, {at['JB (random)', 99]:,.0f} and"
        f" {at['JB-CR4', 99]:,.0f} ms; most of it is the floor of a micro-batch, and all settings pay it"
    )
    return Measured(
        rows,
        Verdict(yes_or_no(ratio < 0.9, ratio < 1.0), ratio, text),
        [one.check for one in timed.values()],
        {"query": query.name, "units": UNITS, "tuples_per_epoch": round(query.volume / SHORT_EPOCHS)},
        runs_of(timed),
    )


FIGURES = (
    Figure(
        name="throughput-by-setting",
        ratio_of="best biclique / square matrix, tuples/s, median of the queries",
        title="Throughput by setting and volume",
        source="BiStream, figures 7 and 8",
        claim="The biclique sustains more throughput than the matrix, most of all with ContRand routing"
        " where the query has an equality.",
        panels=(
            Panel("16 units, full history", "query", "tuples_per_s", "setting", ("", "tuples/s")),
            Panel("16 units, full history", "query", "cpu_us_per_tuple", "setting", ("", "CPU µs/tuple")),
            *(
                Panel(
                    f"{name}, epoch by epoch",
                    "volume",
                    "epoch_tuples_per_s",
                    "setting",
                    ("volume before (tuples)", "tuples/s"),
                    {"query": name},
                )
                for name in ("Q5", "Band")
            ),
        ),
        columns=(
            Column("query", "query"),
            Column("setting", "setting"),
            Column("model", "model", "`{}`"),
            *RATE,
            Column("copies received per tuple", "received_per_tuple", "{:.2f}"),
        ),
        measure=by_setting,
        needs_spark=True,
        is_in_table=lambda row: "tuples_per_s" in row,
    ),
    Figure(
        name="latency-distribution",
        ratio_of="JB-CR4 / square matrix, median latency",
        title="Distribution of latency",
        source="BiStream, figure 9",
        claim="Most tuples have a small latency, and the biclique's is below the matrix's.",
        panels=(
            Panel(
                "Q5, 16 units", "latency_ms", "percentile", "setting", ("latency (ms)", "% of tuples below")
            ),
        ),
        columns=(
            Column("setting", "setting"),
            Column("percentile", "percentile"),
            Column("latency (ms)", "latency_ms", "{:,.0f}"),
            Column("CPU µs/tuple", "cpu_us_per_tuple", "{:.1f}"),
        ),
        measure=latency,
        needs_spark=True,
        is_in_table=lambda row: row["percentile"] in (50, 90, 99),
    ),
)
