"""What fits a fixed memory per unit: largest volume, longest window (BiStream, figures 10, 15, 16, table 4).

With M bytes a unit, p units and b bytes a tuple with its index, streams of equal length:

    V_bi = p M / b        V_mat = p M / (sqrt(p) b) = sqrt(p) M / b

The budget here is small, so that it is reached in seconds; only the ratios mean something.
"""

from itertools import pairwise

from bench.figures import inputs
from bench.figures.figure import Check, Column, Figure, Measured, Panel, Row, Setup, Verdict, yes_or_no
from bench.figures.query import Query
from bench.figures.replay import Step, replay
from thetastream.models import Biclique, Matrix
from thetastream.models.base import Model

BUDGET = 400_000
"""Bytes of a unit's tuples and their index."""
SQUARES = (2, 3, 4, 6, 8)
EPOCHS = 60
WINDOW_UNITS, WINDOW_EPOCHS = 16, 120
STEPS = 7
"""Halvings of the interval in which the longest window lies."""


def settings(units: int) -> dict[str, Model]:
    """JM and JB of about so many units; an odd number of units gives one more to the left side."""
    side = round(units**0.5)
    return {"JM, square": Matrix(side, side), "JB": Biclique((units - units // 2, units // 2))}


def largest(step: Step) -> int:
    """Bytes of the unit that holds most."""
    return max(unit.mlv_bytes for unit in step.units)


def volume(query: Query, model: Model, budget: float) -> tuple[float | None, list[Step]]:
    """The volume at which the first unit reaches the budget, between two epochs by a straight line."""
    steps: list[Step] = []
    for step in replay(query, model, EPOCHS):
        steps.append(step)
        if largest(step) > budget:
            break
    else:
        return None, steps
    if len(steps) == 1:
        return budget / largest(steps[0]) * steps[0].volume, steps
    before, after = list(pairwise(steps))[-1]
    part = (budget - largest(before)) / (largest(after) - largest(before))
    return before.volume + part * (after.volume - before.volume), steps


def up_to(query: Query, model: Model, budget: float, share: float) -> list[Step]:
    """Epochs until a unit is over the budget, or for one and a half windows and a little: it is full then."""
    steps: list[Step] = []
    for step in replay(query, model, WINDOW_EPOCHS):
        steps.append(step)
        if largest(step) > budget or len(steps) > 1.5 * share * WINDOW_EPOCHS + 3:
            break
    return steps


def by_units(setup: Setup) -> Measured:
    """Figures 10, 15 and 16."""
    budget = BUDGET * setup.scale
    rows: list[Row] = []
    checks = []
    query = inputs.handshake(setup.sized(260_000), setup.seed)
    for side in SQUARES:
        for setting, model in settings(side * side).items():
            setup.announce(f"capacity: {side * side} units, {setting}")
            reached, steps = volume(query, model, budget)
            if reached is None:
                raise RuntimeError(f"{setting} of {side * side} units never reached the budget; stream more")
            rows.append(
                {"units": side * side, "setting": setting, "model": repr(model), "volume": round(reached)}
            )
            seen = query.first(len(steps), EPOCHS)
            checks.append(
                Check(f"{side * side} units, {setting}", seen.expected(), sum(step.results for step in steps))
            )
    found = {(row["setting"], row["units"]): row["volume"] for row in rows}
    few, many = SQUARES[0] ** 2, SQUARES[-1] ** 2
    growth = {name: found[name, many] / found[name, few] for name in ("JM, square", "JB")}
    ratio = found["JB", many] / found["JM, square", many]
    text = (
        f"from {few} to {many} units the volume that fits grows {growth['JB']:.2f} times with the biclique"
        f" and {growth['JM, square']:.2f} times with the square matrix ({many / few:.0f} and"
        f" {(many / few) ** 0.5:.0f} by the formulas); with {many} units the biclique takes {ratio:.2f}"
        " times the matrix's volume"
    )
    holds = growth["JB"] > 0.8 * many / few and growth["JM, square"] < 0.5 * many / few
    parameters = {"budget_of_a_unit": f"{budget:,.0f} bytes", "query": query.on}
    return Measured(rows, Verdict(yes_or_no(holds, ratio > 1.5), ratio, text), checks, parameters)


def longest_window(setup: Setup) -> Measured:
    """Table 4."""
    budget = BUDGET * setup.scale
    whole = inputs.handshake(setup.sized(150_000), setup.seed)
    rows: list[Row] = []
    checks = []
    for setting, model in settings(WINDOW_UNITS).items():
        low, high = 0.0, 0.5
        most = 0
        for step in range(STEPS):
            share = (low + high) / 2
            setup.announce(f"longest window: {setting}, {share:.3f} of the stream")
            query = whole.within(share)
            steps = up_to(query, model, budget, share)
            if largest(steps[-1]) > budget:
                high = share
            else:
                low, most = share, max(largest(step) for step in steps)
            if step in (0, STEPS - 1):
                seen = query.first(len(steps), WINDOW_EPOCHS)
                checks.append(
                    Check(f"{setting}, {share:.3f}", seen.expected(), sum(step.results for step in steps))
                )
        rows.append(
            {
                "setting": setting,
                "model": repr(model),
                "window": round(low * whole.volume),
                "mb_of_largest": most / 1e6,
                "series": f"{WINDOW_UNITS} units",
            }
        )
    jm, jb = (row["window"] for row in rows)
    ratio = jb / jm
    text = (
        f"with {WINDOW_UNITS} units and the same memory for each, the longest window holds {jb:,} tuples"
        f" with the biclique and {jm:,} with the square matrix: {ratio:.2f} times as many"
    )
    parameters = {"budget_of_a_unit": f"{budget:,.0f} bytes", "units": WINDOW_UNITS, "query": whole.on}
    return Measured(rows, Verdict(yes_or_no(ratio > 2, ratio > 1.2), ratio, text), checks, parameters)


FIGURES = (
    Figure(
        name="capacity-by-units",
        ratio_of="biclique / square matrix, volume at 64 units",
        title="Largest volume against units, with the same memory for each unit",
        source="BiStream, figures 10, 15 and 16",
        claim="The volume that the biclique can hold grows in proportion to the units, the matrix's far more"
        " slowly.",
        panels=(Panel("full history", "units", "volume", "setting", ("units", "volume that fits (tuples)")),),
        columns=(
            Column("units", "units"),
            Column("setting", "setting"),
            Column("model", "model", "`{}`"),
            Column("volume (tuples)", "volume", "{:,}"),
        ),
        measure=by_units,
    ),
    Figure(
        name="longest-window",
        ratio_of="biclique / square matrix, window",
        title="Longest window, with the same memory for each unit",
        source="BiStream, table 4",
        claim="With the same memory the biclique supports a several times longer window than the matrix.",
        panels=(
            Panel("handshake", "setting", "window", "series", ("", "tuples of both streams in the window")),
        ),
        columns=(
            Column("setting", "setting"),
            Column("model", "model", "`{}`"),
            Column("window (tuples of both streams)", "window", "{:,}"),
            Column("MB of the largest unit", "mb_of_largest", "{:.3f}"),
        ),
        measure=longest_window,
    ),
)
