"""``th.statistics`` computes statistics of a running join from its counters and Spark's query progress.

rate = tuples / (latest - earliest event time)        bytes = MLV / tuples stored now
seconds of a candidate = those of the kernel + predicate time / candidates

The event times in the progress are those of one stream. This is sufficient, because the watermark stops
unless both streams move on.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Any

from thetastream.core.errors import QueryError
from thetastream.core.identity import CONDITION
from thetastream.index.base import CANDIDATE_S
from thetastream.lowering.statistics import Statistics
from thetastream.runtime.observe.epoch_lines import are_second_units, read_words
from thetastream.spark.observe.metrics import metrics, refuse_no_query
from thetastream.spark.observe.reports import read_reports

COUNTED = ("left", "right")


def statistics(query: Any, join: str | None = None) -> Statistics:
    """Measure the streams of a join, while its query runs or afterwards.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
        The query that ``writeStream...start()`` returned.
    join : str, optional
        The name of the join, as in the field ``join`` of ``th.metrics``. It is needed if the query has
        several joins. The joins of a pipeline are one join of all its streams, and need no name.

    Returns
    -------
    Statistics
        Figures of the epochs that Spark remembers. Pass them as ``th.plan(..., statistics=)`` for the same
        left and right streams. For three streams or more, they are the rates by alias, from which the join
        order follows.

    Raises
    ------
    QueryError
        NOTHING_MEASURED if no epoch has brought a tuple. SEVERAL_JOINS if ``join`` names no join of the
        query.

    Examples
    --------
    >>> import thetastream as th
    >>> print(th.plan(streams, on, within, statistics=th.statistics(query)).explain())  # doctest: +SKIP
    """
    refuse_no_query("th.statistics", query)
    epochs = select_joins(metrics(query))
    joins = list(dict.fromkeys(epoch["join"] for epoch in epochs))
    reports = list(read_reports(query))
    if join is None and len(joins) > 1 and are_one_pipeline(epochs):
        return measure_rates(epochs, reports)
    if join not in joins and (join is not None or len(joins) > 1):
        raise QueryError(
            "SEVERAL_JOINS",
            f"join ({join!r}) must be one of the query's: {', '.join(joins)}, as th.metrics names them",
        )
    mine = [epoch for epoch in epochs if join in (None, epoch["join"])]
    return measure_statistics(mine, reports)


def select_joins(epochs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Select the entries of joins, without those of second units, of lookups in tables and of upserts.

    If there are no others, all entries are returned.
    """
    joins = [one for one in epochs if CONDITION in read_words(one) and not are_second_units(one)]
    return joins or list(epochs)


def measure_statistics(
    epochs: Sequence[Mapping[str, Any]], progress: Sequence[Mapping[str, Any]]
) -> Statistics:
    """Compute the statistics of one join from its epochs.

    Parameters
    ----------
    epochs : sequence of mapping
        The epochs in ``th.metrics``, oldest first.
    progress : sequence of mapping
        The parsed JSON of ``StreamingQuery.recentProgress``. It has the same epochs and those without
        counters.

    Returns
    -------
    Statistics
        The statistics, with origin ``measured``. Bytes are given only if Spark remembers the first epoch.
        Otherwise earlier tuples would be missing from the count.

    Raises
    ------
    QueryError
        NOTHING_MEASURED if no epoch has brought a tuple.
    """
    n = [sum(epoch.get(name, 0) for epoch in epochs) for name in COUNTED]
    if any(n) and any(len(epoch.get("streams", ())) > 2 for epoch in epochs):
        return measure_rates(epochs, progress)
    if not any(n):
        raise QueryError(
            "NOTHING_MEASURED", "statistics need an epoch with tuples, and the query has had none yet"
        )
    clock = _measure_time(progress)
    is_whole = progress[0]["batchId"] == 0
    return Statistics(
        tuples_per_second=(n[0] / clock.span_s, n[1] / clock.span_s),
        bytes_per_tuple=_measure_bytes(epochs) if is_whole else None,
        watermark_delay_s=clock.delay_s,
        epoch_s=clock.epoch_s,
        candidates_per_tuple=sum(epoch["candidates"] for epoch in epochs) / sum(n),
        seconds_per_candidate=_measure_candidate_s(epochs),
        origin="measured",
    )


def measure_rates(epochs: Sequence[Mapping[str, Any]], progress: Sequence[Mapping[str, Any]]) -> Statistics:
    """Compute the rate of each stream of a join hop by hop, or of the joins of a pipeline.

    The arguments are those of ``measure_statistics``; ``epochs`` has the epochs of all joins.
    """
    streams: dict[str, int] = defaultdict(int)
    results: dict[str, int] = defaultdict(int)
    inner = {frozenset(parts) for epoch in epochs for parts in _list_parts(epoch).values()}
    for epoch in epochs:
        parts = _list_parts(epoch)
        for alias, stream in epoch["streams"].items():
            counted = streams if len(parts[alias]) == 1 else results
            counted[_name(parts[alias])] += stream["timely"]
        joined = [alias for behind in parts.values() for alias in behind]
        if len(epoch["streams"]) == 2 and len(joined) > 2 and frozenset(joined) not in inner:
            # No join receives the results of the last join. Its units count them, before Spark filters them.
            results[_name(joined)] += epoch["matched"]
    clock = _measure_time(progress)
    return Statistics(
        tuples_per_second={alias: n / clock.span_s for alias, n in streams.items()},
        watermark_delay_s=clock.delay_s,
        epoch_s=clock.epoch_s,
        candidates_per_tuple=_measure_candidates(epochs),
        seconds_per_candidate=_measure_candidate_s(epochs),
        results_per_second={name: n / clock.span_s for name, n in sorted(results.items())} or None,
        origin="measured",
    )


