"""Explains a join hop by hop, stage by stage: parsed, rewritten, hops, physical, cost."""

from collections.abc import Iterator

from thetastream.core.spans import spell
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.families.hops.cost import MultiwayLoad, explain_multiway_cost
from thetastream.families.hops.graph import LoweredGraph
from thetastream.families.pairs.explain import explain_watermarks
from thetastream.lowering.query import Query
from thetastream.lowering.report import Fact, Section, explain_rewritten, format_index, format_one_line
from thetastream.lowering.statistics import Statistics
from thetastream.runtime.flow import RunContext


def explain_multiway(
    query: Query,
    lowered: LoweredGraph,
    spec: MultiwaySpec,
    load: MultiwayLoad,
    statistics: Statistics,
    run: RunContext,
    why_hops: str = "",
) -> tuple[Section, ...]:
    """Return a section for each stage of the plan. ``why_hops`` says why a ring makes its hops where it
    does."""
    streams = query.streams
    cost = explain_multiway_cost(load, spec.model.n_units, streams, statistics, bool(query.predicates))
    return (
        Section("Parsed", tuple(_explain_parsed(query, spec)), width=6),
        Section("Rewritten", tuple(_explain_rewritten(lowered)), width=8),
        Section("Hops", tuple(_explain_hops(spec)), width=9),
        Section("Physical", tuple(_explain_physical(spec, run, why_hops)), width=9),
        Section("Watermarks", tuple(explain_watermarks(streams, lowered.sides)), width=9),
        Section("Cost", tuple(cost), width=9),
    )


def _explain_parsed(query: Query, spec: MultiwaySpec) -> Iterator[Fact]:
    streams, within_us = query.streams, query.within_us
    for stream in streams:
        time = f", event time {stream.event_time} ({stream.event_time_origin})" if stream.event_time else ""
        yield Fact("stream", f"{stream.alias}: {len(stream.types)} columns{time}")
    for text in query.on:
        yield Fact("on", text)
    for predicate in spec.graph.predicates:
        reads = "; ".join(
            f"{alias}: {', '.join(name for name, _ in columns)}" for _, alias, columns in predicate.columns
        )
        yield Fact("on", f"Python predicate {predicate.name}({reads})")
    if within_us is not None:
        spans = (f"{stream.alias} {spell(us)}" for stream, us in zip(streams, within_us, strict=True))
        yield Fact("within", ", ".join(spans))
    if spec.graph.counts is not None:
        counts = zip(streams, spec.graph.counts, strict=True)
        yield Fact("within", ", ".join(f"the last {n:,} of {stream.alias}" for stream, n in counts))


def _explain_rewritten(lowered: LoweredGraph) -> Iterator[Fact]:
    names = [predicate.name for predicate in lowered.graph.predicates]
    yield from explain_rewritten(lowered.notes, names, lowered.sides)
    for text in lowered.residual:
        yield Fact("behind", format_one_line(text))


def _explain_hops(spec: MultiwaySpec) -> Iterator[Fact]:
    aliases = [side.alias for side in spec.graph.sides]
    for origin, order in enumerate(spec.orders):
        members: tuple[int, ...] = (origin,)
        texts = []
        for target in order:
            plan = spec.find_hop(members, target).plan
            condition = plan.condition
            kinds = [
                *_format_count(len(condition.equalities), "equality", "equalities"),
                *_format_count(len(condition.dimensions) - 1, "comparison", "comparisons"),
                *(predicate.name for predicate in condition.predicates),
            ]
            texts.append(f"{aliases[target]} ({', '.join(kinds) or 'window alone'}; {plan.index.shape.name})")
            members = tuple(sorted((*members, target)))
        yield Fact("", f"{aliases[origin]} -> {' -> '.join(texts)}")
    if spec.refinement is None:
        yield Fact("orders", "stay as they are")
        return
    free = [alias for alias, is_free in zip(aliases, spec.refinement.is_free, strict=True) if is_free]
    yield Fact("orders", f"of {', '.join(free)}: refined as selectivities are measured")
    if fixed := [alias for alias in aliases if alias not in free]:
        yield Fact("orders", f"of {', '.join(fixed)}: set")


def _format_count(n: int, one: str, many: str) -> list[str]:
    return [f"{n} {one if n == 1 else many}"] if n else []


def _explain_physical(spec: MultiwaySpec, run: RunContext, why_hops: str) -> Iterator[Fact]:
    yield Fact("model", spec.model.describe())
    stored_streams = spec.stored[:: spec.model.n_parts]
    for side, stored in zip(spec.graph.sides, stored_streams, strict=True):
        yield Fact("index", f"of stored {side.alias}: {format_index(stored.plan.index)}")
    for side, stored in zip(spec.graph.sides, stored_streams, strict=True):
        bound = "for ever: nothing bounds its partners"
        if spec.graph.counts is not None:
            bound = f"until {stored.lifetime_us:,} newer tuples have come before all that is in flight"
        elif stored.lifetime_us is not None:
            bound = f"until the watermark is {spell(stored.lifetime_us)} past what is in flight"
        yield Fact("state", f"of {side.alias}: kept {bound}")
    copies = "a copy of every tuple to each"
    if spec.model.chooses_receivers:
        copies = "a tuple to those that store it"
        copies += " and those that its first hop reads" if spec.has_messages else ""
    yield Fact("exchange", f"one an epoch; {spec.model.n_units} nodes, {copies}")
    if run.shed is not None:
        yield Fact("shed", run.shed.describe())
    if why_hops:
        pace = "one an epoch" if spec.has_messages else "all in one epoch"
        yield Fact("hops", pace, why_hops)
    if spec.has_messages:
        late = f"a result comes up to {spec.n_streams - 2} epochs after its last tuple"
        yield Fact("mailbox", f"{run.mailbox}; {late}")
        yield Fact("partial", f"results go to {spec.model.travel.value}")
    else:
        yield Fact("mailbox", "none; a result leaves in the epoch of its last tuple")
