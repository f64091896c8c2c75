"""Explains a plan for two streams stage by stage: parsed, rewritten, shaped, physical, cost."""

from collections.abc import Iterator, Sequence

from thetastream.core.condition import TIME, Bound, Condition, Dimension, SideSpec
from thetastream.core.shed import Shed
from thetastream.core.sides import Side
from thetastream.core.windows import spell
from thetastream.engine.order import Order
from thetastream.engine.two_stream.content_routing import ByRange, choose_placing
from thetastream.index.base import IndexSpec
from thetastream.models.base import Model
from thetastream.plan.explain_cost import explain_cost, format_average
from thetastream.plan.lower import Lowered
from thetastream.plan.physical import SidePlan, compute_lifetimes
from thetastream.plan.query import RESULT_TIME, Query, Stream
from thetastream.plan.rewritten_condition import Note
from thetastream.plan.routing_shares import compute_shares
from thetastream.plan.statistics import Statistics
from thetastream.predicate import tokenize
from thetastream.predicate.names import find_columns


def explain(
    query: Query,
    lowered: Lowered,
    model: Model,
    model_reason: str,
    order: Order | None = None,
    partitions: int = 2,
    statistics: Statistics | None = None,
    shed: Shed | None = None,
    max_units: int | None = None,
) -> str:
    """Return the stages of the plan as text, with one fact per line."""
    names = [predicate.name for predicate in query.predicates]
    stages = (
        ("Parsed", _explain_parsed(query)),
        ("Rewritten", explain_rewritten(lowered.notes, names, lowered.physical.sides)),
        ("Shaped", _explain_shaped(lowered)),
        ("Physical", _explain_physical(query, lowered, model, model_reason, order, shed, max_units)),
        ("Cost", explain_cost(query, lowered, model, model_reason, order, partitions, statistics, shed)),
    )
    return "\n".join(line for title, lines in stages for line in (f"== {title} ==", *lines, ""))


def _explain_parsed(query: Query) -> Iterator[str]:
    for side, stream in zip(Side, query.streams, strict=True):
        kind = "stream" if stream.is_streaming else "batch"
        time = f", event time {stream.event_time} ({stream.event_time_origin})" if stream.event_time else ""
        yield f"{side.name.lower():5} {stream.alias}: {kind} of {len(stream.types)} columns{time}"
    for text in query.on:
        yield f"on    {text}"
    if not query.how.is_inner:
        yield f"how   {query.how.name}"
    for predicate in query.predicates:
        reads = "; ".join(f"{alias}: {', '.join(names)}" for alias, names in predicate.columns)
        yield f"on    Python predicate {predicate.name}({reads})"
    if query.within_us is not None:
        windows = ", ".join(
            f"{alias} {spell(us)}" for alias, us in zip(query.aliases, query.within_us, strict=True)
        )
        yield f"within {windows}"
    if query.counts is not None:
        windows = ", ".join(
            f"{alias} {n} tuples" for alias, n in zip(query.aliases, query.counts, strict=True)
        )
        yield f"within {windows}"


def explain_rewritten(
    notes: Sequence[Note], predicates: Sequence[str], sides: Sequence[SidePlan]
) -> Iterator[str]:
    """Yield what each conjunct becomes and what the streams compute before the join."""
    for note in notes:
        yield f"{note.became:8} {format_one_line(note.text)}   ({note.why})"
    for name in predicates:
        yield f"python   {name}   (called on columns of candidates)"
    for side in sides:
        for text in side.filters:
            yield f"before   {side.alias}: {format_one_line(text)}"
        for column, text in side.computed:
            yield f"before   {side.alias}: {column} = {format_one_line(text)}"


def _explain_shaped(lowered: Lowered) -> Iterator[str]:
    condition = lowered.physical.condition
    for number, equality in enumerate(condition.equalities):
        left, right = (
            _format_key(spec, key)
            for spec, key in zip(condition.sides, (equality.left, equality.right), strict=True)
        )
        yield f"equality {number}:  {left} = {right}"
    for number, dimension in enumerate(condition.dimensions):
        yield f"dimension {number}: {_format_interval(condition, dimension)}"
    if condition.window is not None:
        yield f"window:      {_format_interval(condition, condition.window)}   ({condition.window.text})"
    for left, right in condition.same:
        yield f"same bytes:  {condition.sides[0].alias}.{left} = {condition.sides[1].alias}.{right}"
    for text in lowered.physical.residual:
        yield f"residual:    {format_one_line(text)}"
    if not (condition.equalities or condition.dimensions or condition.window):
        yield "nothing the index can use"


