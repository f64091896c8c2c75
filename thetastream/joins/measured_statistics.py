"""``th.statistics`` computes statistics of a running join from its counters and Spark's query progress.

rate = tuples / (latest - earliest event time)        bytes = MLV / tuples stored now
seconds of a candidate = those of the kernel + predicate time / candidates

The event times in the progress are those of one stream. This is sufficient, because the watermark stops
unless both streams move on.
"""

from array import array
from collections import Counter
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
from thetastream.spark.observe.metrics import list_epochs, refuse_no_query
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
    meter = Meter()
    meter.look(query)
    return meter.measure(join)


class Meter:
    """Sums of the counters of a query, from which statistics follow.

    It takes the epochs one after the other and keeps two numbers of each, so a run may be long.
    """

    def __init__(self) -> None:
        self._joins: dict[str, _JoinSums] = {}
        self._clock = _Clock()

    def look(self, query: Any) -> None:
        """Add the epochs of a query that Spark remembers and that were not added before."""
        for report in read_reports(query):
            if report["timestamp"] > self._clock.last:
                self.add(list_epochs(report), report)

    def add(self, epochs: Iterable[Mapping[str, Any]], report: Mapping[str, Any]) -> None:
        """Add one progress report, and the entries of ``th.metrics`` that belong to it."""
        self._clock.add(report)
        for epoch in epochs:
            self.add_epoch(epoch)

    def add_epoch(self, epoch: Mapping[str, Any]) -> None:
        """Add an entry of ``th.metrics``."""
        self._joins.setdefault(epoch["join"], _JoinSums()).add(epoch)

    @property
    def joins(self) -> "Mapping[str, _JoinSums]":
        """The joins of streams, without second units, lookups in tables and upserts; all if none is one."""
        return {name: sums for name, sums in self._joins.items() if sums.is_join} or self._joins

    def measure(self, join: str | None = None) -> Statistics:
        """Compute the statistics; ``join`` is that of ``th.statistics``, and so are the errors."""
        joins = self.joins
        if join is None and len(joins) > 1 and are_one_pipeline(list(joins.values())):
            return self.measure_rates(list(joins.values()))
        if join not in joins and (join is not None or len(joins) > 1):
            raise QueryError(
                "SEVERAL_JOINS",
                f"join ({join!r}) must be one of the query's: {', '.join(joins)}, as th.metrics names them",
            )
        mine = [sums for name, sums in joins.items() if join in (None, name)]
        return self._measure_join(mine[0] if mine else _JoinSums())

    def _measure_join(self, sums: "_JoinSums") -> Statistics:
        if sum(sums.counted) and len(sums.parts) > 2:
            return self.measure_rates([sums])
        if not sum(sums.counted):
            raise QueryError(
                "NOTHING_MEASURED", "statistics need an epoch with tuples, and the query has had none yet"
            )
        clock = self._clock.measure()
        left, right = sums.counted
        return Statistics(
            tuples_per_second=(left / clock.span_s, right / clock.span_s),
            # Without the first epoch, earlier tuples would be missing from the count.
            bytes_per_tuple=sums.measure_bytes() if self._clock.is_whole else None,
            watermark_delay_s=clock.delay_s,
            epoch_s=clock.epoch_s,
            candidates_per_tuple=sums.candidates / sum(sums.counted),
            seconds_per_candidate=sums.measure_candidate_s(),
            origin="measured",
        )

    def measure_rates(self, joins: "Sequence[_JoinSums]") -> Statistics:
        """Compute the rate of each stream of a join hop by hop, or of the joins of a pipeline."""
        streams, results = Counter[str](), Counter[str]()
        inner = {frozenset(behind) for sums in joins for behind in sums.parts.values()}
        for sums in joins:
            for alias, n in sums.timely.items():
                behind = sums.parts[alias]
                (streams if len(behind) == 1 else results)[_name(behind)] += n
            if len(sums.parts) == 2 and len(sums.joined) > 2 and frozenset(sums.joined) not in inner:
                # No join receives the results of the last join. Its units count them, before Spark filters
                # them.
                results[_name(sums.joined)] += sums.matched
        clock, is_one = self._clock.measure(), len(joins) == 1
        return Statistics(
            tuples_per_second={alias: n / clock.span_s for alias, n in streams.items()},
            watermark_delay_s=clock.delay_s,
            epoch_s=clock.epoch_s,
            candidates_per_tuple=joins[0].measure_candidates() if is_one else None,
            seconds_per_candidate=joins[0].measure_candidate_s() if is_one else None,
            results_per_second={name: n / clock.span_s for name, n in sorted(results.items())} or None,
            origin="measured",
        )


