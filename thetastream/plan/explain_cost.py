"""Explains cost: the cost of each model that can run the join, and the reason for the choice."""

from collections.abc import Callable, Iterator, Sequence
from math import ceil
from typing import Any

from thetastream.core.shed import STATE, Shed
from thetastream.core.windows import spell
from thetastream.engine.order import Order
from thetastream.models.base import Model
from thetastream.plan.choose import choose_n_units, compare, find_refusal
from thetastream.plan.cost import Estimate, estimate
from thetastream.plan.explain_chain import explain_chain
from thetastream.plan.lower import Lowered
from thetastream.plan.physical import compute_lifetimes
from thetastream.plan.query import Query
from thetastream.plan.routing_shares import StreamShares, compute_shares
from thetastream.plan.second_exchange import SecondExchange
from thetastream.plan.statistics import Statistics
from thetastream.plan.workload import Inflow, Workload, build_workload, estimate_delay_s


def explain_cost(
    query: Query,
    lowered: Lowered,
    model: Model,
    reason: str,
    order: Order | None,
    partitions: int,
    statistics: Statistics | None,
    shed: Shed | None = None,
) -> Iterator[str]:
    """Yield the cost, one fact per line, then a table of models and the choice."""
    known = statistics or Statistics()
    work = build_workload(query, lowered, known)
    own_lines = ESTIMATES[model.costs_by]
    if own_lines is not None:
        yield from own_lines(model, query, work, known)
        yield _explain_statistics(query, statistics, known)
        yield f"choice: {model!r}, {reason}"
        return
    # 1. Show the formulas.
    a, b = query.aliases
    for alias, other, mine in zip(
        (a, b), (b, a), compute_shares(model, is_ranged=work.is_ranged(model)), strict=True
    ):
        yield f"tuple of {alias}: {format_average(mine.sends)} sends ({_format_parts(mine, other)})"
    lives = zip(
        compute_lifetimes(lowered.physical.condition.window), query.counts or (None, None), strict=True
    )
    for alias, (life, count) in zip(query.aliases, lives, strict=True):
        span = "all tuples so far" if life is None else f"rate({alias}) x ({spell(life)} + watermark delay)"
        yield f"state of {alias}: {span if count is None else f'the last {count:,} tuples'}"
    yield f"probe: {work.index.probe_cost} per unit and subindex, n tuples stored there"
    # 2. Show the figures.
    yield _explain_statistics(query, statistics, known)
    for flow in work.inflows:
        yield _explain_inflow(flow)
    if work.second is not None:
        yield _explain_second_exchange(work.second, work)
    compared = compare(
        work, partitions, lambda other: find_refusal(other, lowered, order is not None) is None
    )
    yield from _build_table(work, compared, model, partitions)
    if shed is not None and shed.load == STATE and work.is_bounded:
        yield _explain_shedding(shed, estimate(model, work, partitions).mlv_bytes)
    if not work.is_bounded:
        yield "Full history: state grows for as long as the query runs."
    yield f"choice: {model!r}, {reason.removeprefix('chosen: ')}"


def format_average(n: float) -> str:
    """Format a number of copies as a whole number or as an average.

    >>> format_average(2.0), format_average(1.5)
    ('2', '1.5 on average')
    """
    return f"{round(n)}" if abs(n - round(n)) < 0.005 else f"{n:.3g} on average"


def _format_parts(mine: StreamShares, other: str) -> str:
    return f"{format_average(mine.copies)} stored, {format_average(mine.probes)} probing {other}"


def _explain_statistics(query: Query, statistics: Statistics | None, known: Statistics) -> str:
    late = f"watermark {format_seconds(estimate_delay_s(query, known))} behind"
    if known.origin == "measured":
        return f"statistics: measured; {late}, epochs of {format_seconds(known.epoch_s)}"
    if statistics is None:
        return f"statistics: assumed; {late}; measure them with th.statistics(query)"
    return f"statistics: assumed, as given; {late}"


