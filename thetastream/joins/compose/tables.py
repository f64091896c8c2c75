"""Plans joins of streams with tables: batch DataFrames, which have no window and need no state.

{ (s1, ..., sm, t1, ..., tn) : condition is TRUE, the streams s1, ..., sm are inside their windows }

The streams are first joined with each other, as if there were no tables. Then one table is joined after the
other: by an index of the table (``thetastream.joins.compose.lookups``), or by Spark's own join, which takes
any condition. Windows compare the event times of streams. A table has no event time.

A join of one stream with one table may also be an outer, semi or anti join that answers each tuple of the
stream. All partners of a tuple are known at once.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from thetastream.conditions import Phrase, Predicate, parse
from thetastream.core.errors import QueryError, ThetastreamError, raise_problems
from thetastream.core.how import How
from thetastream.families.base import Facts
from thetastream.families.request import JoinRequest
from thetastream.families.result_time import write_result_time
from thetastream.joins.compose.lookups import (
    NO_FOLDER,
    NO_SHARED_FOLDER,
    TableLookup,
    open_folder,
    plan_rows_lookup,
    plan_stream_lookup,
)
from thetastream.joins.joined import Joined
from thetastream.lowering.domains import quote
from thetastream.lowering.event_time import write_elapsed_time
from thetastream.lowering.physical import Carried
from thetastream.lowering.query import Stream, list_conditions
from thetastream.lowering.report import Fact, Section, format_one_line
from thetastream.lowering.selectivity import EQUALITY, estimate_selectivity, find_aliases
from thetastream.models.base import Model
from thetastream.runtime.table_folder import TableFolder
from thetastream.spark.dataflow.predicate_filter import filter_rows
from thetastream.spark.tables.declared import find_declared


@dataclass(frozen=True)
class TableStep:
    """One table, and the parts of the condition that it completes."""

    table: Stream
    phrases: tuple[Phrase, ...]
    predicates: tuple[Predicate, ...]
    join: str = "inner"
    """Spark's name of the join of the rows with the table: inner, left, semi or anti."""
    lookup: TableLookup | str = ""
    """How rows are looked up in an index of the table, or why Spark's own join does it."""

    @property
    def maker(self) -> str:
        """What joins this table, in a few words."""
        return "an index of the table" if isinstance(self.lookup, TableLookup) else "Spark's own join"

    def describe(self) -> str:
        """Describe the join of this table in one line."""
        parts = [format_one_line(phrase.text) for phrase in self.phrases]
        parts += [f"Python predicate {predicate.name}" for predicate in self.predicates]
        has_equality = any(estimate_selectivity(phrase) == EQUALITY for phrase in self.phrases)
        kind = "join" if self.join == "inner" else f"{self.join} join"
        condition = f"{self.table.alias}: {' AND '.join(parts) or 'no condition'}"
        if isinstance(self.lookup, TableLookup):
            return f"{condition}   ({kind} {self.lookup.describe()})"
        whole = f"each row with the whole table, because {self.lookup}"
        return f"{condition}   (Spark's own {kind}, {'by its equality' if has_equality else whole})"


