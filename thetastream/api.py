"""th.join: streams and a condition in, a DataFrame of pairs out.

{ (l, r) : l in LEFT, r in RIGHT, condition(l, r) is TRUE, event times inside the window }
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame

from thetastream.errors import QueryError, SessionError, ThetastreamError, raise_problems
from thetastream.frontend.condition import On, read_condition
from thetastream.frontend.streams import check_streams, duplicates, with_event_time
from thetastream.frontend.window import read_window
from thetastream.models.base import Model
from thetastream.models.biclique import Biclique
from thetastream.plan.explain import explain
from thetastream.plan.lower import Lowered, lower
from thetastream.plan.physical import PhysicalPlan
from thetastream.plan.query import Query, Stream
from thetastream.spark.carriers import carry
from thetastream.spark.catalyst import Catalyst
from thetastream.windows import Within

SETTINGS: dict[str, str] = {
    "index": "force an index shape: scan, sorted, hash, hash_sorted, grid",
    "archive_period": 'event time one subindex spans, as in "1 minute"; by default a tenth of the window',
    "event_time": "event-time column per alias, for batch DataFrames, which cannot carry a watermark",
    "cache_folder": "host-local folder for mapped segments; Spark's local directory by default",
}
"""Keyword arguments of join and plan; the session-wide default of each is ``spark.thetastream.<name>``."""

_MOST_DEFAULT_UNITS = 16


@dataclass(frozen=True)
class JoinPlan:
    """A join that is checked and planned, and has not started."""

    query: Query
    lowered: Lowered
    model: Model
    model_reason: str
    streams: tuple[DataFrame, DataFrame]
    cache_folder: str | None = None

    @property
    def physical(self) -> PhysicalPlan:
        """Key columns, dimensions, index shapes, residual."""
        return self.lowered.physical

    def explain(self) -> str:
        """Every stage as text: parsed, rewritten, shaped, physical, cost."""
        return explain(self.query, self.lowered, self.model, self.model_reason)

    def dataframe(self) -> DataFrame:
        """The joined DataFrame: one struct column per alias; streaming if the inputs are."""
        from thetastream.spark.dataflow import build

        return build(self.physical, self.model, self.streams, self.cache_folder)


def join(
    streams: Mapping[str, DataFrame],
    on: On,
    within: Within = None,
    model: Model | None = None,
    **settings: Any,
) -> DataFrame:
    """Join two streams on any condition.

    Parameters
    ----------
    streams : mapping of alias to DataFrame
        Two streams, or two batch DataFrames; the same one twice is fine. The first is the left one.
    on : str, Predicate, or a list of them
        A Spark SQL condition over the aliases, a ``@th.predicate`` function, or a conjunction of both.
        Column names that only one stream has need no alias.
    within : str, timedelta, mapping of alias to those, or None
        Time window: for the latest event time T of a pair, T - t_i <= W_i for each stream i, inclusive.
        None keeps the full history, unless ``on`` bounds event times.
    model : Model, optional
        Who stores and who probes; chosen when left out.
    **settings
        ``index``, ``archive_period``, ``event_time``, ``cache_folder``: see ``thetastream.api.SETTINGS``.

    Returns
    -------
    DataFrame
        One struct column per alias.

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
    model: Model | None = None,
    **settings: Any,
) -> JoinPlan:
    """Check and plan a join without starting it; parameters and errors are those of ``join``.

    Examples
    --------
    >>> import thetastream as th
    >>> print(th.plan({"a": a, "b": b}, on="a.x > b.y", within="1 minute").explain())  # doctest: +SKIP
    """
    # 1. Streams.
    check_streams(streams)
    frames = list(streams.values())
    spark = frames[0].sparkSession
    problems: list[ThetastreamError] = []
    chosen = _settings(spark, settings, problems)
    schemas = {alias: frame.schema for alias, frame in streams.items()}
    is_case_sensitive = (spark.conf.get("spark.sql.caseSensitive") or "").lower() == "true"
    for alias, schema in schemas.items():
        problems += duplicates(alias, schema, is_case_sensitive)
    if any(problem.condition == "DUPLICATE_COLUMN" for problem in problems):
        raise_problems(problems)
    catalyst = Catalyst(spark, schemas)
    inputs: list[Stream] = []
    for alias, frame in streams.items():
        taken = sum(len(stream.carried) for stream in inputs)
        carried, unsupported = carry(alias, schemas[alias], taken)
        problems += unsupported
        types = tuple((field.name, field.dataType.simpleString()) for field in schemas[alias].fields)
        stream = Stream(alias, types, carried, is_streaming=frame.isStreaming)
        inputs.append(
            with_event_time(stream, schemas[alias], chosen["event_time"], within, catalyst, problems)
        )
    # 2. Condition.
    texts, phrases, predicates = read_condition(on, catalyst, inputs, problems)
    # 3. Window and settings.
    within_us = read_window(within, inputs, catalyst, problems)
    chosen["archive_period_us"] = None
    if chosen["archive_period"] is not None:
        try:
            chosen["archive_period_us"] = catalyst.duration(chosen["archive_period"], "archive_period")
        except QueryError as problem:
            problems.append(problem)
    # 4. Model and session.
    model, model_reason = (model, "as asked for") if model is not None else _default_model(spark)
    if inputs[0].is_streaming:
        problems += _session_problems(spark, model)
    raise_problems(problems)
    # 5. Strategy.
    query = Query((inputs[0], inputs[1]), tuple(texts), tuple(phrases), tuple(predicates), within_us)
    lowered = lower(query, catalyst, chosen)
    return JoinPlan(query, lowered, model, model_reason, (frames[0], frames[1]), chosen["cache_folder"])


def _settings(spark: Any, given: Mapping[str, Any], problems: list[ThetastreamError]) -> dict[str, Any]:
    for name in given:
        if name not in SETTINGS:
            problems.append(
                QueryError("UNKNOWN_SETTING", f"setting {name!r} is not one of {', '.join(SETTINGS)}")
            )
    return {
        name: given[name] if name in given else spark.conf.get(f"spark.thetastream.{name}", None)
        for name in SETTINGS
    }


def _default_model(spark: Any) -> tuple[Model, str]:
    partitions = int(spark.conf.get("spark.sql.shuffle.partitions") or "2")
    per_side = max(1, min(partitions // 2, _MOST_DEFAULT_UNITS))
    return Biclique(units=per_side), f"chosen: any condition, {partitions} shuffle partitions"


def _session_problems(spark: Any, model: Model) -> Sequence[SessionError]:
    from thetastream.spark.session import check_session

    return check_session(spark, model.n_units)
