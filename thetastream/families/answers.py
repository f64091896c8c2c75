"""Finds the reasons why a join cannot answer each tuple of its preserved streams.

Sends columns of a stream that results do not show, if the residual reads them.

Semi and anti joins send no payload of the right stream. If Spark evaluates a part of the condition on
candidate pairs, it needs the columns that this part reads.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from thetastream.conditions.names import find_columns
from thetastream.conditions.tokens import parse
from thetastream.core.columns import DECIDED, PRESENT
from thetastream.core.errors import QueryError, raise_problems
from thetastream.core.how import How, Ranking
from thetastream.core.sides import Side
from thetastream.engine.answers.candidates import CandidateColumns
from thetastream.engine.answers.spec import AnswersSpec, CandidatesSpec, DecidingSpec, NearestSpec
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.families.asked import PlannedInput
from thetastream.families.pairs.flow import Choose, _open_choice
from thetastream.families.pairs.identity import identify_two_streams
from thetastream.families.payload import select_fields
from thetastream.families.windows import find_window_problems
from thetastream.joins.ask.carriers import carry
from thetastream.lowering.domains import quote
from thetastream.lowering.identity import Reading
from thetastream.lowering.lower import Lowered
from thetastream.lowering.payload import exchange_payload
from thetastream.lowering.physical import PhysicalPlan, SidePlan
from thetastream.lowering.query import Query
from thetastream.models.base import Model
from thetastream.runtime.flow import CANDIDATE, Flow, Output, UnitStage, list_block_columns, restore_struct


def find_decision_problems(query: Query, lowered: Lowered) -> list[QueryError]:
    """Return errors if tuples of a preserved stream would never be decided."""
    physical, how = lowered.physical, query.how
    if how.is_inner or not how.waits:
        return []
    problems = []
    for side in how.preserved:
        alias = query.aliases[side]
        if physical.lifetimes_us[side] is None and query.streams[side].is_streaming:
            # Bounds that the condition may have are not read without the event times of both streams.
            unread = find_window_problems(
                query.streams, f"how={how.name!r}, to know when a tuple is decided,"
            )
            if unread:
                return unread
            problems.append(
                QueryError(
                    "UNDECIDED",
                    f"how={how.name!r} must know when a tuple of {alias!r} can find no more partners, but "
                    f'nothing bounds how long it waits; set within="...", or bound the event times in the '
                    "condition",
                )
            )
    return problems


def find_partners_problem(model: Model, lowered: Lowered) -> QueryError | None:
    """Return an error if a model does not show a preserved tuple all its partners at one unit, else None."""
    how = lowered.physical.how
    if all(map(model.sees_partners, how.preserved)):
        return None
    both = "th.Matrix(1, 1)"
    if lowered.physical.condition.equalities:
        both = 'th.Matrix(n, 1, subgroups=n, routing="hash")'
    fits = {"left": "th.Matrix(n, 1)", "right": "th.Matrix(1, n)", "full": both}
    return QueryError(
        "PARTNERS_APART",
        f"how={how.name!r} needs all partners of a tuple at one unit, and {model!r} finds them at several; "
        f"use {fits.get(how.name, fits['left'])}, or leave model out",
    )


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


def _build_answers(
    plan: PhysicalPlan,
    unit: UnitSpec,
    model: Model,
    reading: Reading,
    choose: Choose | None,
) -> Flow:
    """Join two streams and answer each tuple. If there is a residual, second units decide behind it."""
    how, ranking = plan.how, plan.ranking
    identity = identify_two_streams(plan, model, reading)
    answers = describe_answers(plan.sides, how)
    columns = [side.time.column for side in plan.condition.sides if side.time is not None]
    times = tuple(columns) if how.waits and len(columns) == len(plan.sides) else None
    if not plan.residual:
        make = partial(_build_answers_spec, unit, how, ranking)
        stages = (UnitStage(make(model), answers, _open_choice(reading, choose, make)),)
        return Flow(plan.sides, plan.condition.sides, stages, identity, waits_by=times)
    first = partial(_build_candidates_spec, unit, how, ranking)
    second = partial(_build_deciding_spec, first)
    candidates = describe_candidates(plan, first(model).columns)
    both = (
        UnitStage(first(model), candidates, _open_choice(reading, choose, first)),
        UnitStage(second(model), answers, _open_choice(reading, choose, second)),
    )
    return Flow(plan.sides, plan.condition.sides, both, identity, waits_by=times)


def _build_answers_spec(unit: UnitSpec, how: How, ranking: Ranking | None, model: Model) -> EngineSpec:
    join = TwoStreamSpec(unit, model)
    return AnswersSpec(join, how) if ranking is None else NearestSpec(join, how, ranking)


def _build_candidates_spec(unit: UnitSpec, how: How, ranking: Ranking | None, model: Model) -> CandidatesSpec:
    return CandidatesSpec(TwoStreamSpec(unit, model), how, ranking)


def _build_deciding_spec(first: Callable[[Model], CandidatesSpec], model: Model) -> DecidingSpec:
    return DecidingSpec(first(model))


def describe_answers(sides: Sequence[SidePlan], how: How) -> Output:
    """Describe the output of an outer, semi or anti join: one struct column per stream that is shown.

    The struct of a padded stream is NULL in rows without a tuple of this stream.
    """
    shown, flags = [sides[side] for side in how.shown], dict(zip(how.padded, PRESENT, strict=False))
    columns = [column for side in shown for column in list_block_columns(side)]
    columns += [f"{flag} boolean" for flag in flags.values()]
    structs = []
    for side in how.shown:
        struct = restore_struct(sides[side])
        if side in flags:
            struct = f"CASE WHEN {flags[side]} THEN {struct} END"
        structs.append(f"{struct} AS {quote(sides[side].alias)}")
    return Output(tuple(columns), tuple(structs))


_DDL = {pa.int8(): "tinyint", pa.int32(): "int", pa.int64(): "bigint"}
"""The Spark types of the columns of candidate rows behind the payload."""


def describe_candidates(plan: PhysicalPlan, columns: CandidateColumns) -> Output:
    """Describe the rows that leave the first units of a join that answers each tuple.

    The results are one struct column with all columns of these rows. Behind it are the structs of the
    streams, over which Spark evaluates the residual of pairs.
    """
    payload = [column for side in plan.sides for column in list_block_columns(side)]
    more = [f"{quote(name)} {_DDL[type_]}" for name, type_ in columns.types.items()]
    row = f"struct(*) AS {quote(CANDIDATE)}"
    decided = f"{quote(CANDIDATE)}.{DECIDED} IS NOT NULL"
    residual = tuple(f"CASE WHEN {decided} THEN true ELSE ({text}\n) END" for text in plan.residual)
    structs = [f"{restore_struct(side)} AS {quote(side.alias)}" for side in plan.sides]
    return Output((*payload, *more), (row, *structs), residual)