@dataclass(frozen=True)
class TablesJoin:
    """A join of streams with tables that is checked and planned but not started."""

    given: tuple[Stream, ...]
    """Streams and tables, in the order of the user. Tables have no event time."""
    frames: Mapping[str, DataFrame]
    joined: Joined | None
    """The join of the streams. It is None if there is only one stream."""
    filters: tuple[Phrase, ...]
    """Conjuncts that read no table, if there is only one stream."""
    steps: tuple[TableStep, ...]
    """The tables in the order in which they are joined."""
    shows_result_time: bool
    on: tuple[str, ...]
    """The conditions as the user wrote them."""

    @property
    def models(self) -> tuple[Model, ...]:
        return () if self.joined is None else self.joined.models

    @property
    def inputs(self) -> tuple[Stream, ...]:
        if self.looks_up:
            return tuple(known.narrowed for known in self.given)  # only these columns travel
        if self.joined is None:
            return self.given
        streams = {stream.alias: stream for stream in self.joined.inputs}
        return tuple(streams.get(known.alias, known) for known in self.given)

    @property
    def looks_up(self) -> bool:
        """Whether some table is looked up by an index."""
        return any(isinstance(step.lookup, TableLookup) for step in self.steps)

    @property
    def timed(self) -> tuple[Stream, ...]:
        """The streams, whose latest event time is the result time."""
        return tuple(known for known in self.inputs if known.is_streaming)

    @property
    def facts(self) -> Facts:
        joined = None if self.joined is None else self.joined.facts
        return Facts(
            condition=" AND ".join(self.on),
            result_time=write_result_time(self.timed),
            shows_result_time=self.shows_result_time,
            is_prompt=joined is None or joined.is_prompt,
            longest_window_us=0 if joined is None else joined.longest_window_us,
            final="tables are joined behind the units",
            joins_beside=tuple(dict.fromkeys(step.maker for step in self.steps)),
        )

    def explain(self) -> tuple[Section, ...]:
        facts = [
            Fact(f"table {known.alias}:", self._describe_table(known))
            for known in self.given
            if not known.is_streaming
        ]
        facts.append(Fact("", "a table has no window and needs no state"))
        facts += [
            Fact("before", f"{self.timed[0].alias}: {format_one_line(phrase.text)}")
            for phrase in self.filters
        ]
        facts += [Fact("join", step.describe()) for step in self.steps]
        joined = () if self.joined is None else self.joined.explain()
        return (Section("Tables", tuple(facts), width=8), *joined)

    def _describe_table(self, table: Stream) -> str:
        """Describe a table: its columns, and how its changes are followed."""
        frame, n_columns = self.frames[table.alias], f"{len(table.types)} columns"
        declared = find_declared(frame)
        if declared is not None:
            return f"{n_columns}, {declared.describe()}"
        looked_up = {step.table.alias for step in self.steps if isinstance(step.lookup, TableLookup)}
        return n_columns + (", staged when the DataFrame is built" if table.alias in looked_up else "")

    def results(self) -> DataFrame:
        rows = self._build_rows()
        for step in self.steps:
            if isinstance(step.lookup, TableLookup):
                rows = step.lookup.answer(rows)
                continue
            table = self._gather(step.table, is_padded=step.join == "left")
            if step.phrases:
                texts = " AND ".join(f"({phrase.text}\n)" for phrase in step.phrases)
                rows = rows.join(table, F.expr(texts), step.join)
            else:
                rows = rows.crossJoin(table) if step.join == "inner" else rows.join(table, how=step.join)
            for predicate in step.predicates:
                rows = keep_rows(rows, predicate, self.given)
        hidden = {step.table.alias for step in self.steps if step.join in ("semi", "anti")}
        return rows.select(*(quote(known.alias) for known in self.given if known.alias not in hidden))

    def _build_rows(self) -> DataFrame:
        """Build the rows that are joined with the first table."""
        if self.joined is not None:
            return self.joined.results()
        first = self.steps[0].lookup
        if isinstance(first, TableLookup) and first.rows is None:
            return self.frames[self.timed[0].alias]
        rows = self._gather(self.timed[0])
        for phrase in self.filters:
            rows = rows.where(F.expr(f"{phrase.text}\n"))
        return rows

    def _gather(self, stream: Stream, is_padded: bool = False) -> DataFrame:
        """Gather the columns of a stream or table into one struct column."""
        frame = self.frames[stream.alias]
        if self.looks_up:
            frame = frame.select(*(quote(name) for name, _ in stream.narrowed.types))
        return gather_struct(frame, stream.alias, is_padded)