def measure_statistics(
    epochs: Iterable[Mapping[str, Any]], progress: Sequence[Mapping[str, Any]]
) -> Statistics:
    """Compute the statistics of a query from its entries of ``th.metrics`` and its progress reports."""
    return read_meter(epochs, progress).measure()


def read_meter(epochs: Iterable[Mapping[str, Any]], progress: Sequence[Mapping[str, Any]]) -> Meter:
    """Sum the entries and the progress reports of a query, each oldest first."""
    meter = Meter()
    for report in progress:
        meter.add((), report)
    for epoch in epochs:
        meter.add_epoch(epoch)
    return meter


def are_one_pipeline(joins: "Sequence[_JoinSums]") -> bool:
    """Whether the joins of a query are the steps of one pipeline: all results but the last are inputs."""
    results = {frozenset(sums.joined) for sums in joins}
    inner = {frozenset(behind) for sums in joins for behind in sums.parts.values() if len(behind) > 1}
    return len(results) == len(joins) and len(results - inner) == 1


@dataclass
class _JoinSums:
    """The counters of one join, summed over epochs."""

    is_join: bool = False
    """Whether it joins streams. Second units, lookups in tables and upserts do not."""
    parts: dict[str, list[str]] = field(default_factory=dict)
    """The streams of the user behind each input of the join, by the alias of the input."""
    timely: Counter[str] = field(default_factory=Counter)
    counted: list[int] = field(default_factory=lambda: [0, 0])
    """Tuples of the first and of the second stream."""
    stored: int = 0
    candidates: int = 0
    matched: int = 0
    predicate_us: int = 0
    units: dict[int, "_UnitTotals"] = field(default_factory=dict)
    live: list[int] = field(default_factory=lambda: [0, 0, 0])
    nbytes: list[int] = field(default_factory=lambda: [0, 0, 0])
    """Stored tuples, and their bytes, summed over epochs: of units that store left tuples only, right tuples
    only, and of all units."""

    @property
    def joined(self) -> list[str]:
        """The streams of the user whose tuples are joined."""
        return [alias for behind in self.parts.values() for alias in behind]

    def add(self, epoch: Mapping[str, Any]) -> None:
        """Add the counters of an epoch, as ``th.metrics`` describes them."""
        self.is_join = self.is_join or (CONDITION in read_words(epoch) and not are_second_units(epoch))
        told = (epoch.get("plan") or {}).get("parts", {})
        for alias, stream in epoch.get("streams", {}).items():
            self.parts[alias] = told.get(alias, [alias])
            self.timely[alias] += stream.get("timely", 0)
        self.counted = [n + epoch.get(name, 0) for n, name in zip(self.counted, COUNTED, strict=True)]
        self.stored += epoch.get("stored", 0)
        self.candidates += epoch.get("candidates", 0)
        self.matched += epoch.get("matched", 0)
        self.predicate_us += epoch.get("predicate_us", 0)
        for report in epoch.get("units", ()):
            self.units.setdefault(report["unit"], _UnitTotals()).add(report)
        for unit in self.units.values():
            for part in (*unit.list_sides_alone(), 2):
                self.live[part] += unit.live
                self.nbytes[part] += unit.nbytes

    def measure_candidates(self) -> float | None:
        """Measure the candidates of all hops per arriving tuple of a join hop by hop.

        It is None if nodes store copies, because then they compare copies, and how many they are depends on
        the number of nodes.
        """
        timely = self.timely.total()
        return self.candidates / timely if timely and self.stored <= timely else None

    def measure_candidate_s(self) -> float | None:
        """Measure the seconds to compare one candidate, as units took them.

        It is None if no predicate has run, so that the figure of the kernel holds.

        >>> known = _JoinSums(candidates=2_000, predicate_us=100_000)
        >>> round(known.measure_candidate_s(), 9), _JoinSums(candidates=2_000).measure_candidate_s()
        (5.002e-05, None)
        """
        if not self.predicate_us or not self.candidates:
            return None
        return float(CANDIDATE_S + self.predicate_us / 1e6 / self.candidates)

    def measure_bytes(self) -> tuple[float, float] | None:
        """Return the MLV per stored tuple for each side, or the mean of both where units store both.

        The values are averages over epochs, because the share of index overhead and of half-expired periods
        varies from epoch to epoch.
        """
        if not self.live[2]:
            return None
        left, right = (
            self.nbytes[part] / self.live[part]
            for part in (side if self.live[side] else 2 for side in range(2))
        )
        return left, right


