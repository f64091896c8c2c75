"""Explains a join hop by hop, stage by stage: parsed, rewritten, hops, physical, cost."""

from collections.abc import Iterator, Sequence

from thetastream.core.shed import Shed
from thetastream.core.spans import spell
from thetastream.engine.multiway.spec import MultiwaySpec
from thetastream.families.hops.cost import MultiwayLoad, explain_multiway_cost
from thetastream.families.hops.graph import LoweredGraph
from thetastream.families.pairs.explain import explain_watermarks
from thetastream.lowering.query import Stream
from thetastream.lowering.report import explain_rewritten, format_index, format_one_line


def explain_multiway(
    streams: Sequence[Stream],
    on: Sequence[str],
    within_us: Sequence[int] | None,
    lowered: LoweredGraph,
    spec: MultiwaySpec,
    mailbox: str,
    load: MultiwayLoad,
    shed: Shed | None = None,
) -> str:
    """Return the stages of the plan as text, with one fact per line."""
    stages = (
        ("Parsed", _explain_parsed(streams, on, within_us, spec)),
        ("Rewritten", _explain_rewritten(lowered)),
        ("Hops", _explain_hops(spec)),
        ("Physical", _explain_physical(spec, mailbox, shed)),
        ("Watermarks", explain_watermarks(streams, lowered.sides)),
        ("Cost", explain_multiway_cost(load, spec.model.n_units, streams)),
    )
    return "\n".join(line for title, lines in stages for line in (f"== {title} ==", *lines, ""))


def _explain_parsed(
    streams: Sequence[Stream], on: Sequence[str], within_us: Sequence[int] | None, spec: MultiwaySpec
) -> Iterator[str]:
    for stream in streams:
        time = f", event time {stream.event_time} ({stream.event_time_origin})" if stream.event_time else ""
        yield f"stream {stream.alias}: {len(stream.types)} columns{time}"
    for text in on:
        yield f"on     {text}"
    for predicate in spec.graph.predicates:
        reads = "; ".join(
            f"{alias}: {', '.join(name for name, _ in columns)}" for _, alias, columns in predicate.columns
        )
        yield f"on     Python predicate {predicate.name}({reads})"
    if within_us is not None:
        yield "within " + ", ".join(
            f"{stream.alias} {spell(us)}" for stream, us in zip(streams, within_us, strict=True)
        )
    if spec.graph.counts is not None:
        counts = zip(streams, spec.graph.counts, strict=True)
        yield "within " + ", ".join(f"the last {n:,} of {stream.alias}" for stream, n in counts)


def _explain_rewritten(lowered: LoweredGraph) -> Iterator[str]:
    names = [predicate.name for predicate in lowered.graph.predicates]
    yield from explain_rewritten(lowered.notes, names, lowered.sides)
    for text in lowered.residual:
        yield f"behind   {format_one_line(text)}"


def _explain_hops(spec: MultiwaySpec) -> Iterator[str]:
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
        yield f"{aliases[origin]} -> {' -> '.join(texts)}"
    if spec.refinement is None:
        yield "orders    stay as they are"
        return
    free = [alias for alias, is_free in zip(aliases, spec.refinement.is_free, strict=True) if is_free]
    yield f"orders    of {', '.join(free)}: refined as selectivities are measured"
    if fixed := [alias for alias in aliases if alias not in free]:
        yield f"orders    of {', '.join(fixed)}: set"


def _format_count(n: int, one: str, many: str) -> list[str]:
    return [f"{n} {one if n == 1 else many}"] if n else []


def _explain_physical(spec: MultiwaySpec, mailbox: str, shed: Shed | None) -> Iterator[str]:
    yield f"model     {spec.model.describe()}"
    stored_streams = spec.stored[:: spec.model.n_parts]
    for side, stored in zip(spec.graph.sides, stored_streams, strict=True):
        yield f"index     of stored {side.alias}: {format_index(stored.plan.index)}"
    for side, stored in zip(spec.graph.sides, stored_streams, strict=True):
        bound = "for ever: nothing bounds its partners"
        if spec.graph.counts is not None:
            bound = f"until {stored.lifetime_us:,} newer tuples have come before all that is in flight"
        elif stored.lifetime_us is not None:
            bound = f"until the watermark is {spell(stored.lifetime_us)} past what is in flight"
        yield f"state     of {side.alias}: kept {bound}"
    yield f"exchange  one an epoch; {spec.model.n_units} nodes, a copy of every tuple to each"
    if shed is not None:
        yield f"shed      {shed.describe()}"
    if spec.has_messages:
        yield f"mailbox   {mailbox}; a result comes up to {spec.n_streams - 2} epochs after its last tuple"
        yield f"partial   results go to {spec.model.travel.value}"
    else:
        yield "mailbox   none; a result leaves in the epoch of its last tuple"