def plan_with_tables(
    request: JoinRequest,
    frames: Mapping[str, DataFrame],
    plan_join: Callable[[JoinRequest, Mapping[str, DataFrame]], Joined],
) -> TablesJoin:
    """Plan a join of streams with tables. ``plan_join`` plans the join of two streams or more."""
    # 1. Refuse what tables do not support, and find whether they can have an index.
    given = request.streams
    streams = [known for known in given if known.is_streaming]
    tables = [known for known in given if not known.is_streaming]
    # Blocks carry the columns that a Python predicate reads. Spark's own join takes any type.
    problems = [p for p in request.problems if request.predicates or p.condition != "UNSUPPORTED_TYPE"]
    raise_problems([*problems, *_find_how_problems(request.how, given, streams, tables)])
    folder = open_folder(request)
    lookup: TableLookup | str = folder if isinstance(folder, str) else ""
    if isinstance(folder, TableFolder) and len(given) == 2:
        lookup = plan_stream_lookup(request, frames, folder)
    has_model = request.lookup_partitions is not None
    if isinstance(lookup, str) and lookup:
        refuse_declared(frames, tables, lookup, has_model)
    if isinstance(lookup, str) and request.how.nearest is not None:
        what = f"{request.how.name} needs an index of the table {tables[0].alias!r}, and there is none"
        raise QueryError("HOW", f"{what}, because {lookup}; leave how out and rank in foreachBatch")
    if isinstance(lookup, str) and not request.how.is_inner and request.predicates:
        raise _make_predicate_error(request.how, tables[0], request.predicates[0], lookup)
    # 2. Plan the join of the streams, with the parts of the condition that read no table.
    aliases = [known.alias for known in given]
    every: list[Phrase | Predicate] = [*request.conjuncts, *request.predicates]
    parts = [(part, find_aliases(part, aliases)) for part in every]
    arrived = {known.alias for known in streams}
    of_streams = [part for part, names in parts if names <= arrived]
    joined = None
    if len(streams) > 1:
        joined = plan_join(request.without_tables(of_streams), frames)
    filters = () if joined is not None else tuple(part for part in of_streams if isinstance(part, Phrase))
    # The join of the streams writes its own differences, after it has read bounds from them.
    resolver = request.resolver
    parts = [
        (part if isinstance(part, Predicate) else parse(write_elapsed_time(part, aliases, resolver)), names)
        for part, names in parts
    ]
    # 3. Join one table after the other, each with the parts of the condition that it completes.
    steps: tuple[TableStep, ...]
    if isinstance(lookup, TableLookup):
        join = _name_join(request.how)
        steps = (TableStep(tables[0], request.conjuncts, request.predicates, join, lookup),)
    elif request.how.is_inner:
        steps = _list_steps(tables, [(part, names) for part, names in parts if not names <= arrived], arrived)
        steps = tuple(replace(step, lookup=lookup) for step in steps)
        if isinstance(folder, TableFolder) and not lookup:
            steps = _plan_lookups(frames, streams if joined is None else joined.inputs, steps, folder)
    else:
        # A conjunct over the stream alone is part of the condition, and not a filter.
        filters, written = (), tuple(part for part, _ in parts if isinstance(part, Phrase))
        steps = (TableStep(tables[0], written, (), _name_join(request.how), lookup),)
    for step in steps:
        if isinstance(step.lookup, str):
            refuse_declared(frames, [step.table], step.lookup, has_model)
    on = list_conditions(request.on, request.predicates)
    return TablesJoin(given, frames, joined, filters, steps, request.has_result_time, on)


def refuse_declared(
    frames: Mapping[str, DataFrame], tables: Sequence[Stream], why: str, has_model: bool = False
) -> None:
    """Refuse a ``th.Table`` of which there is no index. Spark's own join does not follow its changes.

    If the user named how tuples are looked up (``has_model``), any table without an index is refused.

    Raises
    ------
    QueryError
        TABLE_FOLDER if no folder is shared, or TABLE_INDEX.
    """
    for table in tables:
        if find_declared(frames[table.alias]) is None and not has_model:
            continue
        what = f"table {table.alias!r} is a th.Table, whose versions are staged with an index"
        if has_model:
            what = f"model is for tables that are staged with an index, as table {table.alias!r} would be"
        if why in (NO_FOLDER, NO_SHARED_FOLDER):
            hint = 'give mailbox="hdfs://..." or "file:/shared/..."'
            what += f" in a folder that all executors share, and {why}"
            raise QueryError("TABLE_FOLDER", f"{what}; {hint}")
        has_hint = ";" in why  # as that of a column that Arrow cannot carry
        hint = "" if has_hint else "; write the conjunct in another way, or join the DataFrame itself"
        raise QueryError("TABLE_INDEX", f"{what}, and there is none, because {why}{hint}")


