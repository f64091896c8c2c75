"""Explains a join of two streams, stage by stage: parsed, rewritten, shaped, physical, cost."""

from collections.abc import Iterator, Sequence
from math import ceil

from thetastream.conditions import tokenize
from thetastream.conditions.names import find_columns
from thetastream.core.condition import TIME, Bound, Condition, Dimension, SideSpec
from thetastream.core.shed import STATE, Shed
from thetastream.core.sides import Side
from thetastream.core.spans import spell
from thetastream.engine.order import Order
from thetastream.engine.two_stream.content_routing import ByRange, choose_placing
from thetastream.families.pairs.choose import ChosenModel, compare, find_refusal
from thetastream.families.pairs.cost import Estimate, StreamShares, compute_shares, estimate
from thetastream.families.pairs.workload import (
    Inflow,
    SecondExchange,
    Workload,
    build_workload,
    estimate_delay_s,
)
from thetastream.families.request import JoinRequest
from thetastream.lowering.lower import Lowered
from thetastream.lowering.physical import PhysicalPlan, SidePlan, compute_lifetimes
from thetastream.lowering.query import RESULT_TIME, Query, Stream
from thetastream.lowering.report import (
    Fact,
    Section,
    explain_rewritten,
    format_average,
    format_index,
    format_one_line,
)
from thetastream.lowering.statistics import Statistics, choose_n_units
from thetastream.models.base import Model


def explain(
    request: JoinRequest, query: Query, lowered: Lowered, chosen: ChosenModel, order: Order | None
) -> tuple[Section, ...]:
    """Return a section for each stage of the plan before its cost."""
    names = [predicate.name for predicate in query.predicates]
    rewritten = explain_rewritten(lowered.notes, names, lowered.physical.sides)
    return (
        Section("Parsed", tuple(_explain_parsed(query)), width=5),
        Section("Rewritten", tuple(rewritten), width=8),
        Section("Shaped", tuple(_explain_shaped(lowered)), width=12),
        Section("Physical", tuple(_explain_physical(request, query, lowered, chosen, order)), width=9),
    )


def _explain_parsed(query: Query) -> Iterator[Fact]:
    for side, stream in zip(Side, query.streams, strict=True):
        kind = "stream" if stream.is_streaming else "batch"
        if stream.change_type is not None and not stream.inserts_only:
            kind = f"{kind} with deletes,"
        if stream.versions is not None:
            kind = f"{kind} of versions by {', '.join(stream.versions.key)},"
        time = f", event time {stream.event_time} ({stream.event_time_origin})" if stream.event_time else ""
        yield Fact(side.name.lower(), f"{stream.alias}: {kind} of {len(stream.types)} columns{time}")
    for text in query.on:
        yield Fact("on", text)
    if not query.how.is_inner:
        yield Fact("how", f"{query.how.name}, early" if query.how.is_early else query.how.name)
    for predicate in query.predicates:
        reads = "; ".join(f"{alias}: {', '.join(names)}" for alias, names in predicate.columns)
        yield Fact("on", f"Python predicate {predicate.name}({reads})")
    if query.within_us is not None:
        windows = ", ".join(
            f"{alias} {spell(us)}" for alias, us in zip(query.aliases, query.within_us, strict=True)
        )
        yield Fact("within", windows)
    if query.counts is not None:
        windows = ", ".join(
            f"{alias} {n} tuples" for alias, n in zip(query.aliases, query.counts, strict=True)
        )
        yield Fact("within", windows)


def _explain_shaped(lowered: Lowered) -> Iterator[Fact]:
    condition = lowered.physical.condition
    for number, equality in enumerate(condition.equalities):
        left, right = (
            _format_key(spec, key)
            for spec, key in zip(condition.sides, (equality.left, equality.right), strict=True)
        )
        yield Fact(f"equality {number}:", f"{left} = {right}")
    for number, dimension in enumerate(condition.dimensions):
        yield Fact(f"dimension {number}:", _format_interval(condition, dimension))
    if condition.window is not None:
        yield Fact("window:", _format_interval(condition, condition.window), condition.window.text)
    for left, right in condition.same:
        yield Fact("same bytes:", f"{condition.sides[0].alias}.{left} = {condition.sides[1].alias}.{right}")
    for text in lowered.physical.residual:
        yield Fact("residual:", format_one_line(text))
    if not (condition.equalities or condition.dimensions or condition.window):
        yield Fact("", "nothing the index can use")


def explain_watermarks(streams: Sequence[Stream], sides: Sequence[SidePlan]) -> Iterator[Fact]:
    """Yield which rows of each stream move its watermark. The result of another join moves none."""
    for stream, side in zip(streams, sides, strict=True):
        if stream.is_streaming and stream.event_time not in (None, RESULT_TIME):
            yield Fact("watermark", f"of {stream.alias}: {_describe_movers(stream, side)}")


