"""Looks tuples of a stream, or rows of joins with one struct column per alias, up in an index of a table.

The rows of joins are read as tuples of one more stream, whose columns are the structs. So the condition
``a.x < t.low`` over rows of ``a`` becomes ``rows.a.x < t.low``.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from thetastream.conditions import Phrase, parse
from thetastream.conditions.names import relocate
from thetastream.core.errors import QueryError
from thetastream.core.folder import is_uri
from thetastream.core.how import INNER
from thetastream.core.sides import Side
from thetastream.engine.table_partitions import Partitioning
from thetastream.families.lookups import LookupPlan, plan_lookup
from thetastream.families.request import JoinRequest
from thetastream.joins.ask.catalyst import Catalyst
from thetastream.lowering.domains import quote
from thetastream.lowering.query import Stream
from thetastream.runtime.host_runs import CACHE_BYTES
from thetastream.runtime.table_epochs import StagedTable
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_versions import NEW, Version
from thetastream.spark.dataflow.lookup import look_up
from thetastream.spark.tables.declared import find_declared
from thetastream.spark.tables.follow import follow
from thetastream.spark.tables.stage import TableStaging, plan_staging, stage_once
from thetastream.spark.tables.versions import remember_folder

_STAGES: ContextVar[bool] = ContextVar("stages", default=True)
"""Whether a join stages its table when its DataFrame is built."""
_UNSTAGED = StagedTable(Version(NEW, (), 0, 0, 0.0), "")


@contextmanager
def leave_unstaged() -> Iterator[None]:
    """Build DataFrames of joins without staging their tables. They have columns, and must not run."""
    before = _STAGES.set(False)
    try:
        yield
    finally:
        _STAGES.reset(before)


@dataclass(frozen=True)
class TableLookup:
    """A planned lookup in a table."""

    plan: LookupPlan
    table: DataFrame
    """The table when the lookup was planned."""
    folder: TableFolder
    staging: TableStaging | None = None
    """How versions of the table are staged, if it is a ``th.Table``."""
    rows: str | None = None
    """The alias of the rows of joins; None if the rows are tuples of a stream."""
    _staged: list[StagedTable] = field(default_factory=list)

    def answer(self, rows: DataFrame) -> DataFrame:
        """Look rows up; return one struct column per alias. The table is staged the first time."""
        if _STAGES.get() and not self._staged:
            self._staged.append(self._stage(rows.sparkSession))
        (staged,) = self._staged or (_UNSTAGED,)
        found = look_up(self.plan.flow(), rows, self.table, self.folder, staged)
        if self.rows is None:
            return found
        others = [quote(name) for name in found.columns if name != self.rows]
        return found.select(f"{quote(self.rows)}.*", *others)

    def _stage(self, spark: SparkSession) -> StagedTable:
        remember_folder(spark, self.folder)
        if self.staging is None:
            return stage_once(self.plan.flow(), self.table, self.folder)
        staged = self.staging.begin()
        follow(self.staging)
        return staged

    def describe(self) -> str:
        """Describe the lookup in a few words."""
        asked = self.folder.asked
        divided = "" if asked in (None, 1) else f", its tuples divided among {asked} tasks"
        return f"{self.plan.describe()}{divided}"


def make_lookup(
    plan: LookupPlan, table: DataFrame, folder: TableFolder, rows: str | None = None
) -> TableLookup:
    """Make the lookup in a table, which may be declared as a ``th.Table``."""
    flow = plan.flow()
    if folder.asked not in (None, 1) and Partitioning.of(flow.lookup.plan) is None:
        what = f"tuples are divided by an equality or a band with {flow.table.alias!r}, and there is none"
        raise QueryError("NOT_ROUTABLE", f"{what}; leave model out")
    declared = find_declared(table)
    staging = None if declared is None else plan_staging(declared, flow, folder, table)
    return TableLookup(plan, table, folder, staging, rows)


NO_FOLDER = "mailbox= names no folder that all workers share"
NO_SHARED_FOLDER = "tables are staged on disks, on HDFS and on s3:// only"
SHARED = ("file:", "hdfs:", "viewfs:", "s3:", "s3a:")
"""Beginnings of URIs of folders in which only one of several workers can write a new file."""


def open_folder(request: JoinRequest) -> TableFolder | str:
    """Choose the folder in which tables are staged, or say why no table of a request can have an index."""
    if request.keeps_spark_join:
        return 'model="spark" asks for it'
    for problem in request.problems:
        if problem.condition == "UNSUPPORTED_TYPE":
            return problem.message
    root, problems = request.choose_mailbox()
    if problems:
        return NO_FOLDER
    if is_uri(root) and not root.startswith(SHARED):
        return NO_SHARED_FOLDER
    cache_bytes = int(request.options.get("table_cache") or CACHE_BYTES)
    return TableFolder(root, request.run.cache_folder, cache_bytes, request.lookup_partitions)


def plan_stream_lookup(
    request: JoinRequest, frames: Mapping[str, DataFrame], folder: TableFolder
) -> TableLookup | str:
    """Plan the lookup of a stream in the only table, or say why Spark's own join must do it."""
    left, right = request.streams
    (side,) = (side for side in Side if not request.streams[side].is_streaming)
    table = frames[request.streams[side].alias]
    plan = plan_lookup(
        (left, right),
        request.conjuncts,
        request.predicates,
        request.how,
        request.resolver,
        table=side,
        is_declared=find_declared(table) is not None,
    )
    return plan if isinstance(plan, str) else make_lookup(plan, table, folder)


