"""Stages tables as versions: a version has the rows of a table as runs of an index.

    source -> stamp -- as before -------------------------------------------> nothing
                 |
                 +-- another --> rows: columns, keys --> runs -> same content -> nothing
                                             |             +---> new version
                                             +-- columns gone, keys twice, too large -> refused

Only workers use the folder of versions, because a client of Spark Connect may be on another machine. The
driver asks one of them for each step.
"""

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from threading import Lock
from typing import TypeVar

import pyarrow as pa
from pyspark.cloudpickle import dumps, loads
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DoubleType,
    FloatType,
    GeographyType,
    GeometryType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)

from thetastream.conditions import parse
from thetastream.conditions.names import find_columns
from thetastream.core.columns import HASH
from thetastream.core.errors import QueryError, ThetastreamError
from thetastream.engine.table_partitions import Partitioning, RunExtent
from thetastream.lowering.domains import quote
from thetastream.runtime.lookup_steps import LookupFlow
from thetastream.runtime.observe.epoch_lines import LOG
from thetastream.runtime.opened_table import name_layout
from thetastream.runtime.state.segment_cache import describe_layout
from thetastream.runtime.table_epochs import StagedTable
from thetastream.runtime.table_folder import TableFolder
from thetastream.runtime.table_staging import STAGED_COLUMNS, make_staging_step
from thetastream.runtime.table_versions import NEW, Refused, SourceCheck, Version
from thetastream.spark.dataflow.exchange import select_block_columns
from thetastream.spark.dataflow.wide_rows import fill_up
from thetastream.spark.session.configure import choose_name_key, count_partitions, read_meaning
from thetastream.spark.session.failure import summarize_exception
from thetastream.spark.session.sizes import estimate_bytes
from thetastream.spark.tables.cuts import divide_table, find_size_problem, is_coarse
from thetastream.spark.tables.stamp import NotReady
from thetastream.spark.tables.table import VALID_TO, Table
from thetastream.spark.task_properties import read_task

T = TypeVar("T")


class RefusedVersionWarning(UserWarning):
    """A changed table was not staged as a new version, because the query cannot use it."""


def stage_rows(
    flow: LookupFlow, table: DataFrame, folder: TableFolder, before: Version | None = None
) -> Version:
    """Write the rows of a table as runs of the index. This runs a job.

    Runs of the version before that have the same rows are not written again.
    """
    flat = select_block_columns(flow.table, table)
    nbytes = estimate_bytes(flat, flat.columns) if before is None else before.nbytes
    version = _write_runs(flow, flat, folder, before, nbytes)
    n_partitions = folder.count_partitions(version.nbytes, count_partitions(table.sparkSession))
    if is_coarse(version.cuts, n_partitions) and Partitioning.of(flow.lookup.plan) is not None:
        # There are more bytes than were known before, so the rows are cut into more ranges.
        coarse, version = version, _write_runs(flow, flat, folder, before, version.nbytes)
        _remove_runs(table.sparkSession, folder, coarse, [version, before])
    return version


def _write_runs(
    flow: LookupFlow, flat: DataFrame, folder: TableFolder, before: Version | None, nbytes: int | None
) -> Version:
    flat, cuts = divide_table(flow, flat, folder, before, nbytes)
    flat = _add_hashes(flat)
    filled = fill_up(flat, f"a row of table {flow.table.alias!r}")
    plan = flow.lookup.plan
    step = make_staging_step(folder, plan, read_task, () if before is None else before.runs)
    rows = sorted(filled.mapInArrow(step, STAGED_COLUMNS).collect(), key=lambda row: row.run)
    n_rows = sum(row.n_rows for row in rows)
    has_content = HASH in flat.columns
    content = f"{n_rows} {sum(row.content for row in rows) % (1 << 64)}" if has_content else None
    runs = tuple(row.run for row in rows)
    extents = tuple(RunExtent(row.nbytes, tuple(map(tuple, row.bounds))) for row in rows)
    staged = sum(row.nbytes for row in rows)
    return Version(NEW, runs, n_rows, staged, time.time(), content, extents, name_layout(plan), cuts)


def _remove_runs(
    spark: SparkSession, folder: TableFolder, version: Version, others: Sequence[Version | None]
) -> None:
    """Remove the runs of a version that is not used, except those that others have."""
    kept = {run for other in others if other is not None for run in other.runs}
    ask_worker(spark, partial(folder.remove_runs, set(version.runs) - kept))


