"""The Cost section of explain(): what each model that can run the join costs, and why one was taken."""

from collections.abc import Iterator, Sequence
from math import ceil

from thetastream.models.base import Model
from thetastream.models.chain import Chain
from thetastream.order import Order
from thetastream.plan.choose import compare, refusal, units_of
from thetastream.plan.cost import Estimate, estimate
from thetastream.plan.explain_chain import chain_lines
from thetastream.plan.lower import Lowered, lifetimes
from thetastream.plan.query import Query
from thetastream.plan.spread import Spread, spread
from thetastream.plan.statistics import Statistics
from thetastream.plan.workload import Inflow, Workload, delay_s, workload
from thetastream.windows import spell

_PROBE = {
    "scan": "n comparisons",
    "sorted": "log n + tuples in the interval",
    "hash": "log n + tuples of the bucket",
    "hash_sorted": "log n + tuples of the bucket in the interval",
    "grid": "sqrt n cells touched at most + tuples in the box",
}


def cost_lines(
    query: Query,
    lowered: Lowered,
    model: Model,
    reason: str,
    order: Order | None,
    partitions: int,
    statistics: Statistics | None,
) -> Iterator[str]:
    """One fact per line; a table of models; the choice."""
    known = statistics or Statistics()
    work = workload(query, lowered, known)
    if isinstance(model, Chain) and model.hands_on:
        yield from chain_lines(model, query, work, known)
        yield _origin(query, statistics, known)
        yield f"choice: {model!r}, {reason}"
        return
    # 1. By formula.
    a, b = query.aliases
    for alias, other, mine in zip(
        (a, b), (b, a), spread(model, is_ranged=work.is_ranged(model)), strict=True
    ):
        yield f"tuple of {alias}: {average(mine.sends)} sends ({_parts(mine, other)})"
    lives = zip(lifetimes(lowered.physical.condition.window), query.counts or (None, None), strict=True)
    for alias, (life, count) in zip(query.aliases, lives, strict=True):
        span = "all tuples so far" if life is None else f"rate({alias}) x ({spell(life)} + watermark delay)"
        yield f"state of {alias}: {span if count is None else f'the last {count:,} tuples'}"
    yield f"probe: {_PROBE[work.index]} per unit and subindex, n tuples stored there"
    # 2. In figures.
    yield _origin(query, statistics, known)
    for flow in work.inflows:
        yield _inflow(flow)
    compared = compare(work, partitions, lambda other: refusal(other, lowered, order is not None) is None)
    yield from _table(work, compared, model, partitions)
    if not work.is_bounded:
        yield "Full history: state grows for as long as the query runs."
    yield f"choice: {model!r}, {reason.removeprefix('chosen: ')}"


def average(n: float) -> str:
    """A number of copies, whole or on average.

    >>> average(2.0), average(1.5)
    ('2', '1.5 on average')
    """
    return f"{round(n)}" if abs(n - round(n)) < 0.005 else f"{n:.3g} on average"


def _parts(mine: Spread, other: str) -> str:
    return f"{average(mine.copies)} stored, {average(mine.probes)} probing {other}"


def _origin(query: Query, statistics: Statistics | None, known: Statistics) -> str:
    late = f"watermark {seconds(delay_s(query, known))} behind"
    if known.origin == "measured":
        return f"statistics: measured; {late}, epochs of {seconds(known.epoch_s)}"
    if statistics is None:
        return f"statistics: assumed; {late}; measure them with th.statistics(query)"
    return f"statistics: assumed, as given; {late}"


def _inflow(flow: Inflow) -> str:
    sizes = f"{flow.stored_bytes:.0f} bytes stored, {flow.sent_bytes:.0f} sent"
    kept = (
        "kept for ever" if flow.span_s is None else f"kept {seconds(flow.span_s)}: {flow.held():,.0f} tuples"
    )
    return f"  {flow.alias}: {flow.rate:,.0f} tuples/s, {sizes}, {kept}"


_HEAD = ("model", "state", "busiest unit", "sends a tuple", "exchange", "comparisons a tuple", "cost")


def _table(work: Workload, compared: list[Estimate], model: Model, partitions: int) -> Iterator[str]:
    """Every model at its cheapest on the session's partitions, and the one that runs, cheapest first."""
    mine = estimate(model, work, partitions)
    if mine not in compared:
        compared = sorted([*compared, mine], key=lambda found: found.cost)
    yield f"models of {units_of(partitions)} units on {partitions} shuffle partitions, * the one that runs:"
    rows = [_HEAD, *(_row(found, work, mine) for found in compared)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEAD))]
    for marked, row in zip([" ", *("*" if found == mine else " " for found in compared)], rows, strict=True):
        yield (
            f"{marked} "
            + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        )


def _row(found: Estimate, work: Workload, mine: Estimate) -> Sequence[str]:
    return (
        repr(found.model),
        _state(found.memory_bytes, found.growth_bytes),
        _state(found.mlv_bytes, found.mlv_growth_bytes),
        ", ".join(f"{n:.3g}" for n in found.sends),
        f"{nbytes(found.sent_bytes_per_s)}/s",
        ", ".join(_compared(n, work) for n in found.comparisons),
        f"{found.cost / mine.cost:.0%}" if mine.cost else "-",
    )


def _compared(n: float, work: Workload) -> str:
    known = work.index == "scan" or work.candidates is not None
    return f"{ceil(n):,}" + ("" if known else " + candidates")


def _state(kept: float, growth: float) -> str:
    if not growth:
        return nbytes(kept)
    return f"{nbytes(kept) + ' ' if kept else ''}+ {nbytes(growth)}/hour"


def nbytes(n: float) -> str:
    """Bytes for people.

    >>> nbytes(512), nbytes(83_200), nbytes(2.5e9)
    ('512 B', '83.2 kB', '2.5 GB')
    """
    for size, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if n >= size:
            return f"{n / size:.3g} {unit}" if n < 1000 * size else f"{n / size:,.0f} {unit}"
    return f"{n:.0f} B"


def seconds(n: float) -> str:
    """A span for people.

    >>> seconds(0.5), seconds(90), seconds(7_200)
    ('0.5 s', '90 s', '2 h')
    """
    return f"{n / 3600:.3g} h" if n >= 3_600 else f"{n:.3g} s"
