"""Evaluates a SELECT: the SELECTs inside it, and then its join, or Spark's own SELECT over one input."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession

from thetastream.aggregates import NotFoldable
from thetastream.conditions import make_error_at
from thetastream.conditions.clauses import find_endless
from thetastream.conditions.statement import Select, Source
from thetastream.core.arguments import describe_given
from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import QueryError, ThetastreamError, list_problems, raise_problems
from thetastream.families.options import SESSION_PREFIX, StatementOptions, read_options
from thetastream.families.views.planner import is_surely_grouped
from thetastream.joins.ask.catalyst import escape_braces
from thetastream.joins.ask.refusals import unlogged
from thetastream.joins.ask.varying import refuse_varying
from thetastream.joins.compose.nested import NestedJoin
from thetastream.joins.joined import Joined
from thetastream.lowering.domains import quote
from thetastream.models.base import Model, ModelName
from thetastream.spark.arguments import is_frame
from thetastream.spark.changes import find_change_type
from thetastream.spark.session.configure import read_settings
from thetastream.spark.varying_columns import refuse_varying_columns
from thetastream.statements.errors import find_list_problems, locate, sort_problems
from thetastream.statements.from_clause import (
    MergedColumns,
    merge_columns,
    resolve_rankings,
    resolve_versions,
    write_correlated,
)
from thetastream.statements.grouped import fold_groups, inline
from thetastream.statements.join_results import SelectResults, evaluate_select, plan_select
from thetastream.statements.join_select import JoinSelect
from thetastream.statements.select import (
    add_change_type,
    find_changes_problem,
    find_select_problems,
    refuse_changes,
    refuse_other_change_types,
    write_query,
)


@dataclass
class Evaluation:
    """Evaluates the SELECTs of one statement.

    ``model`` and ``options`` are for each of its joins. Event times are for the aliases that they name.
    """

    spark: SparkSession
    streams: Mapping[str, DataFrame]
    """The inputs that the user gave, by name in lower case."""
    model: Model | ModelName | None
    options: Mapping[str, Any]
    """The options of ``thetastream.families.options.StatementOptions`` that the user gave."""
    explanations: list[Callable[[], str]] = field(default_factory=list)
    """Descriptions of the SELECTs, the inner ones first."""
    has_groups: bool = False
    """Whether the results of a join were grouped, so that the option ``every`` has an effect."""
    _projections: dict[int, tuple[JoinSelect, Joined]] = field(default_factory=dict)
    """The joins of SELECTs without groups, by the identity of the SELECT."""

    def evaluate(self, select: Select, scope: Mapping[str, DataFrame], title: str = "") -> DataFrame:
        """Evaluate a SELECT; ``scope`` has the parts of WITH that it may name, by name in lower case.

        Raises
        ------
        QueryError
            The SELECT is wrong. ``InvalidQuery`` lists several problems.
        """
        # 1. Inputs: parts of WITH, subqueries, streams, and tables of the session.
        problems: list[ThetastreamError] = []
        scope, broken = dict(scope), set[str]()
        for part in select.named:
            try:
                scope[part.name.casefold()] = self.evaluate(part.select, scope, f"WITH {part.name}")
            except ThetastreamError as error:
                problems += list_problems(error)
                broken.add(part.name.casefold())
        frames: dict[str, DataFrame] = {}
        for source in select.sources:
            if source.plain_name in broken:
                continue
            try:
                frames[source.alias] = self._find_frame(select.text, source, scope)
            except ThetastreamError as error:
                problems += list_problems(error)
        raise_problems(problems)
        # 2. Rows.
        if len(select.sources) == 1:
            rows, explain = self._select_one(select, frames), _explain_one
            folded = self._fold_subquery(select, rows)
            if folded is not None:
                self.explanations.pop()  # The join is explained as it is folded.
                rows, explain = folded.rows, folded.explain
        else:
            resolved, frames = resolve_versions(select, frames, self.options.get("event_time"))
            merged = merge_columns(resolved, frames, problems)
            raise_problems(problems)
            join_select, found = self._join(
                resolve_rankings(resolved, frames, merged.name_key), frames, merged
            )
            if not found.how:
                self._projections[id(select)] = join_select, found.join
            rows, explain = found.rows, found.explain
        self.explanations.append(lambda: f"== {title} ==\n{explain()}\n" if title else explain())
        return rows

    def _find_frame(self, text: str, source: Source, scope: Mapping[str, DataFrame]) -> DataFrame:
        if source.select is not None:
            return self.evaluate(source.select, scope, f"Subquery {source.alias}")
        plain = source.plain_name
        for known in (scope, self.streams):
            if plain in known:
                return known[plain]
        try:
            with unlogged():
                frame = self.spark.table(source.name)
                _ = frame.schema
            return frame
        except PySparkException:
            given = ", ".join(self.streams)
            names = f"the streams given ({given})" if given else "streams="
            what = f"{source.name!r} is neither one of {names} nor a table or view of the session"
            raise make_error_at(text, source.start, what, "UNKNOWN_STREAM") from None

    def _join(
        self, select: Select, frames: Mapping[str, DataFrame], merged: MergedColumns
    ) -> tuple[JoinSelect, SelectResults]:
        on = [*merged.conditions, *(merged.qualify(condition) for condition in select.conditions)]
        correlated = _write_correlated(select, frames, merged)
        on += [text for texts in correlated.values() for text in texts]
        options = dict(self.options)
        every = options.pop("every", None) if is_surely_grouped(select.items, select.group_by) else None
        self.has_groups |= every is not None
        if isinstance(options.get("event_time"), Mapping):
            times = {alias: column for alias, column in options["event_time"].items() if alias in frames}
            options["event_time"] = times or None
        join_select = JoinSelect(
            select.clauses,
            frames,
            on or ["true"],
            select.within,
            self.model,
            options,
            every,
            merged=merged,
            how=select.how,
            nested=_list_nested(select, correlated),
        )
        try:
            join = plan_select(join_select)
        except ThetastreamError as error:
            given, _ = read_options(options, read_settings(self.spark, SESSION_PREFIX), StatementOptions)
            is_ordered = given.values.get("order") is not None
            located = [locate(select, problem) for problem in list_problems(error)]
            raise_problems(
                sort_problems([*located, *find_select_problems(self.spark, join_select, is_ordered)])
            )
            raise
        return join_select, evaluate_select(self.spark, join_select, join)

    def _fold_subquery(self, select: Select, rows: DataFrame) -> SelectResults | None:
        """Fold the results of a join in a subquery; None if units cannot.

        ``rows`` are the groups of the SELECT, as Spark makes them from the rows of the subquery.
        """
        known = self._projections.get(id(select.sources[0].select))
        if known is None or not is_surely_grouped(select.items, select.group_by):
            return None
        join_select, join = known
        try:
            inlined = replace(join_select, clauses=inline(select, join_select))
            return SelectResults(*fold_groups(self.spark, inlined, join, rows))
        except NotFoldable:
            return None

    def _select_one(self, select: Select, frames: Mapping[str, DataFrame]) -> DataFrame:
        """Evaluate a SELECT over one input by Spark alone."""
        ((alias, frame),) = frames.items()
        clauses = replace(select.clauses, where=select.conditions)
        has_deletes = find_change_type(alias, frame) is not None
        if has_deletes:
            problem = find_changes_problem(alias, clauses)
            if problem is None and is_surely_grouped(select.items, select.group_by):
                problem = refuse_changes(alias, "groups count a delete as a row unless a join makes them")
            raise_problems([] if problem is None else [problem])
        if frame.isStreaming:
            raise_problems(list(find_endless(clauses)))
            if select.is_distinct:
                what = (
                    "DISTINCT over a stream would keep every row forever; use dropDuplicatesWithinWatermark"
                )
                raise make_error_at(select.text, select.items.tokens[0].start, what, "UNBOUNDED_DISTINCT")
        word = "SELECT DISTINCT" if select.is_distinct else "SELECT"

        def run(texts: Sequence[str]) -> DataFrame:
            query = write_query(word, clauses, texts, f"{{rows}} AS {escape_braces(quote(alias))}")
            with unlogged():
                rows = self.spark.sql(query, rows=frame)
                _ = rows.schema
            return rows

        def ask(texts: Sequence[str]) -> AnalysisException | None:
            try:
                run(texts)
            except AnalysisException as error:
                return error
            return None

        texts = [phrase.text for phrase in clauses.phrases]
        try:
            rows = run(texts)
            if has_deletes and CHANGE_TYPE not in rows.columns:
                rows = run([add_change_type(texts[0]), *texts[1:]])
        except AnalysisException:
            raise_problems(sort_problems(list(find_list_problems(ask, clauses.phrases, texts))))
            raise
        if has_deletes:
            refuse_varying(frame, clauses.phrases, f"rows of {alias} may be deleted", alias=alias)
            refuse_varying_columns(rows, alias)
            refuse_other_change_types(alias, rows)
        return rows


def _write_correlated(
    select: Select, frames: Mapping[str, DataFrame], merged: MergedColumns
) -> dict[str, list[str]]:
    """Write the conditions of the subqueries in WHERE, by the alias of each."""
    outer = select.sources[0].alias
    return {
        source.alias: write_correlated(source.subquery, outer, source.alias, frames, merged.name_key)
        for source in select.sources
        if source.subquery is not None
    }


def _list_nested(select: Select, correlated: Mapping[str, Sequence[str]]) -> tuple[NestedJoin, ...]:
    """List the joins of more than two inputs in a row, if some of them are not inner joins."""
    _, *others = select.sources
    if len(others) < 2 or all(source.how == "inner" for source in others):
        return ()
    asked = {source.alias: [phrase.text for phrase in source.asked] for source in others}
    return tuple(
        NestedJoin(source.alias, source.how, " AND ".join(f"({text}\n)" for text in texts))
        if len(texts) > 1
        else NestedJoin(source.alias, source.how, texts[0])
        for source in others
        if (texts := [*asked[source.alias], *correlated.get(source.alias, ())])
    )


def _explain_one() -> str:
    return "Spark's own SELECT over one input\n"


def read_inputs(streams: Mapping[str, DataFrame]) -> dict[str, DataFrame]:
    """Check the inputs that the user gave, and return them by name in lower case."""
    if not isinstance(streams, Mapping):
        what = f"streams must map names to DataFrames, not {describe_given(streams)}"
        raise QueryError("STREAMS", f'{what}; write {{"a": df1, "b": df2}}')
    given: dict[str, DataFrame] = {}
    for name, frame in streams.items():
        if not isinstance(name, str) or not is_frame(frame):
            what = f"streams must map names to Spark DataFrames, not {name!r} to {describe_given(frame)}"
            raise QueryError("STREAMS", what)
        if name.casefold() in given:
            raise QueryError("DUPLICATE_ALIAS", f"names ignore case, and streams has {name!r} twice")
        given[name.casefold()] = frame
    return given