def stage_once(flow: LookupFlow, table: DataFrame, folder: TableFolder) -> StagedTable:
    """Stage a DataFrame as the only version.

    Raises
    ------
    QueryError
        TABLE_TOO_LARGE.
    """
    version, spark = replace(stage_rows(flow, table, folder), number=1), table.sparkSession
    n_partitions = folder.count_partitions(version.nbytes, count_partitions(spark))
    problem = find_size_problem(flow, folder, version, n_partitions)
    if problem is not None:
        _remove_runs(spark, folder, version, ())
        raise problem
    return StagedTable(version, str(table.semanticHash()), n_partitions=n_partitions)


@dataclass(frozen=True)
class TableStaging:
    """How the rows of a table are staged for one join."""

    table: Table
    flow: LookupFlow
    folder: TableFolder
    spark: SparkSession
    planned: StructType
    """The columns of the table when the join was planned."""
    name: str
    """The name of the versions."""
    _lock: Lock = field(default_factory=Lock, repr=False, compare=False)
    _refused: set[str] = field(default_factory=set, repr=False, compare=False)
    """What was wrong with versions, of which a warning was given."""
    _partitions: list[int] = field(default_factory=list, repr=False, compare=False)
    """The number of partitions of tuples in the last DataFrame of this program, if there is one."""
    _too_large: dict[str, QueryError] = field(default_factory=dict, repr=False, compare=False)
    """What was wrong with versions that are too large, by the stamp of the source. They are not staged again
    to find that out."""

    @property
    def alias(self) -> str:
        """The alias of the table in the join."""
        return self.flow.table.alias

    def begin(self) -> StagedTable:
        """Stage the rows of now, if they are not staged, and return what the join reads.

        If they cannot be used, it is the newest version, as in a query that runs.

        Raises
        ------
        QueryError
            TABLE_SCHEMA, TABLE_KEYS, TABLE_TOO_LARGE, TABLE_UNREADABLE or TABLE_BUSY if there is no
            version yet.
        """
        self._partitions.clear()
        self._too_large.clear()
        try:
            version = self.stage_now()
        except QueryError as error:
            newest, _ = ask_worker(self.spark, _Read(self.folder, self.name))
            if newest is None or self._find_size_problem(self.folder, newest) is not None:
                raise
            self._warn(error)
            version = newest
        table, n_partitions = self.table, self._count_partitions(self.folder, version)
        self._partitions.append(n_partitions)
        is_followed = table.every is not None
        return StagedTable(version, self.name, self.name, is_followed, table.max_age_s, n_partitions)

    def stage_now(self, folder: TableFolder | None = None) -> Version:
        """Do what ``stage`` does, for a program that does not try again.

        Raises
        ------
        QueryError
            TABLE_BUSY if another program is writing the table. TABLE_UNREADABLE if its source fails.
        """
        try:
            return self.stage(folder)
        except NotReady as why:
            what = f"table {self.alias!r} cannot be read now: {why}; try again when the table is written"
            raise QueryError("TABLE_BUSY", what) from None
        except ThetastreamError:
            raise
        except Exception as error:  # Spark, a data source or a function of the user may raise anything.
            found = summarize_exception(error)
            what = f"table {self.alias!r} cannot be read: {found}"
            raise QueryError(
                "TABLE_UNREADABLE", f"{what}; versions that are staged stay as they are"
            ) from error

    def refresh(self) -> None:
        """Stage the rows of now, if they have changed. If they cannot be used, the newest version stays."""
        try:
            self.stage()
        except NotReady as why:
            LOG.info("table %s is read later: %s", self.alias, why)
        except QueryError as error:
            self._warn(error)

    def _warn(self, error: QueryError) -> None:
        """Warn once of rows that cannot be used."""
        if str(error) not in self._refused:
            self._refused.add(str(error))
            what = f"{error}. The query goes on with the last version"
            LOG.warning("%s", what)
            warnings.warn(what, RefusedVersionWarning, stacklevel=2)

    def stage(self, folder: TableFolder | None = None) -> Version:
        """Stage the rows of now, unless they are those of the newest version, and return that version.

        Parameters
        ----------
        folder : TableFolder, optional
            Another folder than that of the join.

        Raises
        ------
        QueryError
            TABLE_SCHEMA, TABLE_KEYS or TABLE_TOO_LARGE if the query cannot use the rows.
        NotReady
            If another program is writing the table.
        """
        with self._lock:
            try:
                return self._stage(folder or self.folder)
            except QueryError as error:
                refuse = _Refuse(folder or self.folder, self.name, error.condition, error.message)
                ask_worker(self.spark, refuse)
                raise

    def _stage(self, folder: TableFolder) -> Version:
        # 1. Compare what the source looks like.
        began_s = time.monotonic()
        newest, check = ask_worker(self.spark, _Read(folder, self.name))
        stamp = self.table.stamp(self.spark)
        if stamp in self._too_large:
            raise self._too_large[stamp]
        is_fit = newest is not None and self._find_size_problem(folder, newest) is None
        if newest is not None and is_fit and stamp is not None and stamp == check.stamp:
            return self._note(folder, newest, stamp, began_s)
        # 2. Compare the rows, and stage them. Spark may fail on a file that is replaced while it is read.
        changed = NotReady("its files have changed while they were read")
        try:
            version = self._stage_rows(folder, newest, is_fit)
        except Exception as error:
            if stamp != self.table.stamp(self.spark):
                raise changed from error
            raise
        if stamp != self.table.stamp(self.spark):
            if version.number == NEW:
                _remove_runs(self.spark, folder, version, [newest])
            raise changed
        # 3. Refuse a version of which a host may need more than it keeps.
        problem = self._find_size_problem(folder, version)
        if problem is not None:
            _remove_runs(self.spark, folder, version, [newest])
            if stamp is not None:
                self._too_large[stamp] = problem
            raise problem
        return self._note(folder, version, stamp, began_s)

    def _count_partitions(self, folder: TableFolder, version: Version) -> int:
        return folder.count_partitions(version.nbytes, count_partitions(self.spark))

    def _find_size_problem(self, folder: TableFolder, version: Version) -> QueryError | None:
        """Return an error if a DataFrame of this program would need more of a version than a host keeps."""
        (n_partitions,) = self._partitions[:1] or [self._count_partitions(folder, version)]
        return find_size_problem(self.flow, folder, version, n_partitions)

    def _stage_rows(self, folder: TableFolder, newest: Version | None, is_fit: bool) -> Version:
        """Stage the rows of now, unless the newest version is fit to be read and has the same rows."""
        frame = self.table.read(self.spark)
        self._check_columns(frame)
        self.table.check_keys(frame, self.alias)
        frame = self.table.add_end(frame)
        version = self._find_equal(frame, newest) if newest is not None and is_fit else None
        return version or stage_rows(self.flow, frame, folder, newest)

    def _note(self, folder: TableFolder, version: Version, stamp: str | None, began_s: float) -> Version:
        """Write down that the rows of the source are those of this version since ``began_s``."""
        elapsed_s = time.monotonic() - began_s
        noted = ask_worker(self.spark, _Note(folder, self.name, version, stamp, elapsed_s, self.table.keep))
        if noted is None:
            raise NotReady("another program has removed rows that were staged before and are the same")
        return noted

    def _find_equal(self, frame: DataFrame, newest: Version) -> Version | None:
        """Return the newest version if the rows are still the same. Reading them costs less than staging."""
        flat = _add_hashes(select_block_columns(self.flow.table, frame))
        if newest.content is None or HASH not in flat.columns:
            return None
        total = F.sum(F.col(HASH).cast("decimal(38, 0)"))
        n_rows, summed = flat.agg(F.count("*"), F.coalesce(total, F.lit(0))).collect()[0]
        return newest if newest.content == f"{n_rows} {int(summed) % (1 << 64)}" else None

    def _check_columns(self, frame: DataFrame) -> None:
        """Refuse rows in which a column that the query reads is missing, or has another type."""
        fold = choose_name_key(self.spark)
        read, found = self._list_read(), {fold(one.name): one.dataType.simpleString() for one in frame.schema}
        for planned in self.planned:
            name, type_ = planned.name, planned.dataType.simpleString()
            if name.casefold() not in read:
                continue
            now = found.get(fold(name))
            if now is None:
                what = f"its column {name!r} is gone; it has {', '.join(frame.columns)}"
            elif now != type_:
                what = f"its column {name!r} is {now.upper()} and was {type_.upper()}"
            else:
                continue
            hint = "restore the column, or start the query again with a new plan"
            raise QueryError(
                "TABLE_SCHEMA", f"table {self.alias!r} cannot be used as it is now: {what}; {hint}"
            )

    def _list_read(self) -> set[str]:
        """List the columns of the table that the query reads, in lower case."""
        side = self.flow.table
        read = {name.casefold() for name in (*(one.field for one in side.carried), *self.table.named_columns)}
        for text in (*(text for _, text in side.computed), *(one.text for one in side.filters)):
            named = find_columns(parse(text), side.alias)
            read |= {name.casefold() for name in self.planned.names} if named is None else named
        return read - {VALID_TO}