def _describe_movers(stream: Stream, side: SidePlan) -> str:
    """Describe which rows of a stream move its watermark."""
    time = str(stream.event_time)
    if stream.idle_mark is not None:
        return f"all rows of the stream move it by {time}, because no filter runs before th.with_watermark"
    filters = () if side.moves_watermark else side.filters
    early = [one.text for one in filters if not _reads(one.text, stream.alias, time)]
    what = " and ".join([f"filters of yours that do not read {time}", *map(format_one_line, early)])
    return f"rows move it by {time} if they pass what Spark runs before withWatermark: {what}"


def _describe_replacement(physical: PhysicalPlan, life: int | None) -> str:
    """Describe how long a right tuple is kept that later ones with its keys replace."""
    k = 1 if physical.ranking is None else physical.ranking.k
    later = "a later one" if k == 1 else f"{k} later ones"
    bound = f"until the watermark has passed {later} with its keys"
    if life is not None:
        bound += f", or is {spell(life)} past"
    return f"{bound}; replaced ones leave the state"


def _reads(text: str, alias: str, column: str) -> bool:
    """Whether a filter reads a column of its stream."""
    found = find_columns(tokenize(text), alias)
    return found is None or column.casefold() in found


def _explain_physical(
    request: JoinRequest, query: Query, lowered: Lowered, chosen: ChosenModel, order: Order | None
) -> Iterator[Fact]:
    physical, model, run = lowered.physical, chosen.model, request.run
    reason = f"chosen: {chosen.reason}" if request.model is None else chosen.reason
    yield Fact("model", model.describe(), reason)
    found = choose_placing(model, physical.condition)
    if found is not None:
        yield Fact("routing", f"by {found}")
    for spec, index in zip(physical.condition.sides, physical.indexes, strict=True):
        yield Fact("index", f"of stored {spec.alias}: {format_index(index)}", lowered.shape_reason)
    lives = zip(compute_lifetimes(physical.condition.window), physical.counts or (None, None), strict=True)
    for spec, (life, count) in zip(physical.condition.sides, lives, strict=True):
        bound = "for ever: nothing bounds its partners"
        if life is not None:
            bound = f"until the watermark is {spell(life)} past"
        if count is not None:
            bound = f"until {count} later ones have arrived"
        if physical.drops_replaced and spec is physical.condition.sides[Side.RIGHT]:
            bound = _describe_replacement(physical, life)
        yield Fact("state", f"of {spec.alias}: kept {bound}")
    yield from explain_watermarks(query.streams, physical.sides)
    for side in physical.how.preserved:
        alias, life = physical.sides[side].alias, physical.lifetimes_us[side]
        when = (
            "is never decided" if life is None else f"is decided when the watermark is {spell(life)} past it"
        )
        if physical.how.is_early:
            when = "is an answer as long as it has none"
        yield Fact("answers", f"a tuple of {alias} meets its partners at one unit; it {when}")
    if physical.ranking_rule is not None:
        yield Fact("nearest", physical.ranking_rule)
    if physical.how.preserved and physical.residual:
        yield Fact(
            "decides",
            "second units, behind the residual; a second exchange sends them each pair that passes it "
            "and each tuple",
        )
    if physical.how.preserved and run.max_units is not None:
        copied = " and ".join(
            f"tuples of {physical.sides[side].alias} for {spell(life)}"
            for side in physical.how.partners
            if (life := physical.lifetimes_us[side]) is not None
        )
        yield Fact(
            "scaling", f"up to {run.max_units} units; new ones store copies of {copied}, and then take over"
        )
    if physical.archive_period_us is not None:
        yield Fact("archive", f"a subindex spans {spell(physical.archive_period_us)}")
    copies = ", ".join(
        format_average(stream.sends) for stream in compute_shares(model, is_ranged=isinstance(found, ByRange))
    )
    yield Fact("exchange", f"one, Arrow blocks by unit; {model.n_units} units; sends a tuple: {copies}")
    if run.shed is not None:
        yield Fact("shed", run.shed.describe())
    if order is not None:
        yield Fact("order", f"{order}; one task gathers the results of an epoch")


def _format_interval(condition: Condition, dimension: Dimension) -> str:
    mine, theirs = condition.sides[dimension.point], condition.sides[dimension.point.other]
    point = _format_key(mine, dimension.key)
    low = (
        ""
        if dimension.low is None
        else f"{_format_bound(theirs, dimension.low)} {_format_sign(dimension.low)} "
    )
    high = (
        ""
        if dimension.high is None
        else f" {_format_sign(dimension.high)} {_format_bound(theirs, dimension.high)}"
    )
    return f"{low}{point}{high}"


def _format_sign(bound: Bound) -> str:
    return "<" if bound.is_strict else "<="


def _format_bound(spec: SideSpec, bound: Bound) -> str:
    sign = "+" if bound.delta >= 0 else "-"
    return _format_key(spec, bound.key) + (f" {sign} {abs(bound.delta)}" if bound.delta else "")


def _format_key(spec: SideSpec, position: int) -> str:
    if position == TIME:
        return f"{spec.alias}.time"
    key = spec.key(position)
    offset = f" {'-' if key.offset < 0 else '+'} {abs(key.offset)}" if key.offset else ""
    return f"{spec.alias}.{key.column}:{key.domain.value}{offset}"