@dataclass
class _UnitTotals:
    """State of a unit after its last report. Idle units send no report; their last report counts."""

    live: int = 0
    nbytes: int = 0
    stored: int = 0
    counted: list[int] = field(default_factory=lambda: [0, 0])

    def add(self, report: Mapping[str, Any]) -> None:
        """Add the counters of the unit in an epoch."""
        self.live += report.get("stored", 0) - report.get("expired", 0)
        self.nbytes = report.get("mlv_bytes", 0)
        self.stored += report.get("stored", 0)
        self.counted = [n + report.get(name, 0) for n, name in zip(self.counted, COUNTED, strict=True)]

    def list_sides_alone(self) -> list[int]:
        """List the side that the unit stores alone: it stored as many tuples as it counted of this side."""
        return [side for side in range(2) if self.counted[side] == self.stored > 0]


def _name(aliases: Iterable[str]) -> str:
    """Name results by the aliases of their streams, as ``th.Statistics`` does."""
    return ", ".join(aliases)


@dataclass(frozen=True)
class _MeasuredTime:
    span_s: float
    delay_s: float | None = None
    epoch_s: float = 0.0


@dataclass
class _Clock:
    """How event time moves, from one progress report after the other."""

    last: str = ""
    """The beginning of the last report, as an ISO instant."""
    is_whole: bool = False
    """Whether the first report is that of the first epoch of the query."""
    latest: float | None = None
    earliest: float = float("inf")
    steps: "array[float]" = field(default_factory=lambda: array("d"))
    delays: "array[float]" = field(default_factory=lambda: array("d"))
    began_s: float = 0.0
    ended_s: float = 0.0

    def add(self, report: Mapping[str, Any]) -> None:
        """Add a report."""
        began_s = _read_instant(report["timestamp"])
        if not self.last:
            self.began_s, self.is_whole = began_s, report["batchId"] == 0
        self.last = report["timestamp"]
        self.ended_s = began_s + report.get("batchDuration", 0) / 1000
        times = report.get("eventTime") or {}
        watermark = _read_instant(times.get("watermark"))
        # The epochs before an epoch determine its watermark. A watermark of 0 means that there is none yet.
        if self.latest is not None and watermark:
            self.delays.append(max(0.0, self.latest - watermark))
        if times.get("max") is not None:
            newest = _read_instant(times["max"])
            self.earliest = min(self.earliest, _read_instant(times["min"]))
            if self.latest is not None:
                self.steps.append(max(0.0, newest - self.latest))
            self.latest = newest if self.latest is None else max(self.latest, newest)

    def measure(self) -> _MeasuredTime:
        """Measure the time. Without event times, it is that of the wall clock."""
        if self.latest is not None and self.latest > self.earliest:
            return _MeasuredTime(
                self.latest - self.earliest,
                median(self.delays) if self.delays else None,
                median(self.steps) if self.steps else 0.0,
            )
        return _MeasuredTime(max(self.ended_s - self.began_s, 1e-3))


def _read_instant(text: str | None) -> float:
    """Return the seconds since 1970 of an ISO instant, or 0 if there is none.

    >>> _read_instant("1970-01-01T00:00:01.500Z")
    1.5
    """
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() if text else 0.0