def _measure_candidates(epochs: Sequence[Mapping[str, Any]]) -> float | None:
    """Measure the candidates of all hops per arriving tuple of a join hop by hop.

    It is None for several joins. It is None too if nodes store copies, because then they compare copies, and
    how many they are depends on the number of nodes.
    """
    timely = sum(stream["timely"] for epoch in epochs for stream in epoch["streams"].values())
    stored, candidates = (sum(epoch.get(name, 0) for epoch in epochs) for name in ("stored", "candidates"))
    if len({epoch.get("join") for epoch in epochs}) > 1 or not timely or stored > timely:
        return None
    return float(candidates / timely)


def _measure_candidate_s(epochs: Sequence[Mapping[str, Any]]) -> float | None:
    """Measure the seconds to compare one candidate, as units took them.

    It is None if no predicate has run, so that the figure of the kernel holds, and for several joins, whose
    predicates differ.

    >>> epochs = [{"join": "j", "candidates": 1_000, "predicate_us": us} for us in (40_000, 60_000)]
    >>> round(_measure_candidate_s(epochs), 9), _measure_candidate_s([{**epochs[0], "predicate_us": 0}])
    (5.002e-05, None)
    """
    predicate_us, candidates = (
        sum(epoch.get(name, 0) for epoch in epochs) for name in ("predicate_us", "candidates")
    )
    if not predicate_us or not candidates or len({epoch["join"] for epoch in epochs}) > 1:
        return None
    return float(CANDIDATE_S + predicate_us / 1e6 / candidates)


def are_one_pipeline(epochs: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the joins of a query are the steps of one pipeline: all results but the last are inputs."""
    joins = {epoch["join"]: _list_parts(epoch) for epoch in epochs}
    results = {frozenset(alias for behind in parts.values() for alias in behind) for parts in joins.values()}
    inner = {frozenset(behind) for parts in joins.values() for behind in parts.values() if len(behind) > 1}
    return len(results) == len(joins) and len(results - inner) == 1


def _list_parts(epoch: Mapping[str, Any]) -> dict[str, list[str]]:
    """List the streams of the user behind each input of a join, by the alias of the input."""
    told = (epoch.get("plan") or {}).get("parts", {})
    return {alias: told.get(alias, [alias]) for alias in epoch["streams"]}


def _name(aliases: Iterable[str]) -> str:
    """Name results by the aliases of their streams, as ``th.Statistics`` does."""
    return ", ".join(aliases)


@dataclass
class _MeasuredTime:
    span_s: float
    delay_s: float | None = None
    epoch_s: float = 0.0


def _measure_time(progress: Sequence[Mapping[str, Any]]) -> _MeasuredTime:
    """Measure how event time moves. Without event times, use the wall clock."""
    latest: float | None = None
    earliest = float("inf")
    steps, delays = [], []
    for report in progress:
        times = report.get("eventTime") or {}
        watermark = _read_instant(times.get("watermark"))
        # The epochs before an epoch determine its watermark. A watermark of 0 means that there is none yet.
        if latest is not None and watermark:
            delays.append(max(0.0, latest - watermark))
        if times.get("max") is not None:
            newest = _read_instant(times["max"])
            earliest = min(earliest, _read_instant(times["min"]))
            if latest is not None:
                steps.append(max(0.0, newest - latest))
            latest = newest if latest is None else max(latest, newest)
    if latest is not None and latest > earliest:
        return _MeasuredTime(
            latest - earliest, median(delays) if delays else None, median(steps) if steps else 0.0
        )
    first, last = _read_instant(progress[0]["timestamp"]), _read_instant(progress[-1]["timestamp"])
    return _MeasuredTime(max(last - first + progress[-1].get("batchDuration", 0) / 1000, 1e-3))


def _read_instant(text: str | None) -> float:
    """Return the seconds since 1970 of an ISO instant, or 0 if there is none.

    >>> _read_instant("1970-01-01T00:00:01.500Z")
    1.5
    """
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else 0.0


@dataclass
class _UnitTotals:
    """State of a unit after its last report. Idle units send no report; their last report counts."""

    live: int = 0
    nbytes: int = 0
    stored: int = 0
    counted: list[int] = field(default_factory=lambda: [0, 0])


def _measure_bytes(epochs: Sequence[Mapping[str, Any]]) -> tuple[float, float] | None:
    """Return the MLV per stored tuple for each side, or the mean of both sides where units store both.

    The values are averages over epochs, because the share of index overhead and of half-expired periods
    varies from epoch to epoch.
    """
    units: dict[int, _UnitTotals] = {}
    live, nbytes = [0, 0, 0], [0, 0, 0]
    for epoch in epochs:
        for report in epoch["units"]:
            unit = units.setdefault(report["unit"], _UnitTotals())
            unit.live += report["stored"] - report["expired"]
            unit.nbytes = report["mlv_bytes"]
            unit.stored += report["stored"]
            unit.counted = [n + report.get(name, 0) for n, name in zip(unit.counted, COUNTED, strict=True)]
        for unit in units.values():
            # If a unit stored as many tuples as it counted of one side, it stores only that side.
            alone = [side for side in range(2) if unit.counted[side] == unit.stored > 0]
            for part in (*alone, 2):
                live[part] += unit.live
                nbytes[part] += unit.nbytes
    if not live[2]:
        return None
    left, right = (nbytes[part] / live[part] for part in (side if live[side] else 2 for side in range(2)))
    return left, right
