"""Draws simulations: as text, and as a picture if matplotlib is there."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.families.pairs.explain import format_nbytes
from thetastream.simulator.limits import Limit
from thetastream.simulator.scaling import Step

WIDTH, MOST_LINES = 40, 60
"""Characters of a bar, and lines of a replay."""


def draw_replay(steps: Sequence[Step]) -> Iterator[str]:
    """Yield one line for each of at most ``MOST_LINES`` times, and for each change."""
    most = max(step.fullest_bytes for step in steps) or 1.0
    apart_s = max(60.0, (steps[-1].time_s - steps[0].time_s) / MOST_LINES)
    yield f"{'minute':>6}  {'tuples/s':>10}  {'units':>7}  {'fullest unit':>12}  {'busy':>5}"
    next_s = steps[0].time_s
    for step in steps:
        if step.time_s < next_s and not step.is_change:
            continue
        next_s = max(next_s, step.time_s - step.time_s % apart_s + apart_s)
        bar = "#" * round(WIDTH * step.fullest_bytes / most)
        left, right = step.units
        change = "  <- units change" if step.is_change else ""
        yield (
            f"{step.time_s / 60:6.1f}  {step.rate:10,.0f}  {f'{left}+{right}':>7}  "
            f"{format_nbytes(step.fullest_bytes):>12}  {step.busiest:5.0%}  {bar}{change}"
        )


def draw_limits(limits: Sequence[Limit]) -> Iterator[str]:
    """Yield a table of the limits, one line for each number of units, and what to change where."""
    resources = list(limits[0].uses)
    heads = "  ".join(f"{resource.name:>10}" for resource in resources)
    yield f"{'units':>5}  {'tuples/s':>14}  {'binds first':16}  {heads}  model"
    for limit in limits:
        uses = "  ".join(f"{limit.uses[resource]:10.0%}" for resource in resources)
        yield f"{limit.n_units:5}  {limit.rate:14,.0f}  {limit.binding:16}  {uses}  {limit.model!r}"
    for binding, advice in dict.fromkeys((limit.binding, limit.advice) for limit in limits):
        yield f"{binding} first: {advice}"


def plot_replay(steps: Sequence[Step], path: Path) -> None:
    """Draw a replay like BiStream's figure 12: the rate at the top, MLV and units below it.

    Raises
    ------
    ThetastreamError
        MISSING_PACKAGE.
    QueryError
        BAD_VALUE if the picture cannot be written, or not in this format.
    """
    try:
        from matplotlib.figure import Figure  # an optional package
    except ModuleNotFoundError as error:
        hint = "matplotlib is needed and missing: pip install 'thetastream[demo]'"
        raise ThetastreamError("MISSING_PACKAGE", hint) from error
    minutes = [step.time_s / 60 for step in steps]
    figure = Figure(figsize=(8, 5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    above.plot(minutes, [step.rate for step in steps], color="tab:blue")
    above.set_ylabel("tuples/s")
    below.plot(minutes, [step.fullest_bytes / 1e9 for step in steps], color="tab:red")
    below.set_ylabel("fullest unit (GB)", color="tab:red")
    below.set_xlabel("minute")
    units = below.twinx()
    units.step(minutes, [sum(step.units) for step in steps], where="post", color="tab:green")
    units.set_ylabel("units", color="tab:green")
    units.set_ylim(bottom=0)
    for axes in (above, below):
        axes.set_ylim(bottom=0)
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise QueryError("BAD_VALUE", f"the picture {path} cannot be written: {error}") from error
