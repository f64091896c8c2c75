"""``th.join`` joins streams, and ``th.plan`` returns the plan of a join.

``th.col`` names a column in a condition that is written in Python; ``th.from_nanos`` reads a time.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from thetastream.core.arguments import refuse_non_text
from thetastream.core.errors import QueryError, SessionError
from thetastream.core.how import JoinKind, Nearest
from thetastream.core.spans import Within
from thetastream.families.options import JoinOptions, takes
from thetastream.joins.ask.condition import On
from thetastream.joins.ask.request import read_request
from thetastream.joins.ask.streams import read_frames
from thetastream.joins.compose.batches import plan_batch_lookup
from thetastream.joins.plan import Plan
from thetastream.joins.planning import plan_join
from thetastream.models.base import Model, ModelName
from thetastream.models.replicated import Replicated

if TYPE_CHECKING:
    from thetastream.joins.ask.streams import Input


@takes(JoinOptions)
def join(
    streams: "Mapping[str, Input]",
    on: On,
    within: Within = None,
    model: Model | Replicated | ModelName | None = None,
    how: JoinKind | Nearest = "inner",
    **options: Unpack[JoinOptions],
) -> DataFrame:
    """Join streams on any condition.

    Parameters
    ----------
    streams : mapping of alias to DataFrame
        Two or more streams, or two or more batch DataFrames. A table of pandas or Arrow is a batch DataFrame.
        An alias is an identifier of any language. One DataFrame may appear under two aliases. Of two
        streams, the first is the left one. Three or more streams are joined by a pipeline of joins of two
        inputs, or hop by hop with ``th.Ring``, ``th.ATR`` or ``th.CTR``. Batch DataFrames beside streams are
        tables: their rows are looked up in an index, or Spark's own join adds them.
    on : str, Column, Predicate, or a list of them
        A Spark SQL condition over the aliases as text or as a Column, a ``@th.predicate`` function, or a list
        of those, which is their conjunction. A column name that only one stream has needs no alias.
    within : str, timedelta, th.Rows, mapping of alias to those, or None
        The window. Time window: let T be the latest event time of a pair, then T - t_i <= W_i for each stream
        i, inclusive. ``"10 minutes"``, ``"10m"`` and ``timedelta(minutes=10)`` are the same. Count
        window, ``th.Rows(n)``: an arriving tuple meets the last n tuples of each other
        stream. None keeps the full history, unless ``on`` bounds event times.
    model : Model, "auto" or "spark", optional
        The model decides which units store and which units probe. If it is left out, or "auto", the planner
        chooses one by cost. Count windows of three streams or more need ``th.Ring``, which is chosen then.
        Beside a table, ``th.Replicated()`` looks the tuples of a stream up in the whole table in each task,
        which is the default, and ``th.Matrix(n, 1, subgroups=n)`` divides them among n tasks.
        "spark" keeps Spark's own join of one stream with a table, or of two batch DataFrames. Without a
        model, one of two batch DataFrames is staged as a table if that costs less than units.
    how : str or Nearest
        ``"inner"``, ``"left"``, ``"right"``, ``"full"``, ``"semi"`` or ``"anti"``, as Spark's batch joins
        name them. All but ``inner`` join two streams, in a window of event time. A tuple without partners is
        a row once no tuple can join it: when the watermark reaches its event time plus its window. Its
        partner is NULL. ``th.Nearest(k, by="abs(a.x - b.x)")`` finds the k nearest partners of each left
        tuple.
    **options
        Options, as keyword arguments.

    Returns
    -------
    DataFrame
        It has one struct column per alias. If every stream has an event time, it also has the column
        ``result_time``, the latest event time of the row, which is marked as event time on streams (not for
        models whose results come later, as those of a ring of three streams do). The result time of a row
        without partner is the instant that decides it. Semi and anti joins have the column of the first alias
        only, and rows have the time at which their tuple is decided. With ``order``, it also has
        a column ``arrival``, a struct of three fields: ``number`` is the place in the arrivals of both
        streams at which the pair was found, ``alias`` is the stream whose tuple arrived then, and ``stored``
        is the number of the tuple that it met.

    Raises
    ------
    QueryError
        The query is wrong. It is raised before anything starts, and ``InvalidQuery`` lists several problems.
    SessionError
        The Spark session lacks a setting that the join needs.

    Examples
    --------
    >>> import thetastream as th
    >>> pairs = th.join(
    ...     {"a": trades, "b": quotes},
    ...     on="a.price BETWEEN b.bid - 0.05 AND b.ask + 0.05 AND a.qty > b.qty",
    ...     within="5 minutes",
    ...     model=th.Biclique(units=(2, 2)),
    ... )  # doctest: +SKIP
    >>> query = pairs.select("a.id", "b.id").writeStream.format("console").start()  # doctest: +SKIP
    """
    return plan(streams, on, within, model, how, **options).dataframe()


@takes(JoinOptions)
def plan(
    streams: "Mapping[str, Input]",
    on: On,
    within: Within = None,
    model: Model | Replicated | ModelName | None = None,
    how: JoinKind | Nearest = "inner",
    **options: Unpack[JoinOptions],
) -> Plan:
    """Check and plan a join without starting it. It raises the errors of ``join``.

    Parameters
    ----------
    streams, on, within, model, how
        As in ``join``.
    **options
        As in ``join``.

    Returns
    -------
    Plan
        It has ``aliases``, ``event_times``, ``models``, ``explain()`` and ``dataframe()``.

    Examples
    --------
    >>> import thetastream as th
    >>> print(th.plan({"a": a, "b": b}, on="a.x > b.y", within="1 minute").explain())  # doctest: +SKIP
    """
    frames = read_frames(streams)
    request = read_request(frames, on, within, model, options, how=how)
    return Plan(plan_batch_lookup(request, frames) or plan_join(request, frames), request.shown)


def col(name: str) -> Column:
    """Return a column as a Column of Spark, for a condition that is written in Python.

    It is ``pyspark.sql.functions.col``. A condition may be any Column that SQL can write too, with functions
    of ``pyspark.sql.functions``. On a classic session, Spark makes Columns only while a session is active.

    Parameters
    ----------
    name : str
        ``alias.column``; the alias may be left out if only one stream has the column.

    Raises
    ------
    QueryError
        BAD_VALUE if ``name`` is no text, or Spark cannot read it as a name.
    SessionError
        NO_SESSION if no session is active.

    Examples
    --------
    >>> import thetastream as th
    >>> pairs = th.join(
    ...     {"a": trades, "b": quotes}, on=th.col("a.price") < th.col("b.bid"), within="5m"
    ... )  # doctest: +SKIP
    """
    refuse_non_text(name, "name", '"a.x"')
    try:
        return F.col(name)
    except AnalysisException as error:
        what = f"th.col needs the name of a column, and Spark cannot read {name!r}"
        raise QueryError("BAD_VALUE", f'{what}; write it as in th.col("a.x")') from error
    except AssertionError:  # PySpark asserts that a session is active.
        what = f"th.col({name!r}) needs a Spark session, and none is active"
        raise SessionError("NO_SESSION", f"{what}; start one, as th.local_session() does") from None


def from_nanos(nanos: Column | str) -> Column:
    """Return the TIMESTAMP of a number of nanoseconds since 1970-01-01T00:00:00Z.

    Spark has times of microseconds, so it is the last whole microsecond at or before the instant. Use it as
    event time, and keep the nanoseconds as BIGINT for conditions, as in ``a.nanos < b.nanos``.

    Parameters
    ----------
    nanos : Column or str
        A column of type BIGINT, or its name.

    Raises
    ------
    QueryError
        BAD_VALUE if ``nanos`` is neither.

    Examples
    --------
    >>> import thetastream as th
    >>> ticks = rows.withColumn("ts", th.from_nanos("nanos"))  # doctest: +SKIP
    >>> ticks = ticks.withWatermark("ts", "5 seconds")  # doctest: +SKIP
    """
    # A Column of Spark Connect is another class than that of a classic session. Both have ``cast``.
    if not hasattr(type(nanos), "cast"):
        refuse_non_text(nanos, "nanos", '"nanos"')
    column = col(nanos) if isinstance(nanos, str) else nanos
    thousand = F.lit(1000)
    # ``div`` rounds towards zero. A division by ``/`` has only the 53 bits of a double.
    return F.timestamp_micros(F.call_function("div", column - F.pmod(column, thousand), thousand))
