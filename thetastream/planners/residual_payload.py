"""Sends columns of a stream that results do not show, if the residual reads them.

Semi and anti joins send no payload of the right stream. If Spark evaluates a part of the condition on
candidate pairs, it needs the columns that this part reads.
"""

from dataclasses import replace

from thetastream.core.sides import Side
from thetastream.errors import raise_problems
from thetastream.frontend.streams import select_fields
from thetastream.plan.lower import Lowered
from thetastream.plan.payload import exchange_payload
from thetastream.plan.query import Query
from thetastream.planners.planned_input import PlannedInput
from thetastream.predicate.names import find_columns
from thetastream.predicate.tokens import parse
from thetastream.spark.carriers import carry


def carry_residual(
    query: Query, lowered: Lowered, inputs: tuple[PlannedInput, PlannedInput]
) -> tuple[Query, Lowered]:
    """Return the query and the plan with the columns of hidden streams that the residual reads."""
    physical, streams, n_carried = lowered.physical, list(query.streams), 0
    if not physical.residual or all(side in query.how.shown for side in Side):
        return query, lowered
    for side in Side:
        stream = streams[side]
        if side not in query.how.shown:
            names: set[str] | None = {carried.field.casefold() for carried in stream.carried}
            for text in physical.residual:
                read = find_columns(parse(text), stream.alias)
                names = None if names is None or read is None else names | read
            schema = select_fields(inputs[side].dataframe().schema, names, stream.is_streaming)
            carried, problems = carry(stream.alias, schema, n_carried)
            raise_problems(problems)
            streams[side] = stream = replace(stream, carried=carried)
        n_carried += len(stream.carried)
    left, right = (stream.carried for stream in streams)
    physical = exchange_payload(physical, (left, right))
    return replace(query, streams=tuple(streams)), replace(lowered, physical=physical)
