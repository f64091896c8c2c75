"""th.join: streams and a condition in, a DataFrame of pairs out.

{ (l, r) : l in LEFT, r in RIGHT, condition(l, r) is TRUE, event times inside the window }
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from thetastream.errors import QueryError, SessionError, ThetastreamError, raise_problems
from thetastream.models.base import Model
from thetastream.models.biclique import Biclique
from thetastream.plan.explain import explain
from thetastream.plan.lower import Lowered, lower
from thetastream.plan.physical import PhysicalPlan
from thetastream.plan.query import Query, Stream, window_problems
from thetastream.predicate import Phrase, Predicate, conjuncts, parse
from thetastream.predicate.names import qualify, refuse
from thetastream.spark.carriers import carry
from thetastream.spark.catalyst import Catalyst
from thetastream.windows import Rows, Within

On: TypeAlias = str | Predicate | Sequence[str | Predicate]

SETTINGS: dict[str, str] = {
    "index": "force an index shape: scan, sorted, hash, hash_sorted, grid",
    "archive_period": 'event time one subindex spans, as in "1 minute"; by default a tenth of the window',
    "event_time": "event-time column per alias, for batch DataFrames, which cannot carry a watermark",
    "cache_folder": "host-local folder for mapped segments; Spark's local directory by default",
}
"""Keyword arguments of join and plan; the session-wide default of each is ``spark.thetastream.<name>``."""

MARK = "spark.watermarkDelayMs"
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
    _check_streams(streams)
    frames = list(streams.values())
    spark = frames[0].sparkSession
    problems: list[ThetastreamError] = []
    chosen = _settings(spark, settings, problems)
    schemas = {alias: frame.schema for alias, frame in streams.items()}
    for alias, schema in schemas.items():
        problems += _duplicates(alias, schema, spark.conf.get("spark.sql.caseSensitive") == "true")
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
            _with_event_time(stream, schemas[alias], chosen["event_time"], within, catalyst, problems)
        )
    # 2. Condition.
    texts, phrases, predicates = _condition(on, catalyst, inputs, problems)
    # 3. Window and settings.
    within_us = _within(within, inputs, catalyst, problems)
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


# Streams


def _check_streams(streams: Mapping[str, DataFrame]) -> None:
    if not isinstance(streams, Mapping) or not streams:
        raise QueryError(
            "STREAMS", f'streams must map aliases to DataFrames, {{"a": df1, "b": df2}}, not {streams!r}'
        )
    problems: list[ThetastreamError] = []
    if len(streams) != 2:
        problems.append(
            QueryError(
                "STREAM_COUNT",
                f"a join takes two streams for now, not {len(streams)} ({', '.join(map(str, streams))}); "
                "join two, then join the result with the next",
            )
        )
    for alias, frame in streams.items():
        if not isinstance(alias, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", alias):
            problems.append(
                QueryError("INVALID_ALIAS", f"an alias must be a plain identifier, not {alias!r}")
            )
        if not hasattr(frame, "sparkSession") or not hasattr(frame, "isStreaming"):
            problems.append(
                QueryError(
                    "STREAMS", f"stream {alias!r} must be a Spark DataFrame, not {type(frame).__name__}"
                )
            )
    raise_problems(problems)
    if len({alias.casefold() for alias in streams}) < len(streams):
        raise QueryError("DUPLICATE_ALIAS", f"aliases ignore case, so {' and '.join(streams)} are one")
    kinds = {alias: "streaming" if frame.isStreaming else "batch" for alias, frame in streams.items()}
    if len(set(kinds.values())) > 1:
        listed = ", ".join(f"{alias} is {kind}" for alias, kind in kinds.items())
        raise QueryError(
            "MIXED_INPUTS",
            f"all inputs must be streaming or all batch, but {listed}; "
            "join a stream with a table by Spark's own join, or read the table as a stream",
        )


def _duplicates(alias: str, schema: StructType, is_case_sensitive: bool) -> list[QueryError]:
    seen: dict[str, str] = {}
    problems = []
    for name in schema.names:
        folded = name if is_case_sensitive else name.casefold()
        if folded in seen:
            problems.append(
                QueryError(
                    "DUPLICATE_COLUMN",
                    f"stream {alias!r} has the column {name!r} twice: the name is ambiguous; rename one",
                )
            )
        seen[folded] = name
    return problems


def _with_event_time(
    stream: Stream,
    schema: StructType,
    asked: str | Mapping[str, str] | None,
    within: Within,
    catalyst: Catalyst,
    problems: list[ThetastreamError],
) -> Stream:
    """The stream with its event-time column, if it has one that can be known."""
    marked = [field.name for field in schema.fields if MARK in (field.metadata or {})]
    column, origin = (marked[0], "watermark") if marked else (None, "watermark")
    if len(marked) > 1:
        problems.append(
            QueryError(
                "AMBIGUOUS_EVENT_TIME",
                f"stream {stream.alias!r} has a watermark on {' and '.join(marked)}; drop one",
            )
        )
    wanted = asked.get(stream.alias) if isinstance(asked, Mapping) else asked
    if wanted is not None and not (stream.is_streaming and marked):
        column, origin = stream.find(wanted, catalyst.is_case_sensitive), "event_time="
        if column is None or stream.is_streaming:
            problems.append(_bad_event_time(stream, wanted, column))
    elif wanted is not None and stream.find(wanted, catalyst.is_case_sensitive) != column:
        problems.append(_bad_event_time(stream, wanted, column))
    if column is None and not stream.is_streaming and within is not None:
        # Spark takes the mark of withWatermark off a batch DataFrame; one timestamp column says as much.
        stamps = [name for name, type_ in stream.types if type_ in ("timestamp", "timestamp_ntz")]
        if len(stamps) == 1:
            column, origin = stamps[0], "only timestamp"
    return Stream(stream.alias, stream.types, stream.carried, column, stream.is_streaming, origin)


def _bad_event_time(stream: Stream, wanted: str, column: str | None) -> QueryError:
    if not stream.is_streaming:
        return QueryError(
            "UNKNOWN_COLUMN",
            f"event_time names {wanted!r}, but stream {stream.alias!r} has the columns "
            + ", ".join(name for name, _ in stream.types),
        )
    return QueryError(
        "EVENT_TIME",
        f"event_time names {wanted!r}, but the event time of a stream is the column of its watermark "
        f'({column or "it has none"}); call .withWatermark("{wanted}", "delay") on {stream.alias}',
    )


# Condition


def _condition(
    on: On, catalyst: Catalyst, streams: Sequence[Stream], problems: list[ThetastreamError]
) -> tuple[list[str], list[Phrase], list[Predicate]]:
    items: Sequence[str | Predicate] = [on] if isinstance(on, str | Predicate) else on
    texts: list[str] = []
    phrases: list[Phrase] = []
    predicates: list[Predicate] = []
    if not isinstance(items, Sequence) or not items:
        problems.append(_bad_condition(on))
        return texts, phrases, predicates
    for item in items:
        if isinstance(item, Predicate):
            problems += _predicate_problems(item, streams)
            predicates.append(item)
        elif isinstance(item, str):
            texts.append(item)
            try:
                found, refused = _sql(item, catalyst, streams)
            except QueryError as problem:
                problems.append(problem)
                continue
            problems += refused
            phrases += found
        else:
            problems.append(_bad_condition(item))
    return texts, phrases, predicates


def _sql(text: str, catalyst: Catalyst, streams: Sequence[Stream]) -> tuple[list[Phrase], list[QueryError]]:
    """Conjuncts of one SQL text, or what is wrong with it."""
    phrase = parse(text)
    refused = list(refuse(phrase))
    if refused:
        return [], refused
    if not catalyst.is_resolved(phrase):
        columns = {stream.alias: [name for name, _ in stream.types] for stream in streams}
        phrase = qualify(phrase, columns, str if catalyst.is_case_sensitive else str.casefold)
    found = conjuncts(phrase)
    return found, catalyst.problems(phrase, found)


def _bad_condition(item: object) -> QueryError:
    return QueryError(
        "CONDITION",
        "on must be a SQL condition, a @th.predicate function, or a list of them, "
        f"not {item!r}" + ("; mark the function with @th.predicate" if callable(item) else ""),
    )


def _predicate_problems(predicate: Predicate, streams: Sequence[Stream]) -> list[QueryError]:
    aliases = {stream.alias.casefold(): stream.alias for stream in streams}
    named = [alias for alias, _ in predicate.columns]
    listed = ", ".join(aliases.values())
    problems = [
        QueryError(
            "UNKNOWN_ALIAS", f"predicate {predicate.name} names {alias!r}, which is not one of {listed}"
        )
        for alias in named
        if alias.casefold() not in aliases
    ]
    missing = [
        alias for folded, alias in aliases.items() if folded not in {name.casefold() for name in named}
    ]
    if missing and not problems:
        problems.append(
            QueryError(
                "PREDICATE_COLUMNS",
                f"predicate {predicate.name} names no column of {', '.join(missing)}; "
                "a predicate over one stream is a filter: put it before the join",
            )
        )
    return problems


# Window, settings, model


def _within(
    within: Within, streams: Sequence[Stream], catalyst: Catalyst, problems: list[ThetastreamError]
) -> tuple[int, int] | None:
    if within is None:
        return None
    if isinstance(within, Rows):
        problems.append(
            QueryError(
                "COUNT_WINDOW_NEEDS_SPLIT",
                f"a count window ({within}) needs one order of arrival, which the biclique does not keep; "
                "use a time window",
            )
        )
        return None
    durations: dict[str, Any]
    if isinstance(within, Mapping):
        given = {str(alias).casefold(): duration for alias, duration in within.items()}
        aliases = {stream.alias.casefold() for stream in streams}
        listed = ", ".join(stream.alias for stream in streams)
        problems += [
            QueryError("UNKNOWN_ALIAS", f"within names {alias!r}, which is not one of the streams {listed}")
            for alias in within
            if str(alias).casefold() not in aliases
        ]
        problems += [
            QueryError(
                "WINDOW_MISSING", f"within gives no window for {alias!r}; name every stream of {listed}"
            )
            for alias in (stream.alias for stream in streams)
            if alias.casefold() not in given
        ]
        durations = {s.alias: given[s.alias.casefold()] for s in streams if s.alias.casefold() in given}
    else:
        durations = {stream.alias: within for stream in streams}
    problems += window_problems(streams)
    spans = []
    for alias, duration in durations.items():
        what = f"within of {alias!r}" if isinstance(within, Mapping) else "within"
        try:
            spans.append(catalyst.duration(duration, what))
        except QueryError as problem:
            if str(problem) not in map(str, problems):
                problems.append(problem)
    return (spans[0], spans[1]) if len(spans) == 2 else None


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
