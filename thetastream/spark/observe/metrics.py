"""Reports counters in Spark's query progress, and reads them there.

In every epoch, each unit adds one row of counters to the operator's output. ``observe`` collects these rows
into the query progress and then drops them from the results.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from thetastream.core.arguments import describe_given
from thetastream.core.errors import QueryError
from thetastream.core.html import render_rows
from thetastream.core.identity import CONDITION, KIND, TASKS, Identity
from thetastream.engine.counters import Counters
from thetastream.lowering.identity import MODEL, WINDOW
from thetastream.runtime.control.newest_offset import read_offsets
from thetastream.runtime.control.plan import encode_model
from thetastream.runtime.emit import COUNTERS
from thetastream.runtime.flow import Flow
from thetastream.runtime.observe.epoch_lines import count_tuples, name_matched
from thetastream.runtime.observe.exposition import PREFIX
from thetastream.spark.observe.reports import read_reports, sum_backlog

_DROPPING = ("dedupe", "stateStoreSave", "symmetricHashJoin", "flatMapGroups", "sessionWindow")
"""Beginnings of Spark's names of the stateful operators that drop late rows."""


def describe_plan(flow: Flow, query: Identity) -> dict[str, Any]:
    """Describe a join by plain values: its model, what the user wrote, and the streams behind its inputs."""
    names = (TASKS, *_list_task_parts(query), CONDITION, KIND, WINDOW, MODEL)
    words = {name: query[name].words for name in names if name in query}
    parts = {alias: list(aliases) for alias, aliases in flow.parts.items()}
    model = encode_model(flow.stages[0].spec.router.model)
    return {"model": model, "words": words, **({"parts": parts} if parts else {})}


def _list_task_parts(query: Identity) -> list[str]:
    """List the names of the conditions and windows of the tasks of ``th.join_many``, task by task.

    >>> from thetastream.core.identity import Part
    >>> names = ("the set of tasks", "the window of task 'x'", "the condition of task 'x'")
    >>> _list_task_parts({name: Part("", "") for name in names})
    ["the condition of task 'x'", "the window of task 'x'"]
    """
    tasks = [name.removeprefix(CONDITION) for name in query if name.startswith(f"{CONDITION} of task ")]
    return [f"{part}{task}" for task in tasks for part in (CONDITION, WINDOW)]


def observe(results: DataFrame, join: str, plan: Mapping[str, Any]) -> DataFrame:
    """Report the rows of counters as the observed metric ``thetastream_<join>_<number>``, and drop them.

    ``join`` is the digest of the joined query. A random number follows it, because the names of observed
    metrics must be unique in a Spark query. ``plan`` describes the join by plain values. It is reported with
    the counters, so that a reader knows which join they describe.
    """
    units = F.expr(f"collect_list({COUNTERS}) AS units")
    # Spark evaluates a literal once for an epoch, and an aggregate for each row.
    text = F.expr(f"CAST(X'{json.dumps(plan).encode().hex()}' AS STRING) AS plan")
    observed = results.observe(f"{PREFIX}_{join}_{uuid.uuid4().hex}", units, text)
    return observed.where(f"{COUNTERS} IS NULL")


class EpochList(list[dict[str, Any]]):
    """The counters of epochs, which notebooks show as a table."""

    def _repr_html_(self) -> str:
        # Words and numbers are those of the page of running queries. Joins of one query may differ in kind.
        names = list(dict.fromkeys(map(name_matched, self)))
        rows = [
            (
                one["epoch"],
                one["join"],
                count_tuples(one),
                *(one["matched"] if name == name_matched(one) else "" for name in names),
                one["late"],
                one["shed"],
                f"{one['durations_ms'].get('triggerExecution', 0) / 1000:.2f}",
            )
            for one in self
        ]
        return render_rows(("epoch", "join", "tuples", *names, "late", "shed", "seconds"), rows)


