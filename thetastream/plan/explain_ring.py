"""explain() of a join hop by hop: parsed, rewritten, hops, physical."""

from collections.abc import Iterator, Sequence

from thetastream.joiner.ring import RingSpec
from thetastream.plan.cost_ring import RingLoad, cost_lines
from thetastream.plan.explain import index_text, one_line, rewritten_lines
from thetastream.plan.graph import LoweredGraph
from thetastream.plan.query import Stream
from thetastream.windows import spell


def explain_ring(
    streams: Sequence[Stream],
    on: Sequence[str],
    within_us: Sequence[int] | None,
    lowered: LoweredGraph,
    ring: RingSpec,
    mailbox: str,
    load: RingLoad,
) -> str:
    """The plan, stage by stage, one fact per line."""
    stages = (
        ("Parsed", _parsed(streams, on, within_us, ring)),
        ("Rewritten", _rewritten(lowered)),
        ("Hops", _hops(ring)),
        ("Physical", _physical(ring, mailbox)),
        ("Cost", cost_lines(load, ring.model.n_units, streams)),
    )
    return "\n".join(line for title, lines in stages for line in (f"== {title} ==", *lines, ""))


def _parsed(
    streams: Sequence[Stream], on: Sequence[str], within_us: Sequence[int] | None, ring: RingSpec
) -> Iterator[str]:
    for stream in streams:
        time = f", event time {stream.event_time} ({stream.event_time_origin})" if stream.event_time else ""
        yield f"stream {stream.alias}: {len(stream.types)} columns{time}"
    for text in on:
        yield f"on     {text}"
    for predicate in ring.graph.predicates:
        reads = "; ".join(
            f"{alias}: {', '.join(name for name, _ in columns)}" for _, alias, columns in predicate.columns
        )
        yield f"on     Python predicate {predicate.name}({reads})"
    if within_us is not None:
        yield "within " + ", ".join(
            f"{stream.alias} {spell(us)}" for stream, us in zip(streams, within_us, strict=True)
        )


def _rewritten(lowered: LoweredGraph) -> Iterator[str]:
    names = [predicate.name for predicate in lowered.graph.predicates]
    yield from rewritten_lines(lowered.notes, names, lowered.sides)
    for text in lowered.residual:
        yield f"behind   {one_line(text)}"


def _hops(ring: RingSpec) -> Iterator[str]:
    aliases = [side.alias for side in ring.graph.sides]
    for origin, order in enumerate(ring.orders):
        members: tuple[int, ...] = (origin,)
        texts = []
        for target in order:
            plan = ring.hop(members, target).plan
            condition = plan.condition
            kinds = [
                *_counted(len(condition.equalities), "equality", "equalities"),
                *_counted(len(condition.dimensions) - 1, "comparison", "comparisons"),
                *(predicate.name for predicate in condition.predicates),
            ]
            texts.append(f"{aliases[target]} ({', '.join(kinds) or 'window alone'}; {plan.index.kind})")
            members = tuple(sorted((*members, target)))
        yield f"{aliases[origin]} -> {' -> '.join(texts)}"
    if ring.refinement is None:
        yield "orders    stay as they are"
        return
    free = [alias for alias, is_free in zip(aliases, ring.refinement.is_free, strict=True) if is_free]
    yield f"orders    of {', '.join(free)}: refined as selectivities are measured"
    if fixed := [alias for alias in aliases if alias not in free]:
        yield f"orders    of {', '.join(fixed)}: set"


def _counted(n: int, one: str, many: str) -> list[str]:
    return [f"{n} {one if n == 1 else many}"] if n else []


def _physical(ring: RingSpec, mailbox: str) -> Iterator[str]:
    yield f"model     {ring.model.describe()}"
    chains = ring.chains[:: ring.model.n_parts]
    for side, chain in zip(ring.graph.sides, chains, strict=True):
        yield f"index     of stored {side.alias}: {index_text(chain.plan.index)}"
    for side, chain in zip(ring.graph.sides, chains, strict=True):
        bound = "for ever: nothing bounds its partners"
        if chain.lifetime_us is not None:
            bound = f"until the watermark is {spell(chain.lifetime_us)} past what is in flight"
        yield f"state     of {side.alias}: kept {bound}"
    yield f"exchange  one an epoch; {ring.model.n_units} nodes, a copy of every tuple to each"
    if ring.has_mailbox:
        yield f"mailbox   {mailbox}; a result comes up to {ring.n_streams - 2} epochs after its last tuple"
        yield f"partial   results go to {ring.model.travel.value}"
    else:
        yield "mailbox   none; a result leaves in the epoch of its last tuple"
