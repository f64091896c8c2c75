"""Plans joins of two batch DataFrames by an index of one of them, or as Spark's own join.

{ (a, b) : condition is TRUE }, and the rows without partners that ``how`` asks for

Units join batch DataFrames too: both inputs cross an exchange, and units keep both of them in memory. With an
index, one input is staged as a table is (``thetastream.joins.compose.lookups``), and the rows of the other
one are looked up where they are read. The cheaper way is taken, as the sizes that Spark estimates tell.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.conditions import Phrase, Predicate, parse
from thetastream.core.errors import QueryError, raise_problems
from thetastream.core.how import How
from thetastream.core.sides import Side
from thetastream.families.base import Facts
from thetastream.families.lookups import plan_lookup
from thetastream.families.pairs.cost import SEND_BYTE_S, STORE_BYTE_S
from thetastream.families.request import JoinRequest
from thetastream.families.result_time import write_result_time
from thetastream.joins.ask.beside_tables import OF_ONE_STREAM
from thetastream.joins.compose.lookups import TableLookup, open_folder
from thetastream.joins.compose.tables import gather_struct, keep_rows, refuse_declared
from thetastream.lowering.domains import quote
from thetastream.lowering.event_time import write_elapsed_time
from thetastream.lowering.query import Stream, list_conditions
from thetastream.lowering.report import Fact, Section, format_one_line
from thetastream.models.base import Model
from thetastream.spark.session.sizes import estimate_bytes

STAGING_S = 0.02
"""Seconds by which a job that stages a table of a few rows exceeds the tasks of an exchange of a few rows."""
MOST_STAGED_BYTES = 1 << 30
"""The largest input that is staged. Its files stay for a day."""


@dataclass(frozen=True)
class BatchLookup:
    """A join of two batch DataFrames by an index of one of them."""

    given: tuple[Stream, Stream]
    frames: Mapping[str, DataFrame]
    table: Side
    """The input that is staged. Rows of the other one are looked up."""
    lookup: TableLookup
    on: tuple[str, ...]
    shows_result_time: bool
    reason: str
    """Why units do not join the inputs."""

    @property
    def models(self) -> tuple[Model, ...]:
        return ()

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return tuple(known.narrowed for known in self.given)

    @property
    def facts(self) -> Facts:
        return Facts(
            condition=" AND ".join(self.on),
            result_time=write_result_time(self.inputs) if self.shows_result_time else None,
            shows_result_time=self.shows_result_time,
            emitted="the inputs are batches",
            final="an index of a table finds the matches",
            joins_beside=(f"an index of {self.given[self.table].alias}",),
        )

    def explain(self) -> tuple[Section, ...]:
        table, rows = self.given[self.table].alias, self.given[self.table.other].alias
        facts = (
            Fact(f"table {table}:", "staged as files when the DataFrame is built"),
            Fact(f"rows of {rows}:", f"looked up {self.lookup.describe()}"),
            Fact("choice:", self.reason),
        )
        return (Section("Batch", facts),)

    def results(self) -> DataFrame:
        return self.lookup.answer(self.frames[self.given[self.table.other].alias])


def plan_batch_lookup(request: JoinRequest, frames: Mapping[str, DataFrame]) -> BatchLookup | None:
    """Plan a join of two batch DataFrames by an index of one of them.

    Returns None if units must join them, or if they cost less. The plan runs nothing.
    """
    how, given = request.how, request.streams
    has_batches = len(given) == 2 and not any(stream.is_streaming for stream in given)
    has_changes = any(stream.change_type is not None or stream.versions is not None for stream in given)
    if (
        has_changes
        or not has_batches
        or request.keeps_spark_join
        or request.problems
        or _list_of_units(request)
    ):
        return None
    shows_result_time = request.has_result_time and write_result_time(given) is not None
    if len(how.preserved) == 2 or (shows_result_time and not how.is_inner):
        return None  # units find the rows without partners of both inputs, and the times of such rows
    # 1. Choose the table: the smaller input, or the one whose rows are not preserved.
    left, right = (
        estimate_bytes(frames[stream.alias], [name for name, _ in stream.narrowed.types]) for stream in given
    )
    if left is None or right is None:
        return None
    nbytes = left, right
    table = how.preserved[0].other if how.preserved else Side.LEFT if left < right else Side.RIGHT
    staged, every = nbytes[table], sum(nbytes)
    if staged > MOST_STAGED_BYTES:
        return None
    # 2. Compare the costs. Probes cost the same in both ways.
    units_s = every * (2 * SEND_BYTE_S + STORE_BYTE_S)
    lookup_s = STAGING_S + staged * STORE_BYTE_S
    # To find the nearest, units also keep the best partners of each row.
    if units_s <= lookup_s and how.nearest is None:
        return None
    # 3. Plan the lookup.
    folder = open_folder(request)
    if isinstance(folder, str) or (folder.has_copies and staged > folder.cache_bytes):
        return None
    inputs = given[0], given[1]
    plan = plan_lookup(inputs, request.conjuncts, request.predicates, how, request.resolver, table=table)
    if isinstance(plan, str) or (plan.physical.residual and not how.is_inner):
        return None  # units cross an exchange once more, and candidate pairs cross the workers twice
    seconds = f"sending both to units would take {units_s:.2g} s of a core, staging {lookup_s:.2g} s"
    why = seconds if how.nearest is None else "units would keep the best partners of each row in memory"
    sizes = f"Spark estimates {left:,} bytes of {given[0].alias} and {right:,} of {given[1].alias}"
    return BatchLookup(
        inputs,
        frames,
        table,
        TableLookup(plan, frames[given[table].alias], folder),
        list_conditions(request.on, request.predicates),
        shows_result_time,
        f"{sizes}: {why}",
    )


@dataclass(frozen=True)
class SparkJoin:
    """A join of two batch DataFrames that Spark itself computes."""

    given: tuple[Stream, ...]
    frames: Mapping[str, DataFrame]
    phrases: tuple[Phrase, ...]
    predicates: tuple[Predicate, ...]
    how: How
    on: tuple[str, ...]
    shows_result_time: bool

    @property
    def models(self) -> tuple[Model, ...]:
        return ()

    @property
    def inputs(self) -> tuple[Stream, ...]:
        return self.given

    @property
    def facts(self) -> Facts:
        return Facts(
            condition=" AND ".join(self.on),
            result_time=write_result_time(self.given) if self.shows_result_time else None,
            shows_result_time=self.shows_result_time,
            emitted="the inputs are batches",
            final="Spark's own join finds the matches",
            joins_beside=("Spark's own join",),
        )

    def explain(self) -> tuple[Section, ...]:
        text = format_one_line(" AND ".join(self.on))
        return (Section("Batch", (Fact("join", f"{text}   (Spark's own {self.how.name} join)"),)),)

    def results(self) -> DataFrame:
        left, right = (
            gather_struct(self.frames[known.alias], known.alias, side in self.how.padded)
            for side, known in zip(Side, self.given, strict=True)
        )
        rows = left.join(right, self._write_condition(), self.how.name)
        for predicate in self.predicates:
            rows = keep_rows(rows, predicate, self.given)
        return rows.select(*(quote(self.given[side].alias) for side in self.how.shown))

    def _write_condition(self) -> Column:
        conjuncts = (F.expr(f"({phrase.text}\n)") for phrase in self.phrases)
        return reduce(Column.__and__, conjuncts, F.lit(True))


def plan_spark_join(request: JoinRequest, frames: Mapping[str, DataFrame]) -> SparkJoin:
    """Plan a join of two batch DataFrames as Spark's own join."""
    # Blocks carry the columns that a Python predicate reads. Spark's own join takes any type.
    problems = [p for p in request.problems if request.predicates or p.condition != "UNSUPPORTED_TYPE"]
    raise_problems([*problems, *_find_spark_problems(request)])
    refuse_declared(frames, request.streams, 'model="spark" asks for it')
    aliases = [known.alias for known in request.streams]
    phrases = tuple(
        parse(write_elapsed_time(phrase, aliases, request.resolver)) for phrase in request.conjuncts
    )
    shows_result_time = request.has_result_time and request.how.is_inner
    on = list_conditions(request.on, request.predicates)
    return SparkJoin(request.streams, frames, phrases, request.predicates, request.how, on, shows_result_time)


def _list_of_units(request: JoinRequest) -> list[str]:
    """List what the user gave that only units can honour: a window, a model, and options of units."""
    asked = {"within": request.within, "model": request.model}
    unfit = [name for name, value in asked.items() if value is not None]
    return unfit + sorted(request.given.of_user - OF_ONE_STREAM)


def _find_spark_problems(request: JoinRequest) -> Sequence[QueryError]:
    """Find what Spark's own join of two batch DataFrames cannot do."""
    how, problems = request.how, list[QueryError]()
    unfit = _list_of_units(request)
    if unfit:
        what = f'{", ".join(unfit)} is for units, and model="spark" asks for Spark\'s own join'
        problems.append(QueryError("SPARK_JOIN", f"{what}; leave it out"))
    if how.nearest is not None:
        problems.append(QueryError("HOW", f"{how.name} is no join of Spark; leave model out"))
    if request.predicates and not how.is_inner:
        name = request.predicates[0].name
        what = f"how={how.name!r} as Spark's own join calls no Python predicate ({name})"
        problems.append(QueryError("HOW", f"{what}; write it in SQL, or leave model out"))
    return problems