def plan_rows_lookup(
    frames: Mapping[str, DataFrame],
    arrived: Sequence[Stream],
    table: Stream,
    phrases: Sequence[Phrase],
    folder: TableFolder,
) -> TableLookup | str:
    """Plan the lookup of rows of joins in a table, or say why Spark's own join must do it.

    Parameters
    ----------
    frames : mapping of alias to DataFrame
    arrived : sequence of Stream
        The streams and tables whose tuples the rows have.
    table : Stream
    phrases : sequence of Phrase
        The conjuncts over rows and table.
    folder : TableFolder
    """
    alias = "rows"
    while alias.casefold() in {one.alias.casefold() for one in (*arrived, table)}:
        alias += "_"
    # 1. Read the rows as a stream whose columns are structs.
    fields = [
        StructField(one.alias, StructType([frames[one.alias].schema[name] for name, _ in one.narrowed.types]))
        for one in arrived
    ]
    schemas = {alias: StructType(fields), table.alias: frames[table.alias].schema}
    catalyst = Catalyst(frames[table.alias].sparkSession, schemas)
    rows = Stream(alias, tuple((one.name, one.dataType.simpleString()) for one in fields))
    carried, problems = catalyst.carry(rows, None, 0)
    rows = replace(rows, carried=carried)
    names = {name.casefold() for name, _ in table.narrowed.types}
    carried, refused = catalyst.carry(table, names, len(carried))
    table = replace(table, carried=carried)
    if problems or refused:
        return (*problems, *refused)[0].message
    # 2. Write the condition over the structs.
    inside = {one.alias.casefold(): one.alias for one in arrived}

    def write(owner: str, column: str) -> str:
        return f"{quote(alias)}.{quote(owner)}.{quote(column)}"

    written = [parse(relocate(phrase, inside, write)) for phrase in phrases]
    frame = frames[table.alias]
    is_declared = find_declared(frame) is not None
    inputs, on = (rows, table), [phrase.text for phrase in phrases]
    plan = plan_lookup(inputs, written, (), INNER, catalyst, table=Side.RIGHT, is_declared=is_declared, on=on)
    return plan if isinstance(plan, str) else make_lookup(plan, frame, folder, alias)