def metrics(query: Any) -> list[dict[str, Any]]:
    """Read the counters of a running or finished query, epoch by epoch.

    Parameters
    ----------
    query : pyspark.sql.streaming.StreamingQuery
        The query that ``writeStream...start()`` returned.

    Returns
    -------
    list of dict
        One entry for each epoch and join that Spark still remembers
        (``spark.sql.streaming.numRecentProgressUpdates``), oldest first. ``epoch`` and ``join`` say which
        they are. Counters are sums over units, and ``units`` has them unit by unit. The page about metrics in
        the reference explains every counter.

    Raises
    ------
    QueryError
        BAD_VALUE if this is no query.
    """
    refuse_no_query("th.metrics", query)
    entries = EpochList(entry for report in read_reports(query) for entry in list_epochs(report))
    _add_watermarks(entries)
    return entries


def refuse_no_query(function: str, query: Any) -> None:
    """Raise if the argument of ``function`` is not a query but, for example, its DataFrame.

    Raises
    ------
    QueryError
        BAD_VALUE.
    """
    if not hasattr(query, "recentProgress"):
        what = f"{function} needs a query, which writeStream...start() or th.write returns"
        raise QueryError("BAD_VALUE", f"{what}, not {describe_given(query)}")


def _add_watermarks(entries: Sequence[dict[str, Any]]) -> None:
    """Add the watermark of each stream alone: its latest event time so far, minus its delay."""
    newest: dict[tuple[str, str], int] = {}
    for entry in entries:
        for alias, stream in entry["streams"].items():
            key = entry["join"], alias
            delay_us = stream.pop("delay_us")
            # The tuples of an epoch move the watermark of the next epoch.
            known = newest.get(key)
            stream["watermark_us"] = None if known is None or delay_us is None else known - delay_us
            if stream["newest_us"] is not None:
                newest[key] = stream["newest_us"] if known is None else max(known, stream["newest_us"])