def _explain_inflow(flow: Inflow) -> str:
    sizes = f"{flow.stored_bytes:.0f} bytes stored, {flow.sent_bytes:.0f} sent"
    kept = (
        "kept for ever"
        if flow.span_s is None
        else f"kept {format_seconds(flow.span_s)}: {flow.estimate_held():,.0f} tuples"
    )
    return f"  {flow.alias}: {flow.rate:,.0f} tuples/s, {sizes}, {kept}"


def _explain_second_exchange(second: SecondExchange, work: Workload) -> str:
    tuples = " and ".join(f"each tuple of {work.inflows[side].alias}" for side in second.preserved)
    known = "" if _knows_comparisons(work) else ", whose number is not known and is left out of the costs"
    return f"  second exchange: {second.row_bytes:.0f} bytes for {tuples}, and for each candidate pair{known}"


def _explain_shedding(shed: Shed, mlv_bytes: float) -> str:
    kept = shed.settle(mlv_bytes)
    return (
        f"shedding: the fullest unit would hold {format_nbytes(mlv_bytes)}; about {kept:.0%} of the tuples "
        f"and {shed.estimate_kept(1 - kept):.0%} of the pairs are kept"
    )


ESTIMATES: dict[str, Callable[[Any, Query, Workload, Statistics], Iterator[str]] | None] = {
    "routes": None,
    "forwarding": explain_chain,
}
"""How a model's cost is explained, by ``Model.costs_by``. None means by its routes, with the other models."""

_HEAD = ("model", "state", "busiest unit", "sends a tuple", "exchange", "comparisons a tuple", "cost")


def _build_table(work: Workload, compared: list[Estimate], model: Model, partitions: int) -> Iterator[str]:
    """Yield a table of the cheapest variant of every model and of the model that runs, sorted by cost."""
    mine = estimate(model, work, partitions)
    if mine not in compared:
        compared = sorted([*compared, mine], key=lambda found: found.cost)
    n_units = choose_n_units(partitions)
    yield f"models of {n_units} units on {partitions} shuffle partitions, * the one that runs:"
    rows = [_HEAD, *(_build_row(found, work, mine) for found in compared)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEAD))]
    for marked, row in zip([" ", *("*" if found == mine else " " for found in compared)], rows, strict=True):
        yield (
            f"{marked} "
            + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _build_row(found: Estimate, work: Workload, mine: Estimate) -> Sequence[str]:
    return (
        repr(found.model),
        _format_state(found.memory_bytes, found.growth_bytes),
        _format_state(found.mlv_bytes, found.mlv_growth_bytes),
        ", ".join(f"{n:.3g}" for n in found.sends),
        f"{format_nbytes(found.sent_bytes_per_s + found.second_bytes_per_s)}/s",
        ", ".join(_format_comparisons(n, work) for n in found.comparisons),
        f"{found.cost / mine.cost:.0%}" if mine.cost else "-",
    )


def _format_comparisons(n: float, work: Workload) -> str:
    return f"{ceil(n):,}" + ("" if _knows_comparisons(work) else " + candidates")


def _knows_comparisons(work: Workload) -> bool:
    """Whether the number of candidates is known."""
    return work.index.looks_at_all or work.candidates is not None


def _format_state(kept: float, growth: float) -> str:
    if not growth:
        return format_nbytes(kept)
    return f"{format_nbytes(kept) + ' ' if kept else ''}+ {format_nbytes(growth)}/hour"


def format_nbytes(n: float) -> str:
    """Format a number of bytes with a unit.

    >>> format_nbytes(512), format_nbytes(83_200), format_nbytes(2.5e9)
    ('512 B', '83.2 kB', '2.5 GB')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n >= size:
            return f"{n / size:.3g} {unit}" if n < 1000 * size else f"{n / size:,.0f} {unit}"
    return f"{n:.0f} B"


def format_seconds(n: float) -> str:
    """Format a time span with a unit.

    >>> format_seconds(0.5), format_seconds(90), format_seconds(7_200)
    ('0.5 s', '90 s', '2 h')
    """
    return f"{n / 3600:.3g} h" if n >= 3_600 else f"{n:.3g} s"