def explain_watermarks(streams: Sequence[Stream], sides: Sequence[SidePlan]) -> Iterator[str]:
    """Yield which rows of each stream move its watermark. The result of another join moves none."""
    for stream, side in zip(streams, sides, strict=True):
        if stream.is_streaming and stream.event_time not in (None, RESULT_TIME):
            yield f"watermark of {stream.alias}: {_describe_movers(stream, side)}"


def _describe_movers(stream: Stream, side: SidePlan) -> str:
    """Describe which rows of a stream move its watermark."""
    time = str(stream.event_time)
    if stream.idle_mark is not None:
        return f"all rows of the stream move it by {time}, because no filter runs before th.with_watermark"
    filters = () if side.moves_watermark else side.filters
    early = [text for text in filters if not _reads(text, stream.alias, time)]
    what = " and ".join([f"filters of yours that do not read {time}", *map(format_one_line, early)])
    return f"rows move it by {time} if they pass what Spark runs before withWatermark: {what}"


def _reads(text: str, alias: str, column: str) -> bool:
    """Whether a filter reads a column of its stream."""
    found = find_columns(tokenize(text), alias)
    return found is None or column.casefold() in found


def _explain_physical(
    query: Query,
    lowered: Lowered,
    model: Model,
    model_reason: str,
    order: Order | None,
    shed: Shed | None,
    max_units: int | None,
) -> Iterator[str]:
    physical = lowered.physical
    yield f"model     {model.describe()}   ({model_reason})"
    found = choose_placing(model, physical.condition)
    if found is not None:
        yield f"routing   by {found}"
    for spec, index in zip(physical.condition.sides, physical.indexes, strict=True):
        yield f"index     of stored {spec.alias}: {format_index(index)}   ({lowered.shape_reason})"
    lives = zip(compute_lifetimes(physical.condition.window), physical.counts or (None, None), strict=True)
    for spec, (life, count) in zip(physical.condition.sides, lives, strict=True):
        bound = "for ever: nothing bounds its partners"
        if life is not None:
            bound = f"until the watermark is {spell(life)} past"
        if count is not None:
            bound = f"until {count} later ones have arrived"
        yield f"state     of {spec.alias}: kept {bound}"
    yield from explain_watermarks(query.streams, physical.sides)
    for side in physical.how.preserved:
        alias, life = physical.sides[side].alias, physical.lifetimes_us[side]
        when = (
            "is never decided" if life is None else f"is decided when the watermark is {spell(life)} past it"
        )
        yield f"answers   a tuple of {alias} meets its partners at one unit; it {when}"
    if physical.how.preserved and physical.residual:
        yield (
            "decides   second units, behind the residual; a second exchange sends them each pair that passes "
            "it and each tuple"
        )
    if physical.how.preserved and max_units is not None:
        copied = " and ".join(
            f"tuples of {physical.sides[side].alias} for {spell(life)}"
            for side in physical.how.partners
            if (life := physical.lifetimes_us[side]) is not None
        )
        yield f"scaling   up to {max_units} units; new ones store copies of {copied}, and then take over"
    if physical.archive_period_us is not None:
        yield f"archive   a subindex spans {spell(physical.archive_period_us)}"
    copies = ", ".join(
        format_average(stream.sends) for stream in compute_shares(model, is_ranged=isinstance(found, ByRange))
    )
    yield f"exchange  one, Arrow blocks by unit; {model.n_units} units; sends a tuple: {copies}"
    if shed is not None:
        yield f"shed      {shed.describe()}"
    if order is not None:
        yield f"order     {order}; one task gathers the results of an epoch"


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


def format_index(index: IndexSpec) -> str:
    """Return the shape of an index and the parts of the condition that it answers."""
    parts = [f"equality {n}" for n in index.equalities]
    parts += ["window" if n == TIME else f"dimension {n}" for n in index.dimensions]
    return f"{index.shape.name} on {', '.join(parts)}" if parts else index.shape.name


def format_one_line(text: str) -> str:
    """Return the text on one line, with single blanks."""
    return " ".join(text.split())