def list_epochs(report: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the counters of each join in one progress report, as ``metrics`` describes them."""
    for name, row in (report.get("observedMetrics") or {}).items():
        if not name.startswith(f"{PREFIX}_"):
            continue
        join = name.split("_")[1]
        values = row if isinstance(row, dict) else row.asDict()
        # Spark Connect hands out the row as {"values": [units], "schema": ...}.
        listed = [values["units"], values.get("plan")] if "units" in values else values["values"]
        texts, plan = listed[0] or [], listed[1]
        # Each action on a batch of foreachBatch runs the epoch again, and PySpark 4.2 reports all these runs.
        by_unit = {unit["unit"]: unit for unit in map(json.loads, texts)}
        units = [by_unit[number] for number in sorted(by_unit)]
        total, tasks = _sum_units(units), _sum_tasks(units)
        tables = _find_tables(units)
        began = report.get("timestamp")
        streams = _sum_streams(units, began)
        yield {
            "epoch": report["batchId"],
            "join": join,
            "run": str(report["runId"]) if "runId" in report else None,
            "began": began,
            "watermark": (report.get("eventTime") or {}).get("watermark"),
            "durations_ms": dict(report.get("durationMs") or {}),
            **total,
            "streams": streams,
            "backlog": sum_backlog(report),
            "late_elsewhere": _find_late_elsewhere(report),
            "newest": (report.get("eventTime") or {}).get("max"),
            "kept": compute_kept(streams.values()),
            "rho": compute_efficiency(total),
            "order": units[0].get("order", {}) if units else {},  # With a mailbox, all nodes decide alike.
            **({"tasks": tasks} if tasks else {}),
            **({"tables": tables} if tables else {}),
            "plan": json.loads(plan) if texts and plan else None,
            "control": _find_control(report, join),
            "units": [{**unit, "rho": compute_efficiency(unit)} for unit in units],
        }


def _find_late_elsewhere(report: Mapping[str, Any]) -> dict[str, int]:
    """Find how many late rows Spark's own stateful operators in the query dropped, by Spark's name of each.

    >>> _find_late_elsewhere({"stateOperators": [{"operatorName": "dedupe", "numRowsDroppedByWatermark": 2}]})
    {'dedupe': 2}
    """
    found: dict[str, int] = {}
    for operator in report.get("stateOperators") or ():
        name, n = str(operator.get("operatorName")), int(operator.get("numRowsDroppedByWatermark") or 0)
        if n and name.startswith(_DROPPING):
            found[name] = found.get(name, 0) + n
    return found


def _find_control(report: Mapping[str, Any], join: str) -> dict[str, Any] | None:
    """Find the control plan of a join, and what became of its last requests; None if it has none."""
    for offset in read_offsets(report):
        control = offset.get("control")
        if isinstance(control, dict) and control["join"] == join:
            return {**control["plan"], "outcomes": control["outcomes"]}
    return None


def _sum_units(units: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Sum every counter that is a number over all units."""
    zeros = {name: n for name, n in asdict(Counters()).items() if isinstance(n, int)}
    counters = dict.fromkeys((*zeros, *(name for unit in units for name in unit)))
    return {
        name: sum(unit[name] for unit in units)
        for name in counters
        if name != "unit" and all(isinstance(unit.get(name), int) for unit in units)
    }


def _sum_streams(units: Sequence[Mapping[str, Any]], began: str | None) -> dict[str, dict[str, Any]]:
    """Sum the timely and late tuples of each stream over all units, and find its latest event time."""
    found: dict[str, dict[str, Any]] = {}
    for unit in units:
        for alias, brought in unit.get("streams", {}).items():
            mine = found.setdefault(
                alias,
                {"timely": 0, "late": 0, "shed": 0, "shed_probes": 0, "newest_us": None, "delay_us": None},
            )
            for counter in ("timely", "late", "shed", "shed_probes"):
                mine[counter] += brought.get(counter, 0)
            for time in ("newest_us", "delay_us"):
                known = [each for each in (mine[time], brought.get(time)) if each is not None]
                mine[time] = max(known, default=None)
    for stream in found.values():
        stream["lag_s"] = _measure_lag_s(began, stream["newest_us"])
    return found


def _measure_lag_s(began: str | None, newest_us: int | None) -> float | None:
    """Compute how far an event time was behind the clock when the epoch began.

    >>> _measure_lag_s("1970-01-01T00:00:10.500Z", 8_000_000)
    2.5
    """
    if began is None or newest_us is None:
        return None
    return round(datetime.fromisoformat(began).timestamp() - newest_us / 1e6, 3)


def compute_kept(streams: Iterable[Mapping[str, Any]]) -> float:
    """Estimate the share of combinations that a shedder keeps, from the tuples of an epoch.

    A combination is kept if no stream has lost its tuple, and if its last tuple looks for partners. The
    tuples of other epochs, with which those of this epoch join, may have met another factor. A semantic
    shedder keeps more than this.

    >>> compute_kept([{"timely": 8, "late": 0, "shed": 2}, {"timely": 5, "late": 0, "shed": 5}])
    0.4
    >>> compute_kept([{"timely": 10, "late": 0, "shed_probes": 6}, {"timely": 30, "late": 0}])
    0.85
    """
    kept, stored, unprobed = 1.0, 0, 0
    for stream in streams:
        shed, admitted = stream.get("shed", 0), stream["timely"] + stream["late"]
        kept *= admitted / (admitted + shed) if shed else 1.0
        stored += admitted
        unprobed += stream.get("shed_probes", 0)
    return kept * (1 - unprobed / stored) if unprobed else kept


def _sum_tasks(units: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, int]]:
    """Sum the counters of each task over all units."""
    total: dict[str, dict[str, int]] = {}
    for unit in units:
        for name, counters in unit.get("tasks", {}).items():
            mine = total.setdefault(name, dict.fromkeys(counters, 0))
            for counter, n in counters.items():
                mine[counter] += n
    return total


def _find_tables(units: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Find the version of each table that an epoch has read, by alias. All its tasks read the same one.

    The bytes that tasks have used are those of the task that has used the most.
    """
    found: dict[str, dict[str, Any]] = {}
    for unit in units:
        for alias, table in unit.get("tables", {}).items():
            used = max(table["used_bytes"], found.get(alias, table)["used_bytes"])
            found[alias] = {**table, "used_bytes": used}
    return found


def compute_efficiency(counters: Mapping[str, int]) -> float | None:
    """Compute ESJ's processing efficiency rho: matches per stored tuple examined, None if none was examined.

    The steps of bisections are not counted, so an index that evaluates the whole condition has rho = 1.
    ``bench.papers.efficiency`` documents the bounds of rho.

    >>> counters = {"matched": 3, "candidates": 12}, {"matched": 0, "candidates": 0}
    >>> [compute_efficiency(each) for each in counters]
    [0.25, None]
    """
    return counters["matched"] / counters["candidates"] if counters["candidates"] else None
