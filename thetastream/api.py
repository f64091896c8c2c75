"""th.join: streams and a condition in, a DataFrame of results out."""

from collections.abc import Mapping
from typing import Any

from pyspark.sql import DataFrame

from thetastream.binary import JoinPlan, plan_binary
from thetastream.cascade import CascadePlan, plan_cascade
from thetastream.errors import QueryError, ThetastreamError
from thetastream.frontend.condition import On
from thetastream.frontend.streams import check_streams
from thetastream.models import Multiway
from thetastream.models.base import Model
from thetastream.multiway import RingPlan, plan_ring
from thetastream.tasks import JoinTasks, plan_tasks
from thetastream.windows import Within

SETTINGS: dict[str, str] = {
    "index": "force an index shape: scan, sorted, hash, hash_sorted, grid",
    "archive_period": 'event time one subindex spans, as in "1 minute"; by default a tenth of the window',
    "order": 'order of pairs, with th.Split: "outer", "strict", or a punctuation interval in arrivals',
    "punctuations": "whether punctuations are rows of ordered results: true or false",
    "event_time": "event-time column per alias, for batch DataFrames, which cannot carry a watermark",
    "mailbox": "folder, shared by driver and executors, for messages between units of a ring or chain",
    "cache_folder": "host-local folder for mapped segments; Spark's local directory by default",
    "statistics": "th.Statistics to estimate costs from, and to choose the model by; assumed by default",
}
"""Keyword arguments of join and plan; the session-wide default of each is ``spark.thetastream.<name>``."""


def join(
    streams: Mapping[str, DataFrame],
    on: On,
    within: Within = None,
    model: Model | str | None = None,
    **settings: Any,
) -> DataFrame:
    """Join streams on any condition.

    Parameters
    ----------
    streams : mapping of alias to DataFrame
        Two streams or more, or batch DataFrames; the same one twice is fine. Of two, the first is the left
        one; three and more are joined one after the other, or hop by hop on a ``th.Ring``.
    on : str, Predicate, or a list of them
        A Spark SQL condition over the aliases, a ``@th.predicate`` function, or a conjunction of both.
        Column names that only one stream has need no alias.
    within : str, timedelta, th.Rows, mapping of alias to those, or None
        Time window: for the latest event time T of a pair, T - t_i <= W_i for each stream i, inclusive.
        Count window, ``th.Rows(n)``: an arriving tuple meets the last n tuples of the other stream.
        None keeps the full history, unless ``on`` bounds event times.
    model : Model or "auto", optional
        Who stores and who probes; "auto", or left out: chosen by ``thetastream.plan.choose``.
    **settings
        Those that ``thetastream.api.SETTINGS`` lists.

    Returns
    -------
    DataFrame
        One struct column per alias; with ``order``, a column ``arrival`` too: struct of ``number``, the place
        in the arrivals of both streams at which the pair was found, ``alias``, the stream whose tuple
        arrived then, and ``stored``, the number of the tuple that it met.

    Raises
    ------
    QueryError
        Named, before anything starts; ``InvalidQuery`` lists several at once.
    SessionError
        If the Spark session is set in a way the join cannot run with.

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
    return plan(streams, on, within, model, **settings).dataframe()


def plan(
    streams: Mapping[str, DataFrame],
    on: On,
    within: Within = None,
    model: Model | str | None = None,
    **settings: Any,
) -> JoinPlan | CascadePlan | RingPlan:
    """Check and plan a join without starting it; parameters and errors are those of ``join``.

    Examples
    --------
    >>> import thetastream as th
    >>> print(th.plan({"a": a, "b": b}, on="a.x > b.y", within="1 minute").explain())  # doctest: +SKIP
    """
    check_streams(streams)
    chosen, unknown = _settings(streams, settings)
    if isinstance(model, Multiway) and (len(streams) > 2 or not model.is_binary):
        return plan_ring(streams, on, within, model, chosen, unknown)
    planner = plan_binary if len(streams) == 2 else plan_cascade
    return planner(streams, on, within, model, chosen, unknown)


def join_many(
    streams: Mapping[str, DataFrame],
    tasks: Mapping[str, Mapping[str, Any]],
    model: Model | str | None = None,
    **settings: Any,
) -> JoinTasks:
    """Join the same two streams several times over one exchange: tuples are sent once, whatever the number.

    Tasks share the exchange when they run in one query: start ``together``. Spark runs one query for each
    ``writeStream``, so a task's own DataFrame, started alone, is that of ``th.join``, exchange included.

    Parameters
    ----------
    streams : mapping of alias to DataFrame
        Two streams, or two batch DataFrames; the same one twice is fine.
    tasks : mapping of name to mapping
        What each task joins: ``on``, and if need be ``within``, ``index`` and ``archive_period``, as for
        ``join``. Windows are of time.
    model : Model, optional
        Who stores and who probes, for all tasks: one that routes by tuples alone, as ``th.Biclique(units)``,
        ``th.Matrix`` and ``th.Split`` do. Left out, the biclique with equal sides that fills the partitions.
    **settings
        Those that ``thetastream.api.SETTINGS`` lists, for all tasks; ``order`` is refused.

    Returns
    -------
    JoinTasks
        A mapping of name to DataFrame, with ``together``, ``split(batch)`` and ``explain()``.

    Raises
    ------
    QueryError
        Named, before anything starts, with the task it is about: TASKS, TASKS_MODEL, COUNT_WINDOW, ORDER,
        and those of ``join``; ``InvalidQuery`` lists several at once.
    SessionError
        If the Spark session is set in a way the join cannot run with.

    Examples
    --------
    >>> import thetastream as th
    >>> pairs = th.join_many(
    ...     {"a": trades, "b": quotes},
    ...     tasks={
    ...         "near": {"on": "abs(a.price - b.bid) <= 0.05", "within": "10 seconds"},
    ...         "same": {"on": "a.symbol = b.symbol AND a.qty > b.qty", "within": "5 minutes"},
    ...     },
    ... )  # doctest: +SKIP
    >>> def save(batch, epoch):
    ...     for name, found in pairs.split(batch).items():
    ...         found.write.mode("append").parquet(f"out/{name}")
    >>> query = pairs.together.writeStream.foreachBatch(save).start()  # doctest: +SKIP
    """
    check_streams(streams)
    chosen, unknown = _settings(streams, settings)
    return plan_tasks(streams, tasks, model, chosen, unknown)


def _settings(
    streams: Mapping[str, DataFrame], given: Mapping[str, Any]
) -> tuple[dict[str, Any], list[ThetastreamError]]:
    """Every setting, as given or by the session's default, and what is given but is none."""
    spark = next(iter(streams.values())).sparkSession
    unknown: list[ThetastreamError] = [
        QueryError("UNKNOWN_SETTING", f"setting {name!r} is not one of {', '.join(SETTINGS)}")
        for name in given
        if name not in SETTINGS
    ]
    chosen = {
        name: given[name] if name in given else spark.conf.get(f"spark.thetastream.{name}", None)
        for name in SETTINGS
    }
    return chosen, unknown
