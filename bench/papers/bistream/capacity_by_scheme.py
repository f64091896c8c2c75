"""Largest volume against units, for several ways to route (BiStream, figure 17).

The volume that the biclique can hold grows in proportion to the units, however its units are grouped: with
random routing, with ContRand routing and its subgroups, and with pure hash.

With M bytes a unit, p units and b bytes a tuple with its index, streams of equal length and keys that are
spread evenly:

    V_bi = p M / b

A subgroup that gets more keys than others is full earlier, so a little less fits with many subgroups.
"""

from bench.core.figure import Figure, Panel, Run, Verdict
from bench.papers import inputs
from bench.papers.bistream.capacity_by_units import BUDGET, fill_units
from thetastream.models import Biclique

UNITS = (4, 8, 16, 24, 32, 48, 64)


def by_scheme(units: int) -> dict[str, Biclique]:
    """Return the ways to route that fit so many units, half of which are on each side."""
    a_side = units // 2
    found = {"JB (random)": Biclique(a_side)}
    found |= {f"JB-CR{y}": Biclique(a_side, subgroups=y) for y in (2, 4, 8) if y < a_side}
    return found | {"pure hash": Biclique(a_side, subgroups=a_side)}


def measure(run: Run) -> Verdict:
    budget = BUDGET * run.scale
    query = inputs.zipf(run.sized(260_000), 0.0, run.seed)
    for units in UNITS:
        fill_units(run, query, units, by_scheme(units), budget)
    run.parameters = {"budget_of_a_unit": f"{budget:,.0f} bytes", "query": query.on}
    few, many = UNITS[2], UNITS[-1]
    grown = {
        name: run.rows.ratio("volume", {"setting": name, "units": many}, {"setting": name, "units": few})
        for name in by_scheme(few)
    }
    least = min(grown.values())
    facts = {
        f"from {few} to {many} units, the volume that fits grows by a factor of": grown,
        "the formula says": many / few,
    }
    return Verdict(least > 0.8 * many / few, least, facts)


FIGURE = Figure(
    measure,
    "volume at 64 units / at 16 units, least of all ways to route",
    (Panel("full history, volume that fits", "units", "volume", "setting"),),
    "units; setting; model; volume",
)