def explain_cost(
    request: JoinRequest, query: Query, lowered: Lowered, chosen: ChosenModel, is_ordered: bool
) -> Iterator[Fact]:
    """Yield the cost, then a table of models, one fact per row, and the choice."""
    model, shed, partitions = chosen.model, request.run.shed, request.partitions
    work = build_workload(query, lowered, request.statistics or Statistics())
    # 1. Show the formulas.
    a, b = query.aliases
    for alias, other, mine in zip(
        (a, b), (b, a), compute_shares(model, is_ranged=work.is_ranged(model)), strict=True
    ):
        yield Fact(f"tuple of {alias}:", f"{format_average(mine.sends)} sends ({_format_parts(mine, other)})")
    lives = zip(
        compute_lifetimes(lowered.physical.condition.window), query.counts or (None, None), strict=True
    )
    for alias, (life, count) in zip(query.aliases, lives, strict=True):
        span = "all tuples so far" if life is None else f"rate({alias}) x ({spell(life)} + watermark delay)"
        yield Fact(f"state of {alias}:", span if count is None else f"the last {count:,} tuples")
    yield Fact("probe:", f"{work.index.cost.formula} per unit and subindex, n tuples stored there")
    # 2. Show the figures.
    yield explain_statistics(query, request.statistics)
    for flow in work.inflows:
        yield _explain_inflow(flow)
    if work.second is not None:
        yield _explain_second_exchange(work.second, work)
    compared = compare(work, partitions, lambda other: find_refusal(other, lowered, is_ordered) is None)
    yield from _build_table(work, compared, model, partitions)
    if shed is not None and shed.load == STATE and work.is_bounded:
        yield _explain_shedding(shed, estimate(model, work, partitions).mlv_bytes)
    if not work.is_bounded:
        yield Fact("", "Full history: state grows for as long as the query runs.")
    yield Fact("choice:", f"{model!r}, {chosen.reason}")


def _format_parts(mine: StreamShares, other: str) -> str:
    return f"{format_average(mine.copies)} stored, {format_average(mine.probes)} probing {other}"


def explain_statistics(query: Query, statistics: Statistics | None) -> Fact:
    """Say whether statistics are measured or assumed."""
    known = statistics or Statistics()
    late = f"watermark {format_seconds(estimate_delay_s(query, known))} behind"
    if known.origin == "measured":
        value = f"measured; {late}, epochs of {format_seconds(known.epoch_s)}"
    elif statistics is None:
        value = (
            f"assumed; {late}; measure them with th.statistics(query), or with thetastream run --statistics"
        )
    else:
        value = f"assumed, as given; {late}"
    return Fact("statistics:", value)


def _explain_inflow(flow: Inflow) -> Fact:
    sizes = f"{flow.stored_bytes:.0f} bytes stored, {flow.sent_bytes:.0f} sent"
    kept = (
        "kept for ever"
        if flow.span_s is None
        else f"kept {format_seconds(flow.span_s)}: {flow.estimate_held():,.0f} tuples"
    )
    return Fact(f"  {flow.alias}:", f"{flow.rate:,.0f} tuples/s, {sizes}, {kept}")


def _explain_second_exchange(second: SecondExchange, work: Workload) -> Fact:
    tuples = " and ".join(f"each tuple of {work.inflows[side].alias}" for side in second.preserved)
    known = "" if _knows_comparisons(work) else ", whose number is not known and is left out of the costs"
    value = f"{second.row_bytes:.0f} bytes for {tuples}, and for each candidate pair{known}"
    return Fact("  second exchange:", value)


def _explain_shedding(shed: Shed, mlv_bytes: float) -> Fact:
    kept = shed.find_steady_share(mlv_bytes)
    return Fact(
        "shedding:",
        f"the fullest unit would hold {format_nbytes(mlv_bytes)}; about {kept:.0%} of the tuples "
        f"and {shed.estimate_kept(1 - kept):.0%} of the pairs are kept",
    )


_HEAD = ("model", "state", "busiest unit", "sends a tuple", "exchange", "comparisons a tuple", "cost")


def _build_table(work: Workload, compared: list[Estimate], model: Model, partitions: int) -> Iterator[Fact]:
    """Yield a table of the cheapest variant of every model and of the model that runs, sorted by cost."""
    mine = estimate(model, work, partitions)
    if mine not in compared:
        compared = sorted([*compared, mine], key=lambda found: found.cost)
    n_units = choose_n_units(partitions)
    yield Fact("", f"models of {n_units} units on {partitions} shuffle partitions, * the one that runs:")
    rows = [_HEAD, *(_build_row(found, work, mine) for found in compared)]
    widths = [max(len(row[n]) for row in rows) for n in range(len(_HEAD))]
    for marked, row in zip([" ", *("*" if found == mine else " " for found in compared)], rows, strict=True):
        cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield Fact("", f"{marked} {cells.rstrip()}")


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
    return work.index.cost.looks_at_all or work.candidates is not None


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
