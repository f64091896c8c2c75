"""``th.write`` starts a query that keeps its results in a store, each exactly once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from thetastream.conditions import tokenize
from thetastream.core.arguments import read_path, refuse_non_text
from thetastream.core.columns import CHANGE_TYPE
from thetastream.core.errors import QueryError, suggest_or_list
from thetastream.core.spans import Duration, read_trigger
from thetastream.joins.ask.refusals import read_names, summarize, unlogged
from thetastream.joins.ask.varying import refuse_varying
from thetastream.joins.joined import UnitsJoin
from thetastream.joins.plan import Built, Plan, find_built
from thetastream.joins.punctuations import mark_punctuations
from thetastream.joins.sources import find_sources, refuse_other_select
from thetastream.results.snapshots import EACH_EPOCH, Snapshots
from thetastream.results.store import Store, refuse_other
from thetastream.results.writer import Writer
from thetastream.runtime.checkpoint_files import prepare_checkpoint
from thetastream.runtime.flow import NotStaged, Target
from thetastream.spark.arguments import refuse_other_frames
from thetastream.spark.changes import find_change_type, keep_groups
from thetastream.spark.session.configure import is_local
from thetastream.spark.sinks.store import describe, write_into
from thetastream.spark.sinks.upkeep import EVERY, StoreKeeper, check_upkeep
from thetastream.spark.varying_columns import refuse_varying_columns


def write(
    df: DataFrame | Plan,
    store: Store,
    *,
    checkpoint: str | Path,
    select: Sequence[str] | None = None,
    snapshots: Snapshots | None = None,
    key: str | Sequence[str] = (),
    time: str | None = None,
    trigger: str | None = None,
    name: str | None = None,
    beside_others: bool = False,
    keep: Duration | None = None,
    upkeep: Duration | Literal[False] = EVERY,
) -> StreamingQuery:
    """Start a query that puts its rows into a store, each exactly once, also through crashes.

    Parameters
    ----------
    df : DataFrame or Plan
        A streaming DataFrame: what ``th.join`` returned, or anything behind it whose rows do not change. Or
        what ``th.plan`` returned.
    store : Store
        Where results are kept, as in ``th.ParquetStore("out/pairs")``.
    checkpoint : str
        The folder of the query's checkpoint. A query that continues from it adds to what it has written.
    select : sequence of str, optional
        What is kept of each row, as texts of ``DataFrame.selectExpr``. By default it is every column. Units
        write results into the store themselves if ``df`` comes from ``th.join`` or ``th.plan`` and each text
        is a column, such as ``"a.id"``, ``"a.id AS trade"``, ``"a.*"``, ``"a"`` or ``"result_time"``.
        Otherwise Spark hands rows to the store, which is slower. ``th.plan(...).explain_write(select)`` says
        which it is, and why.
    snapshots : Snapshots, optional
        When results become a snapshot. By default each epoch that has results is one.
    key : str or sequence of str, optional
        Columns by which results are looked up. ``"a.symbol"`` is a field of the struct column ``a``.
    time : str, optional
        The column of time by which results are read. By default it is ``result_time``, or the column that is
        marked as event time.
    trigger : str, optional
        The interval between two epochs, as in "10 seconds". ``"available now"``, or ``"availableNow"`` as
        in Spark, ends the query when all available input has been read. Without a trigger, epochs follow one
        another without a pause.
    name : str, optional
        The name of the query in Spark.
    beside_others : bool
        Whether the query may add to a store that has results of other queries. By default it is refused,
        because a query that begins again with another checkpoint would add all its results a second time.
    keep : str or timedelta, optional
        How long results are kept, as in ``"30 days"``, counted back from the newest snapshot. By default, all
        results are kept.
    upkeep : str or timedelta, or False
        How often a thread of this program merges small files of the store, removes files that nobody needs,
        and forgets results that are older than ``keep``: it calls ``store.upkeep`` while the query runs.
        False leaves that to others, such as a scheduler that calls ``thetastream upkeep``.

    Returns
    -------
    StreamingQuery

    Raises
    ------
    QueryError
        STREAMS if ``df`` is no DataFrame.
        NOT_STREAMING, UNKNOWN_COLUMN, STORE_COLUMN, STORE_FOLDER, SINK_MODE, CHANGES_DROPPED or BAD_VALUE;
        NON_DETERMINISTIC, TIME_DEPENDENT or CHANGES_TABLE if changes, or ``select`` over them, depend on more
        than the row. It is raised before anything starts.
    StateError
        CHECKPOINT_DAMAGED if files of the checkpoint are not as they were written.
    StoreError
        STORE_SCHEMA if the store holds other columns. STORE_CHANGES if ``keep`` is given for rows that may be
        deleted. STORE_IN_USE if it has results of another query. While
        the query runs, STORE_AHEAD or STORE_BEHIND if the checkpoint and the store do not fit.

    Examples
    --------
    >>> import thetastream as th
    >>> pairs = th.join({"a": trades, "b": quotes}, on="a.price > b.bid", within="1m")  # doctest: +SKIP
    >>> store = th.ParquetStore("out/pairs")
    >>> query = th.write(pairs, store, key="a.symbol", checkpoint="out/checkpoint")  # doctest: +SKIP
    """
    refuse_other(store)
    if not isinstance(snapshots, Snapshots | None):
        what = f'snapshots must be a rule, as in th.Snapshots(every="1 minute"), not {snapshots!r}'
        raise QueryError("BAD_VALUE", what)
    place = read_path(checkpoint, "checkpoint")
    if name is not None:
        refuse_non_text(name, "name", 'name="pairs"')
    pace, every_s = read_trigger(trigger), check_upkeep(keep, upkeep)
    if not isinstance(df, Plan):
        refuse_other_frames("th.write", df)
    built = find_built(df)
    df = df.dataframe() if isinstance(df, Plan) else df
    if not df.isStreaming:
        what = "th.write keeps the results of a streaming DataFrame, and this one is a batch"
        raise QueryError("NOT_STREAMING", f"{what}; write it with df.write")
    if not store.is_shared and not is_local(df.sparkSession):
        what = f"results are written by all executors, and {store} is on one machine"
        raise QueryError("STORE_FOLDER", f'{what}; name a URI, as in "hdfs://..." or "file:/shared/..."')
    df = keep_groups(df)
    rule, punctuations = snapshots or EACH_EPOCH, None
    if rule.marks:
        built, punctuations = mark_punctuations(built, rule.marks)
        df = built.build(built.join)
    rows = _select(df, select)
    target = Target(store, describe(rows.schema, time, (key,) if isinstance(key, str) else tuple(key)), rule)
    if keep is not None:
        target.description.refuse_forgetting(store.name)
    staged = None if built is None else _stage(built, target, select)
    prepare_checkpoint(place)
    owner = Writer(place, beside_others)
    store.describe(target.description)
    store.admit(owner)
    store.sweep()
    is_staged = staged is not None
    writer = write_into(rows if staged is None else staged, target, is_staged, owner, punctuations)
    if name is not None:
        writer = writer.queryName(name)
    try:
        query = writer.trigger(**pace).start()
    except AnalysisException as error:
        if not (error.getCondition() or "").startswith("STREAMING_OUTPUT_MODE"):
            raise
        what = "a store keeps every row, and groups that still change cannot be appended"
        hint = "group by window(...) of a column that has a watermark, too"
        raise QueryError("SINK_MODE", f"{what}; {hint}") from error
    if every_s is not None:
        StoreKeeper(store, query, every_s, keep).start()
    return query


def _select(df: DataFrame, select: Sequence[str] | None) -> DataFrame:
    """Select the columns that are kept. Deletes of changes must equal the rows that they delete."""
    rows = df if select is None else _compute(df, select)
    if find_change_type("what is written", df) is None:
        return rows
    if CHANGE_TYPE not in rows.columns:
        what = f"the rows are changes, and select leaves {CHANGE_TYPE!r} out: deletes would be kept as rows"
        raise QueryError("CHANGES_DROPPED", f"{what}; select {CHANGE_TYPE!r} too")
    refuse_varying(df, [tokenize(text) for text in select or ()], "the rows are changes")
    refuse_varying_columns(rows, "what is written")
    return rows


def _compute(df: DataFrame, select: Sequence[str]) -> DataFrame:
    """Select expressions, which Spark must know how to compute."""
    refuse_other_select(select)
    try:
        with unlogged():
            rows = df.selectExpr(*select)
            rows.schema  # noqa: B018 - Spark Connect finds the columns when somebody asks for them
    except AnalysisException as error:
        if (error.getCondition() or "").startswith("UNRESOLVED_COLUMN"):
            quoted = (error.getMessageParameters() or {}).get("objectName", "")
            raise _make_unknown_error(df, ".".join(read_names(quoted))) from error
        raise summarize(error, "select") from error
    return rows


def _make_unknown_error(df: DataFrame, name: str) -> QueryError:
    """Make the error of a name that is no column, with the columns of streams that are called so."""
    streams = {one.name: one.dataType.names for one in df.schema if isinstance(one.dataType, StructType)}
    paths = [repr(f"{alias}.{name}") for alias, names in streams.items() if name in names]
    hint = f"; write {' or '.join(paths)}" if paths else suggest_or_list(name, df.columns)
    return QueryError("UNKNOWN_COLUMN", f"select names {name!r}, which is no column of the results{hint}")


def _stage(built: Built, target: Target, select: Sequence[str] | None) -> DataFrame | None:
    """Let units stage their results in a store; None if Spark must compute the selected columns."""
    join, items = built.join, built.items
    if items is not None and select is not None:
        return None  # Spark selects from what a statement has selected.
    try:
        sources = find_sources(join.facts.emitted, select if items is None else items, built.shown)
    except NotStaged:
        return None
    assert isinstance(join, UnitsJoin)  # no other join says what units emit
    return join.stage(target, sources)