def plan_staging(table: Table, flow: LookupFlow, folder: TableFolder, frame: DataFrame) -> TableStaging:
    """Plan how a join stages a table. ``frame`` has the columns of the table."""
    meaning = sorted(read_meaning(frame.sparkSession).items())
    parts = repr((flow.name, table.identity, describe_layout(flow.lookup.plan), flow.table, meaning))
    name = blake2b(parts.encode(), digest_size=12).hexdigest()
    staging = TableStaging(table, flow, folder, frame.sparkSession, frame.schema, name)
    known: TableStaging = table.stagings.setdefault((name, folder.root), staging)
    return known


def _add_hashes(flat: DataFrame) -> DataFrame:
    """Add the hash of each row as the column ``HASH``, unless Spark cannot hash a column.

    Spark's hash passes over NULL and takes some texts of a collation for equal.
    """
    hashed: list[Column] = []
    for one in flat.schema:
        hashed += _list_hashed(one)
    try:
        found = flat.select("*", F.xxhash64(*(hashed or [F.lit(0)])).alias(HASH))
        _ = found.schema
    except AnalysisException:
        return flat
    return found


def ask_worker(spark: SparkSession, work: Callable[[], T]) -> T:
    """Call a function in a Python worker of Spark, and return what it returns."""

    def step(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"answer": pa.array([_pack(work())], pa.binary())})

    (row,) = spark.range(0, 1, 1, 1).mapInArrow(step, "answer binary").collect()
    found: T = loads(row.answer)
    return found


