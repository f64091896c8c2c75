"""``th.join`` joins streams, and ``th.plan`` returns the plan of a join."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame

from thetastream.core.shed import Shed
from thetastream.core.windows import Duration, Within
from thetastream.engine.order.spec import Asked
from thetastream.frontend.condition import On
from thetastream.frontend.how import GivenHow
from thetastream.frontend.request import complete_request
from thetastream.models.base import Model
from thetastream.plan.statistics import Statistics
from thetastream.planners import Plan, plan_join

if TYPE_CHECKING:
    from thetastream.frontend.tables import Table


def join(
    streams: "Mapping[str, Table]",
    on: On,
    within: Within = None,
    model: Model | str | None = None,
    how: GivenHow = "inner",
    *,
    index: str | None = None,
    archive_period: Duration | None = None,
    order: Asked = None,
    punctuations: bool | None = None,
    event_time: str | Mapping[str, str] | None = None,
    result_time: bool | None = None,
    mailbox: str | None = None,
    max_units: int | None = None,
    cache_folder: str | None = None,
    late: str | Path | None = None,
    shed: Shed | None = None,
    statistics: Statistics | None = None,
) -> DataFrame:
    """Join streams on any condition.

    Parameters
    ----------
    streams : mapping of alias to DataFrame
        Two or more streams, or two or more batch DataFrames. A table of pandas or Arrow is a batch DataFrame.
        An alias is an identifier of any language. One DataFrame may appear under two aliases. Of two
        streams, the first is the left one. Three or more streams are joined by a pipeline of joins of two
        inputs, or hop by hop with ``th.Ring``, ``th.ATR`` or ``th.CTR``. Batch DataFrames beside streams are
        tables, which Spark's own join adds to the joined streams.
    on : str, Column, Predicate, or a list of them
        A Spark SQL condition over the aliases as text or as a Column, a ``@th.predicate`` function, or a list
        of those, which is their conjunction. A column name that only one stream has needs no alias.
    within : str, timedelta, th.Rows, mapping of alias to those, or None
        The window. Time window: let T be the latest event time of a pair, then T - t_i <= W_i for each stream
        i, inclusive. ``"10 minutes"``, ``"10m"`` and ``timedelta(minutes=10)`` are the same. Count
        window, ``th.Rows(n)``: an arriving tuple meets the last n tuples of each other
        stream. None keeps the full history, unless ``on`` bounds event times.
    model : Model or "auto", optional
        The model decides which units store and which units probe. If it is left out, or "auto", the planner
        chooses one by cost. Count windows of three streams or more need ``th.Ring``, which is chosen then.
    how : str or Nearest
        ``"inner"``, ``"left"``, ``"right"``, ``"full"``, ``"semi"`` or ``"anti"``, as Spark's batch joins
        name them. All but ``inner`` join two streams, in a window of event time. A tuple without partners is
        a row once no tuple can join it: when the watermark reaches its event time plus its window. Its
        partner is NULL. ``th.Nearest(k, by="abs(a.x - b.x)")`` finds the k nearest partners of each left
        tuple.
    index : str, optional
        Force an index shape: ``"scan"``, ``"sorted"``, ``"hash"``, ``"hash_sorted"`` or ``"grid"``. By
        default, the condition decides.
    archive_period : str or timedelta, optional
        The event time that one subindex spans. A whole subindex expires at once. By default it is a tenth of
        the window.
    order : "outer", "strict", "inner n" or int, optional
        The order of results, with ``th.Split`` or ``th.Ring``. A number is a punctuation interval in
        arrivals. ``"inner 64"`` orders the results of one tuple by the age of the stored tuple, in steps of
        64 arrivals. By default results have no order.
    punctuations : bool, optional
        Whether punctuations are rows of ordered results. By default they are not.
    event_time : str or mapping of alias to str, optional
        The event-time column of batch DataFrames, which cannot carry a watermark. By default it is the only
        timestamp column.
    result_time : bool, optional
        Whether results have the column ``result_time``. By default they have it if every stream has an event
        time.
    mailbox : str, optional
        A folder, shared by driver and executors, for messages between the units of a ring or chain. By
        default it lies beside the checkpoints. Requests to a join with ``max_units`` lie there too.
    max_units : int, optional
        The largest number of units that the join may have at once, older generations included. With it,
        ``th.control`` changes the units while the join runs. By default, they do not change.
    cache_folder : str, optional
        A folder on each host for mapped segments. By default it is Spark's local directory.
    late : str or Path, optional
        A folder in which late tuples are kept, as Parquet files, each tuple exactly once. A join needs a
        folder of its own. By default, late tuples are only counted.
    shed : Shed, optional
        A load shedder, which drops tuples of streams while the load is too high. By default, nothing is
        dropped.
    statistics : Statistics, optional
        Figures from which costs are estimated, and from which the model is chosen if it is left out.

    The default of each parameter from ``index`` on is the Spark setting ``spark.thetastream.<name>``, if the
    session has it.

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
    return plan(
        streams,
        on,
        within,
        model,
        how=how,
        index=index,
        archive_period=archive_period,
        order=order,
        punctuations=punctuations,
        event_time=event_time,
        result_time=result_time,
        mailbox=mailbox,
        max_units=max_units,
        cache_folder=cache_folder,
        late=late,
        shed=shed,
        statistics=statistics,
    ).dataframe()


def plan(
    streams: "Mapping[str, Table]",
    on: On,
    within: Within = None,
    model: Model | str | None = None,
    how: GivenHow = "inner",
    *,
    index: str | None = None,
    archive_period: Duration | None = None,
    order: Asked = None,
    punctuations: bool | None = None,
    event_time: str | Mapping[str, str] | None = None,
    result_time: bool | None = None,
    mailbox: str | None = None,
    max_units: int | None = None,
    cache_folder: str | None = None,
    late: str | Path | None = None,
    shed: Shed | None = None,
    statistics: Statistics | None = None,
) -> Plan:
    """Check and plan a join without starting it. It takes the parameters and raises the errors of ``join``.

    Returns
    -------
    Plan
        It has ``aliases``, ``event_times``, ``explain()`` and ``dataframe()``. For two streams it is a
        ``JoinPlan``, and for more streams a ``PipelinePlan``, unless the model names another planner.

    Examples
    --------
    >>> import thetastream as th
    >>> print(th.plan({"a": a, "b": b}, on="a.x > b.y", within="1 minute").explain())  # doctest: +SKIP
    """
    settings = {
        "index": index,
        "archive_period": archive_period,
        "order": order,
        "punctuations": punctuations,
        "event_time": event_time,
        "result_time": result_time,
        "mailbox": mailbox,
        "max_units": max_units,
        "cache_folder": cache_folder,
        "late": late,
        "shed": shed,
        "statistics": statistics,
    }
    return plan_join(complete_request(streams, on, within, model, settings, how=how))
