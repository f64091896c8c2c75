"""Largest volume against units, with the same memory for each unit (BiStream, figures 10, 15 and 16).

The volume that the biclique can hold grows in proportion to the units, the matrix's far more slowly.

With M bytes a unit, p units and b bytes a tuple with its index, streams of equal length:

    V_bi = p M / b        V_mat = p M / (sqrt(p) b) = sqrt(p) M / b

The budget is small here, so that it is reached in seconds. Only the ratios can be compared.
"""

from collections.abc import Mapping

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.core.internals import Model
from bench.core.query import Query
from bench.core.replay import Step, bytes_held, replay, until
from bench.papers import inputs
from bench.papers.bistream.models import by_size

BUDGET = 400_000
"""Bytes that the tuples of a unit and their index may take."""
UNITS = (4, 9, 16, 36, 64)
EPOCHS = 60


def largest(step: Step) -> int:
    """Return the bytes of the unit that holds most."""
    return max(bytes_held(step))


def reached(steps: list[Step], budget: float) -> float:
    """Compute the volume at which the first unit reaches the budget, with a straight line between epochs."""
    if len(steps) == 1:
        return budget / largest(steps[0]) * steps[0].volume
    before, after = steps[-2:]
    part = (budget - largest(before)) / (largest(after) - largest(before))
    return before.volume + part * (after.volume - before.volume)


def fill_units(run: Run, query: Query, units: int, models: Mapping[str, Model], budget: float) -> None:
    """Measure for each model of so many units the volume at which the first unit reaches the budget."""
    for setting, model in models.items():
        what = f"{units} units, {setting}"
        run.announce(what)
        steps = until(replay(query, model, EPOCHS), lambda seen: largest(seen[-1]) > budget)
        if largest(steps[-1]) <= budget:
            raise RuntimeError(f"{setting} of {units} units never reached the budget; stream more")
        run.add(units=units, setting=setting, model=repr(model), volume=round(reached(steps, budget)))
        run.check(what, query.first(len(steps), EPOCHS).expected, sum(step.results for step in steps))


def measure(run: Run) -> Verdict:
    budget = BUDGET * run.scale
    query = inputs.handshake(run.sized(260_000), run.seed)
    for units in UNITS:
        fill_units(run, query, units, by_size(units), budget)
    run.parameters = {"budget_of_a_unit": f"{budget:,.0f} bytes", "query": query.on}
    few, many = UNITS[0], UNITS[-1]
    jm, jb = (
        run.rows.ratio("volume", {"setting": name, "units": many}, {"setting": name, "units": few})
        for name in by_size(few)
    )
    names = [{"units": many, "setting": name} for name in ("JB", "JM, square")]
    ratio = run.rows.ratio("volume", *names)
    facts = {
        f"from {few} to {many} units, the volume that fits in the biclique grows by a factor of": jb,
        "the volume that fits in the square matrix grows by a factor of": jm,
        "the factors of the formulas are": (many / few, (many / few) ** 0.5),
        f"with {many} units, the biclique takes the volume of the matrix times": ratio,
    }
    return Verdict(jb > 0.8 * many / few and jm < 0.5 * many / few, ratio, facts, partly=ratio > 1.5)


FIGURE = Figure(
    measure,
    "biclique / square matrix, volume at 64 units",
    (Panel("full history, volume that fits", "units", "volume", "setting"),),
    "units; setting; model; volume",
)