def _plan_lookups(
    frames: Mapping[str, DataFrame],
    arrived: Sequence[Stream],
    steps: Sequence[TableStep],
    folder: TableFolder,
) -> tuple[TableStep, ...]:
    """Plan the lookup of rows in each table."""
    planned = []
    for step in steps:
        lookup: TableLookup | str = "a Python predicate reads rows of several inputs"
        if not step.predicates:
            lookup = plan_rows_lookup(frames, arrived, step.table, step.phrases, folder)
        planned.append(replace(step, lookup=lookup))
        arrived = (*arrived, step.table)
    return tuple(planned)


def _list_steps(
    tables: Sequence[Stream], parts: Sequence[tuple[Phrase | Predicate, frozenset[str]]], arrived: set[str]
) -> tuple[TableStep, ...]:
    """List the joins of the tables, each with the parts of the condition that it completes."""
    steps = []
    for table in tables:
        arrived = {*arrived, table.alias}
        complete = [part for part, names in parts if names <= arrived]
        parts = [(part, names) for part, names in parts if not names <= arrived]
        phrases = tuple(part for part in complete if isinstance(part, Phrase))
        predicates = tuple(part for part in complete if isinstance(part, Predicate))
        steps.append(TableStep(table, phrases, predicates))
    return tuple(steps)


def _name_join(how: How) -> str:
    """Name the join of the stream with the table, as Spark calls it when the stream comes first."""
    return "left" if how.padded else how.name


def _find_how_problems(
    how: How,
    given: Sequence[Stream],
    streams: Sequence[Stream],
    tables: Sequence[Stream],
) -> list[ThetastreamError]:
    """Find reasons why Spark's own join cannot answer each tuple of a stream that joins tables."""
    if how.is_inner:
        return []
    names = ", ".join(table.alias for table in tables)
    if len(given) != 2:
        rest = "join the streams first, and then the result" if len(streams) > 1 else "join the stream"
        what = (
            f"how={how.name!r} joins two inputs, and there are {len(given)}; {rest} with one table at a time"
        )
        return [QueryError("HOW", f"{what} ({names})")]
    (stream,), (table,) = streams, tables
    if any(not given[side].is_streaming for side in how.preserved):
        fits = "left" if given[0].is_streaming else "right"
        what = f"how={how.name!r} answers each row of the table {table.alias!r}, but a later tuple of "
        what += (
            f"{stream.alias!r} may always be its partner; how={fits!r} answers each tuple of {stream.alias!r}"
        )
        if how.name in ("semi", "anti"):
            what += f", and {{{stream.alias!r}: ..., {table.alias!r}: ...}} names the stream first"
        return [QueryError("TABLE_PRESERVED", what)]
    return []


def _make_predicate_error(how: How, table: Stream, predicate: Predicate, why: str) -> QueryError:
    what = f"how={how.name!r} with the table {table.alias!r} is Spark's own join, which calls no Python "
    hint = "write the condition in SQL, or add a comparison that an index of the table can use"
    return QueryError("HOW", f"{what}predicate ({predicate.name}), because {why}; {hint}")


def gather_struct(frame: DataFrame, alias: str, is_padded: bool) -> DataFrame:
    """Gather the columns of a DataFrame into one struct column.

    If it is padded, the struct is NULL in some rows of an outer join. If Spark then takes the columns in it
    for never NULL, later joins read them as 0.
    """
    row = F.struct("*")
    if is_padded:
        fields = [StructField(each.name, each.dataType, True, each.metadata) for each in frame.schema]
        row = row.cast(StructType(fields))
    return frame.select(row.alias(alias))


def keep_rows(rows: DataFrame, predicate: Predicate, inputs: Sequence[Stream]) -> DataFrame:
    """Keep the rows for which a predicate is true. Rows have one struct column per alias of ``inputs``."""
    known = {stream.alias.casefold(): stream for stream in inputs}
    columns: list[list[tuple[str, Carried]]] = []
    instants = set()
    n_columns = 0
    for alias, names in predicate.columns:
        stream = known[alias.casefold()]
        carried = {c.field.casefold(): c for c in stream.carried} | {c.field: c for c in stream.carried}
        own = []
        for name in names:
            column = carried.get(name) or carried[name.casefold()]
            own.append((name, replace(column, block_column=f"__read_{n_columns}")))
            n_columns += 1
            if stream.type_of(column.field) == "timestamp":
                instants.add((alias, name))
        columns.append(own)
    return filter_rows(rows, predicate, [alias for alias, _ in predicate.columns], columns, instants)