def _pack(value: object) -> bytes:
    packed: bytes = dumps(value)  # type: ignore[no-untyped-call]
    return packed


_NESTED = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""How nested values are written as JSON before they are hashed. By default, times have milliseconds only."""


def _list_hashed(column: StructField) -> list[Column]:
    value, type_ = F.col(quote(column.name)), column.dataType
    if isinstance(type_, GeometryType | GeographyType):
        value = F.call_function("st_asbinary", value)
    elif isinstance(type_, ArrayType | MapType | StructType | VariantType):
        value = F.to_json(F.struct(value), _NESTED)
    elif isinstance(type_, StringType):
        value = value.cast("binary")
    elif isinstance(type_, FloatType | DoubleType):
        # Spark's hash takes -0.0 for 0.0.
        return [value, value.isNull(), F.when(value == 0, value.cast("string"))]
    return [value, F.col(quote(column.name)).isNull()]


@dataclass(frozen=True)
class _Read:
    """Reads the newest version whose runs are there, and what the last comparison has found."""

    folder: TableFolder
    name: str

    def __call__(self) -> tuple[Version | None, SourceCheck]:
        versions = self.folder.open_versions(self.name)
        newest = versions.read_newest()
        is_there = newest is not None and self.folder.has_runs(newest)
        return (newest if is_there else None), versions.read_check()


@dataclass(frozen=True)
class _Note:
    """Adds a version unless there is an equal one, and writes down that it is as its source is."""

    folder: TableFolder
    name: str
    version: Version
    """Its number is ``NEW`` if it is not added yet."""
    stamp: str | None
    elapsed_s: float
    """The time since the source was compared."""
    keep: int

    def __call__(self) -> Version | None:
        """Return the version; None if a run of it is gone."""
        versions = self.folder.open_versions(self.name)
        newest, mine = versions.read_newest(), self.version
        if mine.number == NEW:
            # Another program may have staged the same rows.
            is_known = newest is not None and mine.content is not None and newest.content == mine.content
            if is_known and newest and newest.cuts == mine.cuts and self.folder.has_runs(newest):
                self.folder.remove_runs(set(mine.runs) - versions.list_runs())
                mine = newest
            elif not self.folder.has_runs(mine):
                return None
            else:
                mine = newest = versions.add(mine)
        if newest is not None and newest.number == mine.number:
            versions.write_check(SourceCheck(time.time() - self.elapsed_s, self.stamp))
        self.folder.drop_replaced(self.name, self.keep)
        return mine


@dataclass(frozen=True)
class _Refuse:
    """Writes down that the rows of now cannot be used."""

    folder: TableFolder
    name: str
    condition: str
    what: str

    def __call__(self) -> None:
        versions = self.folder.open_versions(self.name)
        check = versions.read_check()
        same = check.refused is not None and check.refused.what == self.what
        if not same:
            versions.write_check(replace(check, refused=Refused(self.condition, self.what, time.time())))
