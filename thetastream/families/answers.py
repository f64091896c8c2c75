"""Joins of two streams that answer each tuple of a preserved stream: outer, semi, anti and nearest joins."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import pyarrow as pa

from thetastream.conditions.names import find_columns
from thetastream.conditions.tokens import parse
from thetastream.core.columns import DECIDED, PRESENT, SIGN
from thetastream.core.errors import QueryError, raise_problems
from thetastream.core.how import How, PairRanking
from thetastream.core.sides import Side
from thetastream.engine.answers.candidates import CandidateColumns
from thetastream.engine.answers.spec import (
    AnswersSpec,
    CandidatesSpec,
    DecidingSpec,
    EarlySpec,
    NearestSpec,
    VersionsSpec,
)
from thetastream.engine.protocol import EngineSpec
from thetastream.engine.two_stream.query import UnitSpec
from thetastream.engine.two_stream.spec import TwoStreamSpec
from thetastream.families.option_values import EARLY
from thetastream.families.pairs.flow import describe_unit
from thetastream.families.pairs.plan import TwoStreamPlan, plan_two_streams
from thetastream.families.request import JoinRequest, Refusal
from thetastream.families.windows import find_window_problems
from thetastream.lowering.domains import quote
from thetastream.lowering.lower import Lowered, write_change_type
from thetastream.lowering.payload import exchange_payload
from thetastream.lowering.physical import PhysicalPlan, SidePlan
from thetastream.lowering.query import Query, Resolver
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


def carry_residual(query: Query, lowered: Lowered, resolver: Resolver) -> tuple[Query, Lowered]:
    """Return the query and the plan with the columns of hidden streams that the residual reads.

    Semi and anti joins send no payload of the right stream. If Spark evaluates a part of the condition on
    candidate pairs, it needs the columns that this part reads.
    """
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
            carried, problems = resolver.carry(stream, names, n_carried)
            raise_problems(problems)
            streams[side] = stream = replace(stream, carried=carried)
        n_carried += len(stream.carried)
    left, right = (stream.carried for stream in streams)
    physical = exchange_payload(physical, (left, right))
    return replace(query, streams=tuple(streams)), replace(lowered, physical=physical)


@dataclass(frozen=True)
class _AnsweringUnits:
    """The units of a join that answers each tuple. It builds their specs for any model. Picklable."""

    unit: UnitSpec
    how: How
    ranking: PairRanking | None
    drops_replaced: bool = False

    def build(self, model: Model) -> EngineSpec:
        """Build the spec of units that evaluate the whole condition."""
        join = TwoStreamSpec(self.unit, model)
        if self.how.is_early:
            return EarlySpec(join, self.how)
        if self.ranking is None:
            return AnswersSpec(join, self.how)
        kind = VersionsSpec if self.drops_replaced else NearestSpec
        return kind(join, self.how, self.ranking)

    def build_first(self, model: Model) -> CandidatesSpec:
        """Build the spec of units that emit candidate pairs, of which Spark evaluates the residual."""
        return CandidatesSpec(TwoStreamSpec(self.unit, model), self.how, self.ranking)

    def build_second(self, model: Model) -> DecidingSpec:
        """Build the spec of units that decide tuples behind the residual."""
        return DecidingSpec(self.build_first(model))


def describe_answers(sides: Sequence[SidePlan], how: How) -> Output:
    """Describe the output of an outer, semi or anti join: one struct column per stream that is shown.

    The struct of a padded stream is NULL in rows without a tuple of this stream. The type of the change is
    last, if a stream has deletes.
    """
    shown, flags = [sides[side] for side in how.shown], dict(zip(how.padded, PRESENT, strict=False))
    columns = [column for side in shown for column in list_block_columns(side)]
    columns += [f"{flag} boolean" for flag in flags.values()]
    has_deletes = any(side.has_deletes for side in sides)
    columns += [f"{SIGN} tinyint"] * has_deletes
    structs = []
    for side in how.shown:
        struct = restore_struct(sides[side])
        if side in flags:
            struct = f"CASE WHEN {flags[side]} THEN {struct} END"
        structs.append(f"{struct} AS {quote(sides[side].alias)}")
    structs += [write_change_type()] * has_deletes
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


@dataclass(frozen=True, repr=False)
class AnswersPlan(TwoStreamPlan):
    """A join of two streams that answers each tuple of the preserved ones.

    If Spark evaluates a part of the condition, second units decide behind it.
    """

    @classmethod
    def complete(cls, resolver: Resolver, query: Query, lowered: Lowered) -> tuple[Query, Lowered]:
        raise_problems(find_decision_problems(query, lowered))
        if query.how.is_early and lowered.physical.residual:
            what = f"outer={EARLY!r} needs a condition that units evaluate, and Spark evaluates"
            raise QueryError("OUTER", f"{what} {lowered.physical.residual[0]!r}; leave outer out")
        return carry_residual(query, lowered, resolver)

    def _describe_emitted(self) -> str:
        if not self.request.is_streaming:
            return "the inputs are batches"
        return f"Spark completes the rows of how={self.query.how.name!r}"

    def _describe_final_join(self) -> str:
        return f"how={self.query.how.name!r} answers each tuple"

    @property
    def stores_tuples_only(self) -> bool:
        return False

    def flow(self, read: Collection[str] | None = None) -> Flow:
        flow, how = super().flow(read), self.query.how
        columns = [side.time.column for side in self.physical.condition.sides if side.time is not None]
        times = tuple(columns) if how.waits and len(columns) == len(flow.sides) else None
        return replace(flow, waits_by=times)

    def list_stages(self, plan: PhysicalPlan) -> tuple[UnitStage, ...]:
        units = _AnsweringUnits(describe_unit(plan), plan.how, plan.ranking, plan.drops_replaced)
        answers = describe_answers(plan.sides, plan.how)
        if not plan.residual:
            return (self.make_stage(units.build, answers),)
        candidates = describe_candidates(plan, units.build_first(self.model).columns)
        return self.make_stage(units.build_first, candidates), self.make_stage(units.build_second, answers)


class AnswersFamily:
    """Outer, semi, anti and nearest joins of two streams."""

    refused: ClassVar[Mapping[str, Refusal]] = {}

    def takes(self, request: JoinRequest) -> bool:
        return len(request.streams) == 2 and not request.how.is_inner

    def plan(self, request: JoinRequest) -> AnswersPlan:
        return plan_two_streams(request, AnswersPlan)


ANSWERS = AnswersFamily()
