"""Throughput with and without aggregation (BiStream, figure 13).

Aggregation hardly changes the throughput, because every unit folds its own results while it finds them.

The throughput is what the busiest unit allows: tuples divided by its CPU seconds, in one process, without
Spark. A unit without aggregation hands out its results as pairs, and a unit with aggregation folds them into
one view for each epoch. The merger is a process of its own; its CPU time does not count.
"""

from typing import Any

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model
from bench.core.replay import Step, bound, run_epochs
from bench.core.rows import Rows
from bench.papers import inputs
from bench.papers.bistream.aggregates import Aggregated, Merger, make_queries
from bench.papers.bistream.models import UNITS
from thetastream.models import Biclique

EPOCHS, WARMUP, REPLAYS = 8, 2, 3
SETTING = f"JB{UNITS}-CR4"
MODELS = {
    f"JB{UNITS}": Biclique(UNITS // 2),
    SETTING: Biclique(UNITS // 2, subgroups=4),
}
"""For Band, ContRand routes by cells of the order key."""
PAIRS, VIEWS = "pairs", "aggregated"


def measure_pairs(run: Run, asked: Aggregated, model: Model, what: str) -> list[Step]:
    run.announce(f"{what}, {PAIRS}")
    steps = [step for step, _ in run_epochs(asked.plain_run(model), asked.query, EPOCHS)]
    run.check(f"{what}, {PAIRS}", asked.query.expected, sum(step.results for step in steps))
    return steps


def measure_views(run: Run, asked: Aggregated, model: Model, what: str) -> tuple[list[Step], Merger]:
    run.announce(f"{what}, {VIEWS}")
    steps, merger = [], Merger(asked)
    for step, found in run_epochs(asked.run(model), asked.query, EPOCHS):
        steps.append(step)
        merger.merge(found)
    run.check(f"{what}, {VIEWS}", asked.expected, asked.count(merger.view))
    return steps, merger


def measure(run: Run) -> Verdict:
    measured = range(WARMUP, EPOCHS)
    for name, asked in make_queries(run.scale).items():
        for setting, model in MODELS.items():
            what = f"{name}, {setting}"
            plain, folded, merger = [], [], Merger(asked)
            for _ in range(REPLAYS):  # In turn, so that a disturbance meets both.
                plain.append(measure_pairs(run, asked, model, what))
                steps, merger = measure_views(run, asked, model, what)
                folded.append(steps)
            row = {"query": name, "setting": setting, "epoch_tuples": asked.query.volume / EPOCHS}
            results = sum(step.results for step in plain[0]) / asked.query.volume
            run.add(**row, output=PAIRS, **bound(plain, measured), results_per_tuple=results)
            run.add(**row, output=VIEWS, **bound(folded, measured), rows=merger.rows)
    run.parameters = {"units": UNITS, "epochs": EPOCHS, "scale_factor": inputs.SCALE_FACTOR * run.scale}
    return judge(run.rows)


def judge(rows: Rows) -> Verdict:
    """Compare the rows of views with those of pairs, and add what it costs to fold."""
    kept: dict[str, dict[str, float]] = {setting: {} for setting in MODELS}
    for views in rows.where(output=VIEWS):
        query, setting = views["query"], views["setting"]
        (pairs,) = rows.where(query=query, setting=setting, output=PAIRS)
        kept[setting][query] = views["bound_tuples_per_s"] / pairs["bound_tuples_per_s"]
        more = views["cpu_us_per_tuple"] - pairs["cpu_us_per_tuple"]
        views["folding_ms"] = more * views["epoch_tuples"] / UNITS / 1e3
    for row in rows:
        row["series"] = f"{row['setting']}, {row['output']}"
    joined = [row["cpu_us_per_tuple"] for row in rows.where(output=PAIRS)]
    ratio = min(min(shares.values()) for shares in kept.values())
    facts: dict[str, Any] = {
        f"with aggregation, {setting} keeps of its throughput": shares for setting, shares in kept.items()
    }
    facts |= {
        "the least is": ratio,
        "to join a tuple takes (CPU µs of all units) from": f"{min(joined):.2f} to {max(joined):.2f}",
        "to fold the results of an epoch takes a unit (CPU ms)": rows.by(
            "query", "folding_ms", output=VIEWS, setting=SETTING
        ),
    }
    remark = (
        "a unit folds a hundred results or a thousand in about the same time, and joins so fast that this"
        " shows; what folding saves, because no pairs are handed out, is not in the figure"
    )
    return Verdict(ratio > 0.9, ratio, facts, remark, partly=ratio > 0.7)


FIGURE = Figure(
    measure,
    "aggregated / pairs, throughput that the busiest unit allows, the query with the least",
    tuple(
        Panel(name, "query", figure, "series")
        for name, figure in (("16 units", "bound_tuples_per_s"), ("16 units", "cpu_us_per_tuple"))
    ),
    "query; setting; output|units hand out; bound_tuples_per_s; cpu_us_per_tuple|CPU µs/tuple, all units;"
    " results_per_tuple; rows|rows of views; folding_ms|CPU ms to fold, unit and epoch",
)
