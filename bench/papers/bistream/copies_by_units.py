"""Copies against units (an experiment of ours on BiStream, section 3.2).

What is sent grows with the units, fastest for random routing and with the square root for the matrix; with
more subgroups it grows more slowly.
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model
from bench.core.query import Query
from bench.core.replay import total
from bench.core.rows import Row
from bench.papers import inputs
from bench.papers.bistream.models import by_copies

UNITS = (4, 16, 36, 64)


def received(run: Run, query: Query, model: Model, epochs: int = 4) -> Row:
    steps = run.replay(query, model, epochs, f"{query.name}, {model!r}")
    admitted = total(steps, "left") + total(steps, "right")
    names = ("received", "received_bytes")
    return {f"{name}_per_tuple": total(steps, name) / admitted for name in names}


def measure(run: Run) -> Verdict:
    query = inputs.zipf(run.sized(40_000), 0.0, run.seed)
    for units in UNITS:
        for setting, (model, formula) in by_copies(units).items():
            found = received(run, query, model)
            of_formula = found["received_per_tuple"] / formula
            named = {"setting": setting, "units": units, "model": repr(model)}
            run.add(**named, formula=formula, **found, of_formula=of_formula)
    run.parameters = {"query": query.on, "volume": query.volume}
    most, least = (run.rows.by("setting", "received_per_tuple", units=n) for n in (UNITS[-1], UNITS[0]))
    furthest = max(abs(row["of_formula"] - 1) for row in run.rows)
    ratio = most["JB (random)"] / most["JB-CR8"]
    facts = {
        f"copies of a tuple with {UNITS[-1]} units:": most,
        "random routing sends those of ContRand with 8 subgroups times": ratio,
        f"copies with {UNITS[0]} units:": least,
        "the largest deviation from the formulas (share) is": furthest,
    }
    return Verdict(ratio > 2 and furthest < 0.02, ratio, facts)


FIGURE = Figure(
    measure,
    "random routing / ContRand, copies",
    (Panel("equality, streams of equal length", "units", "received_per_tuple", "setting"),),
    "units; setting; received_per_tuple; received_bytes_per_tuple; formula",
)
